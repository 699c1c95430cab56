"""Real brokers whose wall clocks are moved; `python -m tests.e2e.clocks --help`."""
