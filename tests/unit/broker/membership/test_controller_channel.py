"""The way to the controller: what is repeated, and what whoever asked is told in the end."""

from __future__ import annotations

import asyncio
from typing import cast

import msgspec
import pytest

from tidelog.broker.controller.active import ActiveController
from tidelog.broker.membership.controller_channel import ControllerChannel
from tidelog.controller.commands import AddPartitions, Command, ControllerElsewhere, Done, TopicPlaced
from tidelog.model.errors import ControllerLost, NotController, ShuttingDown, UnknownTopic
from tidelog.sim.kit.environment import SimEntropy
from tidelog.sim.kit.loop import run
from tidelog.sim.kit.seeds import stream
from tidelog.transport.peer import Answer, PeerLost

GROW = AddPartitions("t", 1, 3)
LOST = PeerLost("the connection broke")
UNKNOWN = UnknownTopic("there is no topic t")
PLACED = TopicPlaced(7, "ab", [[1]])


class Controllers:
    """Other brokers, that answer as they are told to."""

    def __init__(self, *answers: msgspec.Struct | Exception) -> None:
        self.asked: list[int] = []
        self.known: list[tuple[int, str, int]] = []
        self._answers = list(answers)

    async def ask(self, node_id: int, message: msgspec.Struct, *, deadline_s: float) -> Answer:
        self.asked.append(node_id)
        answer = self._answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return Answer(answer)

    def know(self, node_id: int, host: str, port: int) -> None:
        self.known.append((node_id, host, port))

    def submit(self, command: Command = GROW, *, leader: int | None = 2, is_closed: bool = False) -> TopicPlaced | Done:
        async def main() -> TopicPlaced | Done:
            mine = cast("ActiveController", None)  # this broker does not lead, so its own is not asked
            channel = ControllerChannel(1, mine, self.ask, SimEntropy(stream(1)), lambda: (1, 2, 3), self.know)
            channel.leader = leader
            if is_closed:
                channel.close()
            return await channel.submit(command, TopicPlaced, seconds_max=5.0)

        return run(main)


def test_a_lost_answer_is_asked_for_again() -> None:
    assert Controllers(LOST, PLACED).submit() == PLACED


def test_what_is_refused_at_once_was_not_done() -> None:
    with pytest.raises(UnknownTopic):
        Controllers(UNKNOWN).submit()


def test_what_is_refused_when_it_is_repeated_may_have_been_done() -> None:
    """The first attempt may have been carried out, and its effect undone by somebody else."""
    with pytest.raises(ControllerLost, match="no topic t"):
        Controllers(LOST, UNKNOWN).submit()


def test_who_knows_no_leader_asks_the_voters_in_turn() -> None:
    others = Controllers(NotController("not me"), PLACED)
    assert others.submit(leader=None) == PLACED
    assert sorted(others.asked) == [2, 3]


def test_who_has_been_away_is_told_of_a_controller_that_it_does_not_know() -> None:
    """All the voters that it remembers may have been replaced meanwhile."""
    others = Controllers(ControllerElsewhere(7, 4, "10.0.0.4", 9192), PLACED)
    assert others.submit(leader=None) == PLACED
    assert others.asked[-1] == 4
    assert others.known == [(4, "10.0.0.4", 9192)]


@pytest.mark.parametrize("named", [1, 3])
def test_whoever_is_named_in_error_is_asked_once(named: int) -> None:
    """The one who asks, or one who leads no more."""
    others = Controllers(
        ControllerElsewhere(7, named, "h", 1), NotController("not me"), NotController("nor me"), PLACED
    )
    assert others.submit(leader=None) == PLACED
    assert 1 not in others.asked


def test_a_controller_that_is_silent_is_not_waited_for_once_another_one_leads() -> None:
    async def main() -> None:
        asked: list[int] = []

        async def ask(node_id: int, message: msgspec.Struct, *, deadline_s: float) -> Answer:
            asked.append(node_id)
            if node_id == 2:
                await asyncio.sleep(deadline_s)
                raise TimeoutError
            return Answer(PLACED)

        channel = ControllerChannel(
            1, cast("ActiveController", None), ask, SimEntropy(stream(1)), lambda: (1, 2, 3), lambda *_: None
        )
        channel.on_leader_changed(2)
        loop = asyncio.get_running_loop()
        begin_s = loop.time()
        for after_s, leader in ((0.5, None), (1.0, 2), (1.5, None), (2.0, 3)):
            loop.call_later(after_s, channel.on_leader_changed, leader)
        assert await channel.submit(GROW, TopicPlaced, seconds_max=30.0) == PLACED
        assert asked == [2, 3], "the loss of a leader alone is no reason to give up what it may be doing"
        assert 2.0 <= loop.time() - begin_s < 2.5

    run(main)


def test_a_broker_that_stops_knows_what_it_may_have_asked_for() -> None:
    with pytest.raises(ControllerLost):
        Controllers(LOST).submit(is_closed=True)
    with pytest.raises(ShuttingDown):
        Controllers(NotController("not me")).submit(is_closed=True)
