"""Runs the command line: `python -m tidelog` is the same as `tidelog`."""

from __future__ import annotations

from tidelog.cli.main import main

if __name__ == "__main__":
    main()
