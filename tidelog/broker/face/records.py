"""Reads of records as JSON objects, re-exported for listeners."""

from __future__ import annotations

from tidelog.broker.routing.json_reads import Wanted, read_records
from tidelog.broker.routing.json_records import RecordShown

__all__ = ["RecordShown", "Wanted", "read_records"]
