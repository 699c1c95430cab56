"""Real brokers under full load, on disks that stall; `python -m tests.e2e.steady --help`."""
