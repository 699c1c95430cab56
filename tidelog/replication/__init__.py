"""Replication protocols (Paxos, and primary-backup with in-sync replicas): pure state machines that decide when a
record is committed. No I/O, no clock, no asyncio."""
