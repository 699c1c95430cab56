"""Commit protocols: pure state machines that say when a record is committed. No I/O, no clock, no asyncio."""
