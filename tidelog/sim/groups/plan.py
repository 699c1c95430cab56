"""Plan of one run of the classic groups' simulator, drawn from its seed. Seconds are of virtual time."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from tidelog.sim.kit.seeds import stream

RATES = (0.0, 0.0, 0.02, 0.1)
MOVES = ("kill", "move", "zombie")
"""Faults of the coordinator: its broker dies; it hands the partition over; or it is replaced and does not know that for
a while."""
MISHAPS = ("crash", "sleep", "leave", "other metadata")


class Seat(msgspec.Struct, frozen=True):
    """Place of a member in the group; another process takes it when the member's process ends."""

    instance_id: str | None
    joins_s: float
    beats_every_s: float
    can_skip_assignment: bool


class Step(msgspec.Struct, frozen=True):
    """A disturbance of the coordinator, or of the member at index `seat` (modulo their number)."""

    at_s: float
    action: str
    seat: int
    lasts_s: float


class GroupPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The members of one classic group, their timeouts, and the faults of the network between them and the brokers."""

    seats: tuple[Seat, ...]
    partitions: int
    session_s: float
    rebalance_s: float
    initial_delay_ms: int
    late_rate: float
    """Chance, each, that a request arrives after its caller has given up, that it arrives twice, and that its answer is
    lost."""

    @property
    def wait_s(self) -> float:
        """Seconds that a join or sync may take: twice the rebalance timeout and twice the session timeout, since all
        static members may be away; the initial delay; and 3 s for an append that stalls."""
        return 2 * self.rebalance_s + 2 * self.session_s + self.initial_delay_ms / 1000 + 3


class Scenario(GroupPlan, frozen=True, kw_only=True):
    """All that determines a run."""

    seed: int
    steps: tuple[Step, ...]
    append_s: float
    """Mean seconds of an append."""
    refused_rate: float
    """Chance that an append is refused with a retriable error."""
    unknown_rate: float
    """Chance that the outcome of an append stays unknown."""
    chaos_s: float


def draw_scenario(seed: int) -> Scenario:
    """Returns the scenario of a seed."""
    rng = stream(seed, "classic groups")
    chaos_s = rng.choice((4.0, 8.0, 12.0))
    seats = tuple(
        Seat(
            instance_id=f"i{number}" if rng.random() < 0.3 else None,
            joins_s=rng.choice((0.0, 0.5, 3.0)) * rng.random(),
            beats_every_s=rng.choice((0.1, 0.25)),
            can_skip_assignment=rng.random() < 0.5,
        )
        for number in range(rng.choice((1, 2, 3, 4, 5)))
    )
    actions = rng.choice((MOVES, MISHAPS, (*MOVES, *MISHAPS), ("kill",), ("zombie",)))
    steps = [
        Step(
            rng.uniform(0.2, chaos_s),
            rng.choice(actions),
            rng.randrange(5),
            rng.choice((0.05, 0.5, 2.0)) * rng.random(),
        )
        for _ in range(rng.randint(1, 8))
    ]
    return Scenario(
        seed=seed,
        seats=seats,
        steps=tuple(sorted(steps, key=lambda step: step.at_s)),
        partitions=rng.choice((1, 3, 8)),
        session_s=rng.choice((0.6, 1.0, 2.0)),
        rebalance_s=rng.choice((0.5, 1.0, 2.0)),
        initial_delay_ms=rng.choice((0, 0, 300, 1_000)),
        append_s=rng.choice((0.001, 0.01, 0.1)),
        refused_rate=rng.choice(RATES),
        unknown_rate=rng.choice((0.0, 0.0, 0.02)),
        late_rate=rng.choice(RATES),
        chaos_s=chaos_s,
    )


def simpler_plan(plan: GroupPlan) -> Iterator[GroupPlan]:
    """Yields simpler groups for shrinking: without one member, or without faults of the members' network."""
    for seat in plan.seats if len(plan.seats) > 1 else ():
        yield msgspec.structs.replace(plan, seats=tuple(one for one in plan.seats if one is not seat))
    if plan.late_rate:
        yield msgspec.structs.replace(plan, late_rate=0.0)
