"""The programs of docs/kafka.md run as they stand there."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tidelog.admin import AdminClient
from tidelog.testing import LocalCluster

PAGE = Path(__file__).parents[3] / "docs" / "kafka.md"
PROGRAMS = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
ADDRESS = "127.0.0.1:9092"


@pytest.mark.process
async def test_the_programs_of_the_page() -> None:
    async with LocalCluster(kafka=True) as cluster:
        async with AdminClient(cluster.bootstrap) as admin:
            await admin.create_topic("flights")
        assert len(PROGRAMS) == 3
        for program in PROGRAMS:
            assert ADDRESS in program
            text = program.replace(ADDRESS, cluster.kafka_bootstrap)
            command = [sys.executable, "-W", "ignore", "-c", text]
            done = await asyncio.to_thread(
                subprocess.run, command, capture_output=True, text=True, timeout=50, check=False
            )
            assert done.returncode == 0, done.stderr
