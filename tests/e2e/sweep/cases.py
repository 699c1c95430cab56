"""Cases of the sweep: a pattern says which copies of a partition's entries are damaged (CTRL, FAST '18).

A pattern is a number of entries times replicas bits, a set bit for each copy that is damaged. Of four entries on three
replicas there are 4,096 patterns, and 2,401 leave a good copy of every entry. Which copy is hit is the pattern's; how,
and in Paxos where, is drawn for each case, so that one cluster shows many kinds at once.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import Final, NamedTuple

from tidelog.sim.sweep.cases import ENTRIES, Damage, Stop, Variant, Where

REPLICAS: Final = 3
PATTERNS: Final = 1 << (ENTRIES * REPLICAS)
NODES: Final = tuple(range(1, REPLICAS + 1))


STOPS: Final = (Stop.CLEAN, Stop.IDLE, Stop.ACKNOWLEDGED, Stop.POWER)
DAMAGES: Final = (Damage.FLIP, Damage.ZERO, Damage.CUT, Damage.EIO)
WHERES: Final = (Where.LOG, Where.JOURNAL, Where.BOTH)
VARIANTS: Final = tuple(variant for variant in Variant if variant.replicas == REPLICAS)
"""The order decides what is drawn by a seed, so it is this page's own."""
PLAIN_STOPS: Final = (Stop.CLEAN, Stop.IDLE, Stop.ACKNOWLEDGED)
PLAIN_DAMAGES: Final = (Damage.FLIP, Damage.ZERO, Damage.CUT)
"""Any disk can be damaged so; other damage takes disks of the test's own (`tests.e2e.power.disks`)."""


class Series(StrEnum):
    """The way to draw patterns: any of the sweep, or one copy of the last entry."""

    SWEEP = "sweep"
    LAST = "last"


class Case(NamedTuple):
    """The damage to one partition. `wiped` is the broker whose directory of this partition is removed; 0: none."""

    partition: int
    pattern: int
    damage: Damage
    where: Where
    wiped: int = 0

    def hits(self, entry: int, node: int) -> bool:
        """True if this copy is damaged."""
        return bool(self.pattern >> (entry * REPLICAS + node - 1) & 1)

    def __str__(self) -> str:
        rows = "/".join("".join("x" if self.hits(entry, node) else "." for node in NODES) for entry in range(ENTRIES))
        wiped = f" wiped={self.wiped}" if self.wiped else ""
        return f"partition={self.partition} pattern={rows} damage={self.damage} where={self.where}{wiped}"


def draw_patterns(series: Series, count: int, rng: random.Random) -> Iterator[int]:
    """Yields so many patterns: of the sweep each once before any comes again, else one copy of the last entry."""
    while series is Series.LAST and count:
        yield 1 << ((ENTRIES - 1) * REPLICAS + rng.randrange(REPLICAS))
        count -= 1
    while count:
        some = rng.sample(range(PATTERNS), min(count, PATTERNS))
        yield from some
        count -= len(some)


def draw_cases(
    patterns: list[int], rng: random.Random, *, damages: Sequence[Damage], wheres: Sequence[Where], variant: Variant
) -> list[Case]:
    """Returns a partition for each pattern."""
    return [
        Case(
            partition,
            pattern,
            rng.choice(damages),
            rng.choice(wheres),
            rng.choice(NODES) if variant is Variant.DIRECTORY else 0,
        )
        for partition, pattern in enumerate(patterns)
    ]
