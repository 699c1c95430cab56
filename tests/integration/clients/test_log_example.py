"""examples/replicated_map.py, as its first lines say."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tidelog.testing import LocalCluster

pytestmark = [pytest.mark.process, pytest.mark.e2e]

EXAMPLE = Path(__file__).parents[3] / "examples" / "replicated_map.py"


async def run(cluster: LocalCluster, topic: str) -> list[str]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, EXAMPLE, "--bootstrap", cluster.bootstrap, "--topic", topic, stdout=asyncio.subprocess.PIPE
    )
    output, _ = await process.communicate()
    assert process.returncode == 0
    return output.decode().splitlines()


async def test_each_run_goes_on_with_the_map_of_the_one_before(
    cluster: LocalCluster, topic_names: Iterator[str]
) -> None:
    topic = next(topic_names)
    assert await run(cluster, topic) == [
        "took over at position 2 with {}",
        "another replica reads {'runs': 1}: equal",
        "a snapshot stands for all before it: the log begins at 3",
        "the writer before this one is fenced: its entry is not in the log",
    ]
    assert await run(cluster, topic) == [
        "took over at position 7 with {'runs': 1}",
        "another replica reads {'runs': 2}: equal",
        "a snapshot stands for all before it: the log begins at 8",
        "the writer before this one is fenced: its entry is not in the log",
    ]


def test_it_fits_on_a_page() -> None:
    assert len(EXAMPLE.read_text().splitlines()) <= 60
