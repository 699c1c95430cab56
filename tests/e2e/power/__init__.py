"""Real brokers on disks that keep only what was flushed, and that go bad; `python -m tests.e2e.power --help`."""
