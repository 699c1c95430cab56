"""Tests that a dump of a journal shows the positions that a batch follows by their numbers, not as they are packed."""

from __future__ import annotations

import msgspec
import pytest

from tidelog.broker.consensus.stored import Identity, encode_identity
from tidelog.broker.paxos.journal import Floor
from tidelog.cli.log_slots import explained
from tidelog.model.levels import LEVEL_MAX
from tidelog.replication.paxos.predecessors import DISTANCE_MAX, name
from tidelog.replication.paxos.state import Kind, Value
from tidelog.storage.dump import Dumped, Fields

POSITION = 5_000


def shown(value: Value) -> Fields:
    """Returns what is shown of a value that was accepted at `POSITION`."""
    identity = encode_identity(Identity(value, learned=False), LEVEL_MAX).hex()
    fields: Fields = {"position": POSITION, "identity": identity, "payload_digest": value.digest.hex()}
    return explained(Dumped("0.log", 0, "SLOT", fields)).fields


@pytest.mark.parametrize("named", [[POSITION - 1], [POSITION - DISTANCE_MAX, 4_000, 4_001, 4_990, 4_999]])
def test_a_batch_that_names_others_shows_their_positions(named: list[int]) -> None:
    fields = shown(Value(Kind.APPEND, 65_537, 40, 3, bytes(16), begin=name(POSITION, named)))
    assert fields["follows"] == named
    assert (fields["offset"], fields["count"], fields["state"]) == (40, 3, "accepted")
    assert not fields.keys() & {"begin", "unbroken_from"}


def test_a_batch_in_total_order_shows_from_where_on_the_log_has_to_be_unbroken() -> None:
    fields = shown(Value(Kind.APPEND, 65_537, 40, 3, bytes(16), begin=4_990))
    assert fields["unbroken_from"] == 4_990 and "follows" not in fields


@pytest.mark.parametrize("kind", [Kind.APPEND, Kind.BARRIER, Kind.NOP])
def test_a_value_that_needs_nothing_shows_nothing_of_it(kind: Kind) -> None:
    assert not shown(Value(kind, 65_537)).keys() & {"follows", "unbroken_from", "begin"}


def test_a_truncate_shows_where_the_log_begins() -> None:
    assert shown(Value(Kind.TRUNCATE, 65_537, begin=4_000))["begin"] == 4_000


def floor_shown(floor: Floor) -> Fields:
    content = msgspec.msgpack.encode(floor).hex()
    return explained(Dumped("0.log", 0, "FLOOR", {"position": floor.position, "floor": content})).fields


def test_a_floor_shows_the_positions_that_have_lapsed_if_there_are_any() -> None:
    assert floor_shown(Floor(POSITION, 65_537, 43, lapsed=(4_990, 4_992)))["lapsed"] == [4_990, 4_992]
    assert "lapsed" not in floor_shown(Floor(POSITION, 65_537, 43))
