"""The voter set says whose an engine id is, and no message does."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tidelog.broker.consensus.messages import ElectionFrame, PaxosFrame
from tidelog.broker.consensus.routes import NODES_MAX, Routes
from tidelog.model.cluster import Voter
from tidelog.model.errors import ForeignSender
from tidelog.model.ports import Buffer
from tidelog.replication.paxos.messages import RecoverRequest
from tidelog.replication.paxos.numbers import LEARNER_BASE
from tidelog.replication.paxos.voters import VoterSet


def voters(*ids: tuple[int, int]) -> VoterSet:
    named = tuple(Voter(voter_id, node, f"disk{voter_id}", "10.0.0.1", 9192) for voter_id, node in ids)
    return VoterSet(named, 1 + max(voter_id for voter_id, _ in ids))


def make_routes() -> tuple[Routes, list[int]]:
    sent: list[int] = []

    def notify(node_id: int, frame: PaxosFrame | ElectionFrame, payloads: Sequence[Buffer]) -> None:
        sent.append(node_id)

    routes = Routes(notify)
    routes.set_voters(voters((1, 1), (2, 2), (3, 3)))
    return routes, sent


def test_a_message_from_a_node_that_is_not_the_voter_teaches_nothing() -> None:
    routes, sent = make_routes()
    with pytest.raises(ForeignSender, match="node 4 spoke under the id 2, which is that of node 2"):
        routes.heard(2, 4)
    routes.post(2, PaxosFrame(1, 2, RecoverRequest()))
    assert sent == [2]
    assert routes.ids_on(4) == [] and routes.id_of(4) == LEARNER_BASE + 4


def test_a_learner_goes_by_the_id_of_its_node() -> None:
    routes, _ = make_routes()
    routes.heard(LEARNER_BASE + 4, 4)
    with pytest.raises(ForeignSender):
        routes.heard(LEARNER_BASE + 4, 5)


def test_an_id_that_no_set_has_named_is_its_speakers_until_one_does() -> None:
    routes, sent = make_routes()
    routes.heard(7, 4)
    routes.post(7, PaxosFrame(1, 7, RecoverRequest()))
    assert sent == [4] and routes.id_of(4) == 7
    routes.set_voters(voters((2, 2), (3, 3), (7, 5)))
    routes.post(7, PaxosFrame(2, 7, RecoverRequest()))
    assert sent == [4, 5]
    with pytest.raises(ForeignSender):
        routes.heard(7, 4)


def test_an_id_is_its_nodes_for_ever() -> None:
    routes, _ = make_routes()
    routes.set_voters(voters((2, 2), (3, 3), (4, 4)))
    with pytest.raises(ForeignSender):
        routes.heard(1, 4)
    routes.heard(1, 1)  # it has not heard yet that it votes no more


def test_what_is_remembered_of_unknown_ids_is_bounded() -> None:
    routes, _ = make_routes()
    for number in range(2 * NODES_MAX):
        routes.heard(100 + number, 1_000 + number)
    assert sum(routes.node_of(100 + number) is not None for number in range(2 * NODES_MAX)) == NODES_MAX
    assert routes.node_of(1) == 1
