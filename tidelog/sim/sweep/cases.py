"""Cases of the sweep: a pattern says which copies of the last four entries of a log are damaged (CTRL, FAST '18).

A pattern is a number of entries times replicas bits, a set bit for each copy that is damaged. Of four entries on three
replicas there are 4,096 patterns, and 2,401 leave a good copy of every entry. The sweep over real brokers
(`tests/e2e/sweep`) counts them in the same way.
"""

from __future__ import annotations

import random
from enum import StrEnum
from typing import Final, NamedTuple

ENTRIES: Final = 4


class Protocol(StrEnum):
    """The log that is damaged: a partition's, or that of the metadata."""

    ISR = "isr"
    PAXOS = "paxos"
    METADATA = "metadata"


class Stop(StrEnum):
    """The end of all replicas."""

    CLEAN = "clean"
    IDLE = "idle"
    """The processes are killed two seconds after the last acknowledgement."""
    ACKNOWLEDGED = "acknowledged"
    """They are killed at the last acknowledgement."""
    POWER = "power"
    """All lose their power at the last acknowledgement; of what was not synced, any part is left."""


class Damage(StrEnum):
    """The damage to a copy."""

    FLIP = "flip"
    ZERO = "zero"
    EIO = "eio"
    CUT = "cut"
    """The file ends there, if all copies that lie behind are to be damaged, too; else they are zeroed."""


class Where(StrEnum):
    """The copies of a Paxos replica that are hit; any other replica has one copy of an entry."""

    BOTH = "both"
    LOG = "log"
    JOURNAL = "journal"


class Variant(StrEnum):
    """The second misfortune of a replica, or the number of replicas."""

    PLAIN = "plain"
    BEHIND = "behind"
    """A replica ends before the third of the four entries."""
    DIRECTORY = "directory"
    """The directory of a replica is removed."""
    DISK = "disk"
    """All that one broker has is removed."""
    FIVE = "five"
    """There are five replicas."""

    @property
    def replicas(self) -> int:
        return 5 if self is Variant.FIVE else 3

    @property
    def patterns(self) -> int:
        """Returns how many there are."""
        return 1 << (ENTRIES * self.replicas)


class Plan(NamedTuple):
    """All that decides the disks before the damage, but for the number of partitions."""

    protocol: Protocol
    stop: Stop
    variant: Variant
    seed: int

    @property
    def nodes(self) -> range:
        return range(1, 1 + self.variant.replicas)


class Case(NamedTuple):
    """The damage to one log. `wiped` is the replica whose directory is removed; 0: none."""

    pattern: int
    damage: Damage
    where: Where = Where.BOTH
    wiped: int = 0

    def hits(self, entry: int, node: int, replicas: int) -> bool:
        """True if this copy is damaged."""
        return bool(self.pattern >> (entry * replicas + node - 1) & 1)

    def told(self, replicas: int) -> str:
        """Returns the pattern as people read it: the entries, and of each its copies."""
        return "/".join(
            "".join("x" if self.hits(entry, node + 1, replicas) else "." for node in range(replicas))
            for entry in range(ENTRIES)
        )


def draw_patterns(variant: Variant, count: int | None, rng: random.Random) -> list[int]:
    """Returns so many patterns, each once; all of them, in order, if no number is given."""
    if count is None or count >= variant.patterns:
        return list(range(variant.patterns))
    return rng.sample(range(variant.patterns), count)
