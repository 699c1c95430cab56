"""Disks that stall: of one broker at a time for a moment, again and again; or of one, for as long as it takes."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import ClassVar, Final

from tests.e2e.power.disks import Disk

CALM_S: Final = (0.5, 2.5)
"""The shortest and the longest time between two stalls."""


class StallingDisk(Disk):
    """A file system at `directory`, over a directory of the real disk."""

    mount: ClassVar[str] = "tests.e2e.steady.mount"

    def stall(self, seconds: float) -> None:
        """Has each write and flush wait until so much later; 0 ends that."""
        self._tell({"do": "stall", "seconds": seconds})
        self._hear()


@contextmanager
def mounted(directory: Path, nodes: Sequence[int]) -> Iterator[dict[int, StallingDisk]]:
    """Yields a disk for the data of each broker of a cluster in this directory. Raises `DisksUnavailable`."""
    with ExitStack() as stack:
        yield {
            node: stack.enter_context(StallingDisk(directory / f"broker-{node}" / "data", seed=node)) for node in nodes
        }


@contextmanager
def hanging(disks: Mapping[int, StallingDisk], seconds_max: float, node: int) -> Iterator[None]:
    """Has the disk of a broker hang for the time of a `with`, or for `seconds_max` if nobody ends that."""
    disks[node].stall(seconds_max)
    try:
        yield
    finally:
        disks[node].stall(0)


async def stall_at_random(disks: Mapping[int, StallingDisk], seconds: float, rng: random.Random) -> int:
    """Stalls one disk after the other, until cancelled. Returns how often."""
    count = 0
    try:
        while disks:
            await asyncio.sleep(rng.uniform(*CALM_S))
            disks[rng.choice(sorted(disks))].stall(seconds)
            count += 1
            await asyncio.sleep(seconds)
    except asyncio.CancelledError:
        pass
    return count
