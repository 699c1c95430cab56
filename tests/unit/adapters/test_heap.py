"""Memory that is given back and needed again: page faults, counted in a process of its own."""

from __future__ import annotations

import subprocess
import sys

import pytest

SCRIPT = """
import resource
from tidelog.adapters.heap import keep_freed_memory

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    buffers = [bytearray(1 << 20) for _ in range(32)]
    del buffers
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

usual = [faults() for _ in range(3)][-1]
assert keep_freed_memory()
faults()
print(usual, faults())
"""
PAGES = (32 << 20) // 4096


@pytest.mark.skipif(sys.platform != "linux", reason="glibc's own option")
def test_buffers_are_made_of_the_pages_of_those_before() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True)
    usual, kept = map(int, done.stdout.split())
    assert kept < PAGES // 10 < usual
