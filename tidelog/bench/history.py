"""Benchmark results over time: one JSON line per run, with the machine and the commit that was measured."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import time
from pathlib import Path

import tidelog
from tidelog.bench.result import Result

SIGNIFICANT_DIGITS = 5


def append_history(result: Result, path: Path) -> None:
    """Appends a result to the history file, which is created if it does not exist."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as history:
        history.write(json.dumps(history_line(result), sort_keys=True) + "\n")


def history_line(result: Result) -> dict[str, object]:
    """Returns a result with what identifies the run: date, commit, version, machine, Python, parameters."""
    return {
        "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "commit": _commit(),
        "version": tidelog.__version__,
        "machine": f"{platform.system()} {platform.release()} {platform.machine()}, {os.cpu_count()} cores",
        "python": platform.python_version(),
        "workload": result.workload,
        "parameters": dict(result.parameters),
        "figures": {name: float(f"{value:.{SIGNIFICANT_DIGITS}g}") for name, value in result.figures.items()},
    }


def _commit() -> str:
    """Returns the git commit of this code, with + if files were changed since; empty outside a checkout."""
    directory = Path(tidelog.__file__).parent
    try:
        described = subprocess.run(
            ["git", "describe", "--always", "--dirty=+", "--exclude=*"],
            cwd=directory, capture_output=True, text=True, check=True, timeout=10,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return ""
    return described.stdout.strip()
