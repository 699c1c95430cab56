"""Random walks of a classic group: in whatever order it is asked, counts are true and nobody is forgotten."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress

import pytest

from tests.unit.groups.classic.classic_desk import ClassicDesk, Waiting
from tests.unit.groups.desk import copied, replayed
from tidelog.groups.classic.state import PENDING_BYTES, Phase
from tidelog.model.classic_groups import JoinAnswer, Leaving, Protocol
from tidelog.model.errors import MemberIdRequired, TidelogError

STEPS = 60


class Walk:
    """A group, those who ask for something of it, and those who wait."""

    def __init__(self, seed: int) -> None:
        self.desk = ClassicDesk(t=4)
        self.waiting = list[Waiting]()
        self._rng = random.Random(seed)
        self._ids = ["", "nobody"]

    def step(self) -> None:
        rng, desk = self._rng, self.desk
        member_id, generation = rng.choice(self._ids), self._generation()
        match rng.randrange(7):
            case 0 | 1:
                self._wait(desk.ask_join(rng.choice((member_id, "")), **self._said()))
            case 2:
                given = {one: bytes(rng.randrange(3)) for one in self._ids}
                self._wait(desk.ask_sync(member_id, generation, given))
            case 3:
                self._try(lambda: desk.heartbeat(member_id, generation, instance_id=rng.choice((None, "i1"))))
            case 4:
                leaving = rng.choice((Leaving(member_id), Leaving(member_id, "i1"), Leaving("", "i1")))
                self._try(lambda: desk.let_go(leaving))
            case 5:
                self._try(lambda: desk.commit_as(rng.choice(("", member_id)), generation))
            case _:
                desk.pass_time(rng.choice((0.1, 3, 20)) * rng.random())
        self._check()

    def _said(self) -> dict[str, object]:
        rng = self._rng
        names = rng.choice((("range",), ("range", "sticky"), ("sticky", "range"), ("other",)))
        return {
            "instance_id": rng.choice((None, None, "i1", "i2")),
            "protocols": tuple(Protocol(name, bytes(rng.randrange(3))) for name in names),
            "requires_known_id": rng.random() < 0.7,
            "can_skip_assignment": rng.random() < 0.5,
            "session_timeout_ms": rng.choice((2_000, 10_000)),
            "rebalance_timeout_ms": rng.choice((1_000, 30_000)),
        }

    def _generation(self) -> int:
        group = self.desk.shard.groups.get("g")
        now = 0 if group is None or group.classic is None else group.classic.generation
        return self._rng.choice((now, now, now, now - 1, -1))

    def _wait(self, asked: Waiting) -> None:
        self.waiting.append(asked)
        if isinstance(asked.told, MemberIdRequired | JoinAnswer):
            self._ids.append(asked.told.member_id)
        self._ids = self._ids[-6:]

    def _try(self, ask: Callable[[], object]) -> None:
        if "g" in self.desk.shard.groups:
            with suppress(TidelogError):
                ask()

    def _check(self) -> None:
        group = self.desk.shard.groups.get("g")
        classic = None if group is None else group.classic
        if classic is None:
            return
        members = list(classic.members.values())
        assert classic.size == sum(one.size for one in members) + PENDING_BYTES * len(classic.pending)
        assert classic.kept_size == sum(one.kept_size for one in members)
        assert classic.awaiting == sum(one.join_wait is not None for one in members)
        assert classic.instances == {one.instance_id: one.member_id for one in members if one.instance_id is not None}
        assert (classic.phase is Phase.EMPTY) == (not members)
        assert (classic.phase is Phase.PREPARING) == (classic.joining is not None)
        if classic.phase in (Phase.COMPLETING, Phase.STABLE):
            assert classic.awaiting == 0
            assert classic.protocol in classic.common_protocols()
        if classic.phase is not Phase.COMPLETING:
            assert not any(one.sync_wait is not None for one in members)
        assert replayed(self.desk.log) == self.desk.shard == replayed(copied(self.desk.shard))


@pytest.mark.parametrize("seeds", [range(40), pytest.param(range(40, 1_000), marks=pytest.mark.slow)])
def test_whatever_is_asked_nobody_is_forgotten(seeds: range) -> None:
    for seed in seeds:
        walk = Walk(seed)
        for _ in range(STEPS):
            walk.step()
        walk.desk.pass_time(700)
        assert all(one.told is not None for one in walk.waiting), seed
