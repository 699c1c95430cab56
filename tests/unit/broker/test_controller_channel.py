"""The way to the controller: what is repeated, and what whoever asked is told in the end."""

from __future__ import annotations

from typing import cast

import msgspec
import pytest

from tidelog.broker.controller.active import ActiveController
from tidelog.broker.controller.commands import AddPartitions, Command, Done, TopicPlaced
from tidelog.broker.controller_channel import ControllerChannel
from tidelog.model.errors import ControllerLost, NotController, ShuttingDown, UnknownTopic
from tidelog.sim.environment import SimEntropy
from tidelog.sim.loop import run
from tidelog.sim.seeds import stream
from tidelog.transport.peer import Answer, PeerLost

GROW = AddPartitions("t", 1, 3)
LOST = PeerLost("the connection broke")
UNKNOWN = UnknownTopic("there is no topic t")
PLACED = TopicPlaced(7, "ab", [[1]])


class Controllers:
    """Other brokers, that answer as they are told to."""

    def __init__(self, *answers: msgspec.Struct | Exception) -> None:
        self.asked: list[int] = []
        self._answers = list(answers)

    async def ask(self, node_id: int, message: msgspec.Struct, *, deadline_s: float) -> Answer:
        self.asked.append(node_id)
        answer = self._answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return Answer(answer)

    def submit(self, command: Command = GROW, *, leader: int | None = 2, is_closed: bool = False) -> TopicPlaced | Done:
        async def main() -> TopicPlaced | Done:
            mine = cast("ActiveController", None)  # this broker does not lead, so its own is not asked
            channel = ControllerChannel(1, mine, self.ask, SimEntropy(stream(1)), lambda: (1, 2, 3))
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


def test_a_broker_that_stops_knows_what_it_may_have_asked_for() -> None:
    with pytest.raises(ControllerLost):
        Controllers(LOST).submit(is_closed=True)
    with pytest.raises(ShuttingDown):
        Controllers(NotController("not me")).submit(is_closed=True)
