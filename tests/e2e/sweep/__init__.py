"""The sweep of CTRL (FAST '18) on real broker processes; `python -m tests.e2e.sweep --help`."""
