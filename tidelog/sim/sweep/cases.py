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
    """Log that is damaged: a partition's, by commit protocol, or the metadata log."""

    ISR = "isr"
    PAXOS = "paxos"
    METADATA = "metadata"


class Stop(StrEnum):
    """How the processes of all replicas stop before their disks are damaged."""

    CLEAN = "clean"
    IDLE = "idle"
    """The processes are killed two seconds after the last acknowledgement."""
    ACKNOWLEDGED = "acknowledged"
    """The processes are killed at the last acknowledgement."""
    POWER = "power"
    """All machines lose their power at the last acknowledgement; any part of the unsynced writes is left."""


class Damage(StrEnum):
    """Kind of damage to a copy."""

    FLIP = "flip"
    ZERO = "zero"
    EIO = "eio"
    CUT = "cut"
    """The file ends at the first damaged copy, if all copies behind it are to be damaged, too; else they are zeroed."""


class Where(StrEnum):
    """Copies of a Paxos replica that are damaged; any other replica has one copy of an entry."""

    BOTH = "both"
    LOG = "log"
    JOURNAL = "journal"


class Variant(StrEnum):
    """Further fault of one replica, or the number of replicas."""

    PLAIN = "plain"
    BEHIND = "behind"
    """A replica stops before the third of the four entries."""
    DIRECTORY = "directory"
    """The partition's directory is removed on one replica."""
    DISK = "disk"
    """The disk of one broker is replaced by an empty one."""
    FIVE = "five"
    """Five replicas instead of three."""

    @property
    def replicas(self) -> int:
        return 5 if self is Variant.FIVE else 3

    @property
    def patterns(self) -> int:
        """Number of patterns, each of which says for four entries which replicas lose their copy."""
        return 1 << (ENTRIES * self.replicas)


class Plan(NamedTuple):
    """All that decides the disks before the damage, except for the number of partitions."""

    protocol: Protocol
    stop: Stop
    variant: Variant
    seed: int

    @property
    def nodes(self) -> range:
        return range(1, 1 + self.variant.replicas)


class Case(NamedTuple):
    """The damage to one log. `wiped` is the node whose directory is removed; 0: none."""

    pattern: int
    damage: Damage
    where: Where = Where.BOTH
    wiped: int = 0

    def hits(self, entry: int, node: int, replicas: int) -> bool:
        """Returns True if the pattern damages this node's copy of the entry."""
        return bool(self.pattern >> (entry * replicas + node - 1) & 1)

    def pattern_text(self, replicas: int) -> str:
        """Returns the pattern as text: for each entry an `x` or `.` per replica, separated by slashes."""
        return "/".join(
            "".join("x" if self.hits(entry, node + 1, replicas) else "." for node in range(replicas))
            for entry in range(ENTRIES)
        )


def draw_patterns(variant: Variant, count: int | None, rng: random.Random) -> list[int]:
    """Returns `count` different patterns; all of them, in order, if no count is given."""
    if count is None or count >= variant.patterns:
        return list(range(variant.patterns))
    return rng.sample(range(variant.patterns), count)
