"""The copies of entries on the disks of brokers that do not run: where they lie, and how they are damaged.

What must be readable afterwards is not reckoned from the pattern but seen on the disks: an entry of which a whole copy
is left, in whatever log or journal, must come back.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from tests.e2e.sweep.cases import NODES, Case
from tidelog.model.batch_header import iter_batches
from tidelog.model.errors import TidelogError
from tidelog.sim.kit.inode import SECTOR_BYTES
from tidelog.sim.sweep.cases import ENTRIES, Damage, Where

JOURNAL = "journal"


class Copy(NamedTuple):
    """A batch that holds an entry, or an entry of a journal that holds that batch."""

    node: int
    entry: int
    path: Path
    position: int
    size: int

    @property
    def is_in_journal(self) -> bool:
        return self.path.parent.name == JOURNAL


def partition_directory(data_dir: Path, partition: int) -> Path:
    """Returns the directory of a broker's replica, of the only topic that there is."""
    (topic,) = (data_dir / "topics").iterdir()
    return topic / str(partition)


def find_copies(node: int, directory: Path, values: Sequence[str]) -> list[Copy]:
    """Returns all sound copies below a partition's directory."""
    found: list[Copy] = []
    for path in sorted(directory.rglob("*.log")):
        position = 0
        try:
            for batch in iter_batches(path.read_bytes()):
                data = bytes(batch.data)
                held = [entry for entry, value in enumerate(values) if value.encode() in data]
                found += [Copy(node, entry, path, position, len(data)) for entry in held]
                position += len(data)
        except TidelogError:
            pass  # behind the last batch there may be room that was reserved
    return found


def chosen(case: Case, copies: Iterable[Copy]) -> list[Copy]:
    """Returns those that the case damages."""
    return [
        copy
        for copy in copies
        if case.hits(copy.entry, copy.node)
        and (case.where is Where.BOTH or copy.is_in_journal == (case.where is Where.JOURNAL))
    ]


Spoil = Callable[[Copy, int], None]
"""Makes a sector of a copy's file unreadable; the second argument is the position where it begins."""


def damage_copies(case: Case, copies: list[Copy], rng: random.Random, spoil: Spoil | None) -> list[Copy]:
    """Damages what the case says; returns the copies that are left. A file is cut only where all that lies behind is
    to be damaged, too, and has its batches zeroed otherwise. A sector that becomes unreadable is one that the copy has
    for itself."""
    hit = chosen(case, copies)
    if case.damage is Damage.EIO:
        assert spoil is not None
        for copy in hit:
            first, end = -(-copy.position // SECTOR_BYTES), (copy.position + copy.size) // SECTOR_BYTES
            spoil(copy, rng.randrange(first, end) * SECTOR_BYTES)
        return [copy for copy in copies if copy not in hit]
    for path in sorted({copy.path for copy in hit}):
        here = [copy for copy in hit if copy.path == path]
        cut = min(copy.position for copy in here)
        behind = [copy for copy in copies if copy.path == path and copy.position >= cut]
        content = bytearray(path.read_bytes())
        if case.damage is Damage.CUT and set(behind) == set(here):
            del content[cut:]
        else:
            for copy in here:
                _damage(content, copy, case.damage, rng)
        path.write_bytes(content)
    return [copy for copy in copies if copy not in hit]


def _damage(content: bytearray, copy: Copy, damage: Damage, rng: random.Random) -> None:
    if damage is Damage.FLIP:
        content[copy.position + rng.randrange(copy.size)] ^= 1 << rng.randrange(8)
    else:
        content[copy.position : copy.position + copy.size] = bytes(copy.size)


class Struck(NamedTuple):
    """The entries that have a good copy left, and those that are not on a broker's disk at all, damaged or not."""

    good: set[int]
    lacked: dict[int, set[int]]


def strike(
    case: Case, data_dirs: dict[int, Path], values: Sequence[str], rng: random.Random, spoil: Spoil | None = None
) -> Struck:
    """Does to a partition what its case says."""
    copies = [
        copy
        for node, data_dir in data_dirs.items()
        for copy in find_copies(node, partition_directory(data_dir, case.partition), values)
    ]
    missing = set(range(ENTRIES)) - {copy.entry for copy in copies}
    if missing:
        raise AssertionError(f"{case}: acknowledged entries {sorted(missing)} are on no disk before any damage")
    left = damage_copies(case, copies, rng, spoil)
    if case.wiped in data_dirs:
        shutil.rmtree(partition_directory(data_dirs[case.wiped], case.partition))
        copies, left = ([copy for copy in some if copy.node != case.wiped] for some in (copies, left))
    held = {node: {copy.entry for copy in copies if copy.node == node} for node in NODES}
    return Struck({copy.entry for copy in left}, {node: set(range(ENTRIES)) - held[node] for node in NODES})
