"""The ghosts of ParallelRaft, told by hand: values of a dead leader that come back behind newer ones (Gu et al.).

As published, its replicas may run two batches of one key in different orders. Here every replica has the same log, in
which the ghost has no effect.
"""

from __future__ import annotations

from tests.golden.paxos.stage import Stage, name_of
from tests.sim.paxos.mutants import mutated, no_void_rule
from tests.sim.paxos.order_mutants import (
    adopted_batches_are_released,
    lapsed_positions_are_not_looked_at,
    released_whoever_had_it_chosen,
)
from tidelog.replication.paxos.apply import Verdict
from tidelog.replication.paxos.events import Append, Applied, Released, Timer

K, J = 1, 2


def append(stage: Stage, node: int, digest: str, *keys: int) -> None:
    stage.do(node, Append(1, digest.encode(), keys=frozenset(keys)))


def log_of(stage: Stage, node: int) -> list[tuple[str, Verdict]]:
    """Returns the values that a node has applied, with their verdicts."""
    return [(name_of(e.value), e.verdict) for n, e in stage.effects if n == node and isinstance(e, Applied)]


def released(stage: Stage, node: int) -> list[int]:
    return [e.position for n, e in stage.effects if n == node and isinstance(e, Released)]


def begun() -> Stage:
    """Returns three nodes of which the first leads; its barrier is at position 0."""
    stage = Stage(3, window=8)
    stage.elect(1)
    stage.run()
    return stage


def test_a_skipped_hole_stays_empty_whoever_still_has_a_copy() -> None:
    """Leader 1 has k1 alone, and j everywhere; j is acknowledged. Leader 2, which knows nothing of k1, appends k2 and
    applies it. Then leader 3 is elected with the copy of k1 in its quorum."""
    stage = begun()
    append(stage, 1, "k1", K)
    stage.drop(1, 2)
    stage.drop(1, 3)
    append(stage, 1, "j", J)
    stage.run()
    assert released(stage, 1) == [2]
    stage.crash(1)
    stage.drop_all()
    stage.elect(2)
    stage.run(2, 3)
    append(stage, 2, "k2", K)
    stage.run(2, 3)
    stage.crash(3)
    stage.start(1)
    stage.elect(1)
    stage.run(1, 2)
    whole = [
        ("barrier", Verdict.APPLIED),
        ("nop", Verdict.NOTHING),
        ("j", Verdict.APPLIED),
        ("barrier", Verdict.APPLIED),
        ("k2", Verdict.APPLIED),
        ("barrier", Verdict.APPLIED),
    ]
    assert log_of(stage, 1)[-6:] == log_of(stage, 2) == whole


def test_a_ghost_whose_predecessors_are_others_by_now_is_void() -> None:
    """Leader 1 has k1, j and k2 alone, the last of which names k1. Leader 2 fills their positions with a barrier and
    k3, and stops short of the last. Leader 3 finds k2 there, and has to adopt it: it may be chosen."""
    stage = stale_look_behind()
    stage.elect(1)
    stage.run(1, 2)
    assert log_of(stage, 1)[-5:] == [
        ("barrier", Verdict.APPLIED),
        ("barrier", Verdict.APPLIED),
        ("k3", Verdict.APPLIED),
        ("k2", Verdict.VOID),
        ("barrier", Verdict.APPLIED),
    ]
    assert released(stage, 1) == []


def test_without_its_rules_a_ghost_is_applied_or_shown() -> None:
    with mutated(no_void_rule), mutated(lapsed_positions_are_not_looked_at):
        stage = stale_look_behind()
        stage.elect(1)
        stage.run(1, 2)
        assert ("k2", Verdict.APPLIED) in log_of(stage, 1)
    with mutated(adopted_batches_are_released):
        stage = stale_look_behind()
        stage.elect(1)
        stage.run(1, 2)
        assert released(stage, 1) == [3], "and it is void"


def stale_look_behind() -> Stage:
    stage = begun()
    for digest, key in (("k1", K), ("j", J), ("k2", K)):
        append(stage, 1, digest, key)
    stage.drop(1, 2)
    stage.drop(1, 3)
    stage.crash(1)
    stage.elect(2)
    stage.run(2, 3)
    append(stage, 2, "k3", K)
    stage.run(2, 3)
    stage.crash(3)
    stage.start(1)
    return stage


def adopted_above_the_barrier_of_another() -> Stage:
    """Leader 1 is cut off, and has b alone. Leader 3 puts its barrier below it. Leader 2 finds b at node 1, adopts it,
    and has it chosen; node 3 learns that. Then leader 1, which has heard of none of this, reaches node 3."""
    stage = begun()
    stage.elect(3)
    stage.run(2, 3)
    stage.drop_all()
    append(stage, 1, "a", K)
    append(stage, 1, "b", J)
    stage.drop_all()
    stage.elect(2)
    stage.deliver(2, 1)
    stage.deliver(1, 2)
    stage.deliver(2, 3)
    stage.run(2, 3)
    stage.drop_all()
    stage.fire(3, Timer.CATCHUP)
    stage.run(2, 3)
    stage.fire(1, Timer.RESEND)
    stage.drop(1, 3, 1)
    stage.deliver(1, 3)
    stage.deliver(3, 1)
    return stage


def test_a_leader_does_not_release_what_a_later_one_has_adopted() -> None:
    stage = adopted_above_the_barrier_of_another()
    assert [(name, verdict) for name, verdict in log_of(stage, 3) if name == "b"] == [("b", Verdict.VOID)]
    assert released(stage, 1) == []
    with mutated(released_whoever_had_it_chosen):
        assert released(adopted_above_the_barrier_of_another(), 1) == [2], "and it is void"
