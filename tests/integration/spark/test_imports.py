"""Spark imports the format in a process for each step of a query: none of them loads what only others need."""

from __future__ import annotations

import subprocess
import sys

import pytest


def modules_after(statement: str) -> set[str]:
    """The modules that a new interpreter has loaded then."""
    script = f"import sys\n{statement}\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


@pytest.mark.parametrize(
    ("statement", "spared"),
    [
        ("import pyspark_tidelog; pyspark_tidelog.DefaultSource({}).schema()", {"pyarrow", "msgspec", "http.client"}),
        ("import tidelog.spark.readers", {"pyarrow", "numpy", "crc32c", "asyncio", "aiohttp"}),
        ("import tidelog.spark.sink", {"pyarrow", "numpy", "xxhash", "asyncio", "aiohttp"}),
    ],
    ids=["columns", "plan a read", "plan a write"],
)
def test_a_step_loads_what_it_needs(statement: str, spared: set[str]) -> None:
    assert not spared & modules_after(statement)
