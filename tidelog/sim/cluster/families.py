"""Families of faults that can be switched on by name.

A family in `ON` is part of every seed with data. The others are chosen (`tidelog sim --faults tail,missing`): the code
may still fail them, and whoever fixes that adds the family to `ON`. Faults of a family are drawn from a random stream
of their own, so the rest of a seed is the same run with and without them.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from enum import StrEnum

from msgspec import structs

from tidelog.sim.cluster import forged_strikes, hung_strikes
from tidelog.sim.cluster.hole_strikes import LOSE_WRITES
from tidelog.sim.cluster.scenario import Strike, Swarm
from tidelog.sim.kit.seeds import stream


class Family(StrEnum):
    """A family of faults, by its name on the command line."""

    TAIL = "tail"
    """All brokers die right after an acknowledgement, and copies of the last batch are damaged."""
    MISSING = "missing"
    """A partition's directory is gone."""
    SWAPPED = "swapped"
    """The directories of two partitions have changed places."""
    OLD = "old"
    """A data directory is an old copy of itself."""
    METADATA = "metadata"
    """A broker's metadata directory is gone, or its metainfo (the file with the log's identity) is unusable."""
    APART = "apart"
    """A batch is damaged in all logs and intact in the journals, or the other way round; or one journal loses
    its end."""
    EMPTIED = "emptied"
    """A partition's directory is gone on one broker, and on another its last batch is damaged."""
    SWEEP = "sweep"
    """Copies of the last entries of a log are damaged, in any pattern that leaves one of each."""
    LATE = "late"
    """The loss of a batch is accepted while the broker with the last good copy is down."""
    EIO = "eio"
    """Sectors cannot be read: of a log, a catalog, metainfo, a snapshot."""
    FORGED = "forged"
    """Messages arrive that no correct broker has sent. For `draw_story` only: random scenarios do not expect
    refusals."""
    LANES = "lanes"
    """Brokers have up to four connections (`paxos.peer.lanes`) for Paxos partitions, and single ones break or stall."""
    HOLES = "holes"
    """Writes of some positions of Paxos partitions are lost, while those behind them arrive."""
    HUNG = "hung"
    """A broker, or its disk, hangs while clients write, and the time without a commit is checked. For `draw_story`
    only: the bounds on that time hold if nothing else fails."""


KINDS: dict[Family, dict[str, float]] = {
    Family.TAIL: {
        "tail of a log": 2.0,
        "tail of a journal": 3.0,
        "tail of log and journal": 2.0,
        "tail of the metadata log": 1.0,
    },
    Family.MISSING: {"directory missing": 1.0},
    Family.SWAPPED: {"directories swapped": 1.0},
    Family.OLD: {"old data directory": 1.0},
    Family.METADATA: {"metadata missing": 1.0, "metadata without metainfo": 1.0},
    Family.APART: {
        "all logs and no journal": 1.0,
        "all journals and no log": 1.0,
        "journal without its end": 2.0,
        "journal missing": 1.0,
    },
    Family.EMPTIED: {"tail beside a missing directory": 1.0},
    Family.SWEEP: {"pattern of a partition": 2.0, "pattern of the metadata log": 1.0},
    Family.LATE: {"late copy": 1.0},
    Family.EIO: {
        "unreadable log": 1.0,
        "unreadable catalog": 1.0,
        "unreadable metainfo": 1.0,
        "unreadable snapshot": 1.0,
    },
    Family.LANES: {"lane breaks": 1.0, "lane stalls": 2.0, "late frames": 1.0},
    Family.HOLES: {LOSE_WRITES: 1.0},
    Family.FORGED: dict.fromkeys(forged_strikes.KINDS, 1.0),
    Family.HUNG: dict.fromkeys(hung_strikes.KINDS, 1.0),
}
"""Names of faults with their weights, by family."""

ON: tuple[Family, ...] = (
    Family.TAIL,
    Family.MISSING,
    Family.SWAPPED,
    Family.OLD,
    Family.METADATA,
    Family.APART,
    Family.SWEEP,
    Family.EIO,
)
"""Families that are part of every seed with data."""

LANES_MAX = 4
STRUCK_SHARE = 0.7
"""Share of the seeds in which a family's faults occur."""
STRIKES_MAX = 2


def families_of(names: str) -> tuple[Family, ...]:
    """Reads family names separated by commas, or `all` or `none`. Raises `ValueError` for an unknown name."""
    if names in ("all", "none"):
        return tuple(Family) if names == "all" else ()
    return tuple(Family(name.strip()) for name in names.split(","))


def draw_families(seed: int, swarm: Swarm, families: Sequence[Family]) -> Iterator[Strike]:
    """Yields the faults of these families for a seed."""
    for family in families:
        rng = stream(seed, f"family {family}")
        if rng.random() < STRUCK_SHARE and kinds_of(family, swarm):
            for _ in range(rng.randint(1, STRIKES_MAX)):
                yield _draw_strike(rng, swarm, family)


def kinds_of(family: Family, swarm: Swarm) -> dict[str, float]:
    """Returns the names of a family's faults with their weights; those about journals only if a topic uses Paxos."""
    has_journals = any(topic.is_paxos for topic in swarm.traffic.topics)
    return {kind: weight for kind, weight in KINDS[family].items() if has_journals or "journal" not in kind}


def _draw_strike(rng: random.Random, swarm: Swarm, family: Family) -> Strike:
    kinds = kinds_of(family, swarm)
    return Strike(
        at_s=round(rng.uniform(0.0, swarm.chaos_s), 4),
        kind=rng.choices([*kinds], [*kinds.values()])[0],
        nodes=(rng.choice(swarm.nodes),),
        lasts_s=round(rng.choice((0.05, 0.5, 1.5)) * rng.uniform(0.5, 2.0), 4),
        amount=round(rng.random(), 4),
    )


def with_lanes(seed: int, swarm: Swarm, families: Sequence[Family]) -> Swarm:
    """Returns the parameters with a number of connections for Paxos partitions, if these families include them."""
    if Family.LANES not in families:
        return swarm
    lanes = stream(seed, "lanes").randint(1, LANES_MAX)
    return structs.replace(swarm, settings=swarm.settings | {"paxos.peer.lanes": lanes})
