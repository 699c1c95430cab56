"""How a group with members is shown."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from msgspec import structs

from tidelog.admin import ConsumerDescription, GroupDescription, LagDescription, TopicOwned
from tidelog.admin.group_results import GroupListing
from tidelog.cli.group import Described, print_description, print_groups

HEAD = "group billing: {state}, 2 members, at least 1,234 behind, assignor uniform, epoch 7, coordinator 2"


def member(name: str, host: str, owned: Sequence[int], target: Sequence[int]) -> ConsumerDescription:
    topics = [(TopicOwned("orders", tuple(numbers)),) if numbers else () for numbers in (owned, target)]
    return ConsumerDescription(name, None, "app", host, None, 7, ("orders",), "", topics[0], topics[1])


def described(state: str, *members: ConsumerDescription, **other: Any) -> Described:
    group = GroupDescription("billing", False, "uniform", state, "CONSUMER", 2, 7, 2, consumers=members)
    group = structs.replace(group, **other)
    lags = [
        LagDescription("orders", 0, 10, 1244, 1234, "m1", None, "app"),
        LagDescription("orders", 10, 5, None, None, "", None, ""),
    ]
    return Described(group, lags, [("orders", 1, 99, "m1")])


def test_members_and_partitions_are_two_tables(capsys: pytest.CaptureFixture[str]) -> None:
    print_description(
        described("STABLE", member("m1", "10.0.0.1", [0, 1, 2, 4], [0, 1, 2, 4]), member("m2", "", [], []))
    )
    assert capsys.readouterr().out.splitlines() == [
        HEAD.format(state="stable"),
        "",
        "MEMBER  INSTANCE  CLIENT  HOST      EPOCH  PARTITIONS",
        "m1      -         app     10.0.0.1      7  orders:0-2,4",
        "m2      -         app     -             7  -",
        "",
        "TOPIC   PARTITION  OFFSET   END   LAG  MEMBER",
        "orders          0      10  1244  1234  m1",
        "orders          1       -    99     -  m1",
        "orders         10       5     -     -  -",
    ]


def test_names_command_nothing_to_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    name = "bill\x1b[2Jing\n"
    print_groups([GroupListing(name, False, "uniform", "STABLE", "CONSUMER", 1, 7, 2)])
    print_description(described("STABLE", member("m\x07", "h", [], []), consumer_group_id=name))
    shown = capsys.readouterr().out
    assert shown.count("bill\ufffd[2Jing\ufffd") == 2 and "m\ufffd" in shown
    assert not set("\x1b\x07") & set(shown)


def test_while_partitions_move_it_is_shown_who_will_have_them(capsys: pytest.CaptureFixture[str]) -> None:
    print_description(described("RECONCILING", member("m1", "h", [0, 1], [0]), member("m2", "h", [], [1])))
    assert capsys.readouterr().out.splitlines()[2:5] == [
        "MEMBER  INSTANCE  CLIENT  HOST  EPOCH  PARTITIONS  TO HAVE",
        "m1      -         app     h         7  orders:0-1  orders:0",
        "m2      -         app     h         7  -           orders:1",
    ]


@pytest.mark.parametrize(("protocol", "shown"), [("range", "range"), ("", "-")])
def test_a_classic_group_has_a_protocol_and_a_generation(
    capsys: pytest.CaptureFixture[str], protocol: str, shown: str
) -> None:
    classic = {"type": "CLASSIC", "protocol_type": "consumer", "partition_assignor": protocol}
    print_description(described("PREPARING_REBALANCE", **classic))
    assert capsys.readouterr().out.splitlines()[0] == (
        "group billing: preparing_rebalance, 2 members, at least 1,234 behind, classic consumer, "
        f"protocol {shown}, generation 7, coordinator 2"
    )


def test_groups_of_both_kinds_are_one_list(capsys: pytest.CaptureFixture[str]) -> None:
    print_groups(
        [
            GroupListing("billing", False, "uniform", "STABLE", "CONSUMER", 2, 7, 1),
            GroupListing("old", False, "range", "EMPTY", "CLASSIC", 0, 3, 2, "consumer"),
            GroupListing("tool", True, "", "EMPTY", "CONSUMER", 0, 0, 2),
        ]
    )
    assert capsys.readouterr().out.splitlines() == [
        "GROUP    TYPE      STATE   MEMBERS  ASSIGNOR  COORDINATOR",
        "billing  consumer  stable        2  uniform             1",
        "old      classic   empty         0  range               2",
        "tool     consumer  empty         0  -                   2",
    ]
