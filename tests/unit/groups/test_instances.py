"""REST consumer instances, as records of their group."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.groups.desk import Desk
from tidelog.model.errors import IllegalState, InstanceExists, InvalidRequest, UnknownInstance
from tidelog.model.groups import (
    ConfigureInstance,
    CreateInstance,
    DeleteInstance,
    DescribeInstance,
    GroupDone,
    InstanceDescription,
    InstanceListed,
    InstanceSettings,
    InstancesListed,
    ListInstances,
    grouped,
)

SETTINGS = InstanceSettings(format="json", reset="earliest", auto_commit=True, fetch_bytes_min=7, request_timeout_ms=9)
ASSIGNED = grouped([("t", 0), ("u", 1)])


def create(desk: Desk, name: str = "i") -> None:
    desk.ask(CreateInstance(group="g", instance=name, settings=SETTINGS), GroupDone)


def configure(desk: Desk, **wanted: Any) -> None:
    desk.ask(ConfigureInstance(group="g", instance="i", **wanted), GroupDone)


def described(desk: Desk, name: str = "i") -> InstanceDescription:
    return desk.ask(DescribeInstance(group="g", instance=name), InstanceDescription)


def test_it_is_as_it_was_created(desk: Desk) -> None:
    create(desk)
    assert described(desk) == InstanceDescription(SETTINGS)
    assert not described(desk).is_subscribed


@pytest.mark.parametrize("wanted", [{"topics": ("t", "u")}, {"pattern": "t.*"}, {"assigned": ASSIGNED}])
def test_it_reads_what_it_is_told_to(desk: Desk, wanted: dict[str, Any]) -> None:
    create(desk)
    configure(desk, **wanted)
    assert described(desk) == InstanceDescription(SETTINGS, **wanted)
    entries = len(desk.log)
    configure(desk, **wanted)
    assert len(desk.log) == entries
    configure(desk)
    assert described(desk) == InstanceDescription(SETTINGS)


def test_it_subscribes_or_is_assigned_but_not_both(desk: Desk) -> None:
    create(desk)
    configure(desk, topics=("t",))
    with pytest.raises(IllegalState):
        configure(desk, assigned=ASSIGNED)
    configure(desk)
    configure(desk, assigned=ASSIGNED)
    for wanted in ({"topics": ("t",)}, {"pattern": "t"}):
        with pytest.raises(IllegalState):
            configure(desk, **wanted)
    assert described(desk).assigned == ASSIGNED


def test_a_name_is_taken_until_it_is_deleted(desk: Desk) -> None:
    create(desk)
    with pytest.raises(InstanceExists):
        create(desk)
    desk.ask(DeleteInstance(group="g", instance="i"), GroupDone)
    create(desk)


def test_what_is_not_there_can_only_be_created(desk: Desk) -> None:
    requests = (
        DeleteInstance(group="g", instance="i"),
        DescribeInstance(group="g", instance="i"),
        ConfigureInstance(group="g", instance="i", topics=("t",)),
    )
    for request in requests:
        with pytest.raises(UnknownInstance):
            desk.ask(request, GroupDone)


@pytest.mark.parametrize("name", ["", "a b", "x" * 256, "a/b"])
def test_names_are_names(desk: Desk, name: str) -> None:
    with pytest.raises(InvalidRequest):
        create(desk, name)


def test_a_pattern_is_a_pattern(desk: Desk) -> None:
    create(desk)
    with pytest.raises(InvalidRequest):
        configure(desk, pattern="(")
    assert not described(desk).pattern


def test_all_are_listed(desk: Desk) -> None:
    for name in ("b", "a"):
        create(desk, name)
    listed = desk.ask(ListInstances(partition=0), InstancesListed)
    assert listed.instances == (InstanceListed("g", "a"), InstanceListed("g", "b"))


def test_its_group_may_come_and_go(desk: Desk) -> None:
    """An instance that reads nothing is no member; a group is there because of members and committed offsets."""
    create(desk)
    desk.join("m", "t")
    desk.leave("m")
    desk.now = desk.now._replace(wall_ms=desk.now.wall_ms + 10**12)
    desk.tidy()
    assert described(desk) == InstanceDescription(SETTINGS)
