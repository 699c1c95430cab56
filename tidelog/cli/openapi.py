"""`tidelog openapi`: prints the OpenAPI document that brokers serve at `/openapi.json`, without a broker."""

from __future__ import annotations

import orjson

from tidelog.broker.http.openapi import describe
from tidelog.broker.http.routes import ROUTES
from tidelog.cli.terminal import print_json


def openapi() -> None:
    """Print the OpenAPI document of the HTTP interface, as brokers serve it at /openapi.json.

    \b
    Example:
      tidelog openapi > openapi.json
    """
    print_json(orjson.loads(describe(ROUTES)))
