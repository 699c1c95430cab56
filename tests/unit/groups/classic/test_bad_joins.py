"""Joins that make no sense, or too much."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.unit.groups.classic.classic_desk import SETTINGS, ClassicDesk
from tidelog.groups.classic.members import GROUP_BYTES_MAX, METADATA_BYTES_MAX, PROTOCOLS_MAX
from tidelog.model.classic_groups import Protocol
from tidelog.model.errors import (
    GroupFull,
    InconsistentProtocol,
    InvalidGroupName,
    InvalidRequest,
    InvalidSessionTimeout,
    UnknownMember,
)

LONG = "x" * 256


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        ({"group": ""}, InvalidGroupName),
        ({"group": LONG}, InvalidGroupName),
        ({"session_timeout_ms": 0}, InvalidSessionTimeout),
        ({"session_timeout_ms": 1_800_001}, InvalidSessionTimeout),
        ({"protocol_type": ""}, InconsistentProtocol),
        ({"protocol_type": LONG}, InvalidRequest),
        ({"protocols": ()}, InconsistentProtocol),
        ({"protocols": (Protocol("a", b""), Protocol("a", b""))}, InvalidRequest),
        ({"protocols": tuple(Protocol(str(n), b"") for n in range(PROTOCOLS_MAX + 1))}, InvalidRequest),
        ({"protocols": (Protocol(LONG, b""),)}, InvalidRequest),
        ({"protocols": (Protocol("a", bytes(METADATA_BYTES_MAX + 1)),)}, InvalidRequest),
        ({"member_id": LONG}, InvalidRequest),
        ({"member_id": "nobody"}, UnknownMember),
        ({"instance_id": LONG}, InvalidRequest),
        ({"client_id": LONG}, InvalidRequest),
        ({"client_host": LONG}, InvalidRequest),
    ],
    ids=str,
)
def test_a_join_that_makes_no_sense_is_refused(desk: ClassicDesk, wrong: dict[str, Any], error: type) -> None:
    assert desk.ask_join(**wrong).refusal is error
    assert not desk.shard.groups


def test_what_all_members_say_has_to_fit_into_a_record(desk: ClassicDesk) -> None:
    big = (Protocol("range", bytes(METADATA_BYTES_MAX)),)
    first, second = desk.stable(2, protocols=big)
    assert desk.ask_join(protocols=big).refusal is GroupFull
    small = (Protocol("range", b""),)
    third, _ = desk.enter(protocols=small)
    for member_id in (first, second):
        desk.ask_join(member_id, protocols=big)
    assert desk.ask_join(third, protocols=big).refusal is GroupFull
    assert len(desk.classic.members) == 3
    assert max(len(value or b"") for _, value in desk.log) < GROUP_BYTES_MAX + 1_000
    desk.let_go(first)
    desk.ask_join(second, protocols=big)
    assert desk.ask_join(third, protocols=big).joined.generation == 4


def test_so_have_names_of_whatever_characters(desk: ClassicDesk) -> None:
    odd = "\0" * 100
    desk.stable(1, client_id=odd, client_host="é" * 100)
    kept = max(len(value or b"") for _, value in desk.log)
    assert desk.classic.kept_size <= kept <= desk.classic.kept_size + 200


def test_ids_that_nobody_joins_with_are_bounded_like_members(desk: ClassicDesk) -> None:
    desk.settings = replace(SETTINGS, classic_members_max=3)
    for _ in range(3):
        desk.ask_join()
    assert desk.ask_join().refusal is GroupFull
    desk.pass_time(10)
    assert desk.stable(1)


def test_a_member_that_would_be_waited_for_for_ever_is_waited_for_a_day(desk: ClassicDesk) -> None:
    desk.stable(1, rebalance_timeout_ms=2**31 - 1)
    assert desk.classic.rebalance_s == 86_400


def test_an_id_that_was_given_away_belongs_to_no_instance(desk: ClassicDesk) -> None:
    drawn = desk.ask_join().told.member_id
    assert desk.ask_join(drawn, instance_id="i").refusal is UnknownMember


def test_groups_are_bounded(desk: ClassicDesk) -> None:
    desk.settings = replace(SETTINGS, groups_max=1)
    desk.stable(1)
    assert desk.ask_join(group="h").refusal is GroupFull


def test_what_is_counted_of_the_members_is_of_those_that_there_are(desk: ClassicDesk) -> None:
    first, second = desk.stable(2)
    for number in range(5):
        both = (Protocol("range", b""), Protocol(f"other {number}", bytes(number)))
        desk.ask_join(first, protocols=both)
        desk.ask_join(second, protocols=both)
    assert sorted(desk.classic.supporters) == ["other 4", "range"]
    members = desk.classic.members.values()
    assert desk.classic.size == sum(member.size for member in members)
    assert desk.classic.kept_size == sum(member.kept_size for member in members)
    assert desk.classic.awaiting == 0
    desk.let_go(first, second)
    assert (desk.classic.size, desk.classic.kept_size, desk.classic.awaiting, desk.classic.supporters) == (0, 0, 0, {})
