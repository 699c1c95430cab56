"""Reads of records as JSON objects, re-exported for listeners."""

from __future__ import annotations

from tidelog.broker.routing.json_reads import ReadTerms, read_records
from tidelog.broker.routing.json_records import RecordShown

__all__ = ["ReadTerms", "RecordShown", "read_records"]
