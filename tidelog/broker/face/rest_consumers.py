"""Requests to REST consumer instances and their answers, re-exported for listeners (see
`BrokerFace.rest_consumers`).
"""

from __future__ import annotations

from tidelog.broker.rest_consumers import requests

__all__ = ["requests"]
