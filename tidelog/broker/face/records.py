"""Reads of records as JSON objects, re-exported for listeners."""

from __future__ import annotations

from tidelog.broker.routing.json_reads import ReadTerms, ShownRecords, read_records, show_early
from tidelog.broker.routing.json_records import RecordShown

__all__ = ["ReadTerms", "RecordShown", "ShownRecords", "read_records", "show_early"]
