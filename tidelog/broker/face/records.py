"""Records as JSON objects, for listeners and for REST consumers alike."""

from __future__ import annotations

from tidelog.broker.routing.json_records import RecordShown, read_records, show

__all__ = ["RecordShown", "read_records", "show"]
