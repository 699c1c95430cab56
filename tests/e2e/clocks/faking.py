"""Wall clocks that can be moved while a process runs, by libfaketime. The monotonic clock stays what it is."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tidelog.testing import LocalCluster

ROOTS: Final = ("/usr/lib", "/usr/lib64", "/usr/local/lib")
LIBRARY: Final = "faketime/libfaketimeMT.so.1"
LACK: Final = "libfaketime is not installed (Debian: apt-get install faketime)"


def library() -> Path | None:
    """Returns where libfaketime for processes with threads is; None if it is not installed."""
    found = [path for root in ROOTS for pattern in (LIBRARY, f"*/{LIBRARY}") for path in Path(root).glob(pattern)]
    return found[0] if found else None


class WallClock:
    """The wall clock of one process, which is right at first."""

    def __init__(self, path: Path, loaded: Path) -> None:
        """`path` holds how far the clock is ahead, for `loaded`, the library, to read."""
        self._path, self._loaded = path, loaded
        self.move(0)

    @property
    def prefix(self) -> Sequence[str]:
        """Returns the words before those of the process's command."""
        return (
            "env",
            f"LD_PRELOAD={self._loaded}",
            f"FAKETIME_TIMESTAMP_FILE={self._path}",
            "FAKETIME_NO_CACHE=1",
            "FAKETIME_DONT_FAKE_MONOTONIC=1",
            "DONT_FAKE_MONOTONIC=1",
            "NO_FAKE_STAT=1",
        )

    def move(self, ahead_s: int) -> None:
        """Has the clock be that far ahead of the machine's, from now on; behind it, if below 0."""
        written = self._path.with_suffix(".new")
        written.write_text(f"{ahead_s:+d}\n")
        written.rename(self._path)  # it is read at any moment


def give_clocks(cluster: LocalCluster, directory: Path, loaded: Path) -> dict[int, WallClock]:
    """Gives each broker of a cluster that has not started yet a clock of its own."""
    clocks = {node: WallClock(directory / f"clock-{node}", loaded) for node in cluster.node_ids}
    for node, clock in clocks.items():
        cluster.broker(node).prefix = clock.prefix
    return clocks
