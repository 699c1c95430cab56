"""The audit of a group finds each thing that can be wrong, and excuses no more than it says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from group_audit import Audit, Location, Ownership, Seen, Story

COUNT = 10
STABLE_S = 3.0
Log = list[tuple[dict[str, str], dict[str, Any] | None]]


def handed_out(at_s: float, *offsets: int, asked_s: float | None = None) -> dict[str, Any]:
    records = [(offset, 100 + offset) for offset in offsets]
    return {"what": "handed out", "at": at_s, "asked": at_s if asked_s is None else asked_s, "records": {"0": records}}


def assigned(at_s: float) -> dict[str, Any]:
    return {"what": "assigned", "at": at_s, "partitions": [0]}


def current(member: str, held: dict[int, int], revoking: dict[int, int] | None = None) -> Any:
    """A record of the group's log: partitions and the epochs in which they were given."""

    def topics(given: dict[int, int]) -> list[dict[str, Any]]:
        return [{"topic": "t", "topic_id": "x", "partitions": [*given], "epochs": [*given.values()]}] if given else []

    key = {"kind": "current", "group": "g", "member_id": member}
    return key, {**key, "member_epoch": 9, "held": topics(held), "revoking": topics(revoking or {})}


def offset(offset: int) -> Any:
    key = {"kind": "place", "group": "g", "topic": "t", "partition": 0}
    return key, {**key, "offset": offset, "member_id": "a"}


class Played:
    """Two consumers share a partition, one after the other; each test spoils something of it."""

    def __init__(self) -> None:
        self.story = Story("g")
        self.found: dict[Location, int] = {(0, offset): 100 + offset for offset in range(COUNT)}
        self.offsets = {0: COUNT}
        self.pauses: dict[str, list[tuple[float, float]]] = {}
        self.lines = [
            ("a", assigned(0)),
            ("a", handed_out(1, 0, 1, 2)),
            ("a", handed_out(2, 3, 4)),
            ("b", assigned(3)),
            ("b", handed_out(4, 3, 4, 5, 6)),
            ("b", handed_out(5, 7, 8, 9)),
        ]
        self.seen = [Seen(1.5, 0, 3), Seen(6.0, 0, 10)]
        self.log: Log = [current("a", {0: 1}), current("a", {}, {0: 1}), current("a", {}), current("b", {0: 2})]
        self.log += [offset(3), offset(3), offset(7)]
        self.stable_s = STABLE_S
        self.story.acknowledged.update(self.found)

    def audit(self) -> Audit:
        for member, line in self.lines:
            self.story.tell(member, line)
        self.story.offsets += self.seen
        for key, value in self.log:
            self.story.follow(key, value, 6.0)
        return self.story.audit(self.found, self.offsets, self.pauses, self.stable_s)


def test_all_is_well_and_what_came_twice_is_counted() -> None:
    audit = Played().audit()
    assert audit.is_good(STABLE_S)
    assert (audit.figures["records_handed_out"], audit.figures["records_repeated"]) == (COUNT, 2)
    assert audit.figures["assignments"] == 2


def lose(played: Played) -> None:
    played.lines[-1] = ("b", handed_out(5, 7, 9))


def never_know(played: Played) -> None:
    """A record that no producer was told of: it need not be handed out, but a offset may not pass it."""
    lose(played)
    del played.story.acknowledged[0, 8]


def commit_early(played: Played) -> None:
    played.seen[0] = Seen(0.9, 0, 3)


def commit_beyond(played: Played) -> None:
    played.seen[0] = Seen(1.5, 0, 4)


def stay_behind(played: Played) -> None:
    played.offsets[0] = COUNT - 1


def alter(played: Played) -> None:
    played.found[0, 7] = 7
    played.story.acknowledged[0, 7] = 7


def hand_out_late(played: Played) -> None:
    played.lines.append(("a", handed_out(4.5, 5)))


def hand_out_late_after_a_stop_before_the_call(played: Played) -> None:
    played.pauses["a"] = [(2.1, 4.2)]
    played.lines.append(("a", handed_out(4.5, 5, asked_s=4.3)))


def own_one_that_is_still_to_be_given_up(played: Played) -> None:
    del played.log[2]


def own_one_epoch_twice(played: Played) -> None:
    played.log[3] = current("b", {0: 1})


def go_back(played: Played) -> None:
    played.log.append(offset(6))


def settle_late(played: Played) -> None:
    played.stable_s = STABLE_S + 0.1


@pytest.mark.parametrize(
    ("spoil", "wrong"),
    [
        (lose, {"acknowledged_not_handed_out": 1, "offsets_beyond": 1}),
        (never_know, {"offsets_beyond": 1}),
        (commit_early, {"offsets_beyond": 1}),
        (commit_beyond, {"offsets_beyond": 1}),
        (stay_behind, {"partitions_behind": 1}),
        (alter, {"different": 1}),
        (hand_out_late, {"handed_out_by_two": 1}),
        (hand_out_late_after_a_stop_before_the_call, {"handed_out_by_two": 1}),
        (own_one_that_is_still_to_be_given_up, {"owned_twice": 1}),
        (own_one_epoch_twice, {"owned_twice": 1}),
        (go_back, {"offsets_back": 1}),
        (settle_late, {}),
    ],
)
def test_what_is_wrong_is_counted(spoil: Callable[[Played], None], wrong: dict[str, int]) -> None:
    played = Played()
    spoil(played)
    audit = played.audit()
    names = (
        "acknowledged_not_handed_out", "different", "offsets_beyond", "offsets_back", "partitions_behind",
        "owned_twice", "handed_out_by_two",
    )  # fmt: skip
    assert {name: audit.figures[name] for name in names if audit.figures[name]} == wrong
    assert not audit.is_good(STABLE_S)


def test_a_stop_in_the_act_excuses_one_handout() -> None:
    played = Played()
    played.pauses["a"] = [(2.1, 4.2)]
    played.lines += [("a", handed_out(4.3, 5, asked_s=2.05)), ("a", handed_out(4.5, 6, asked_s=4.4))]
    audit = played.audit()
    assert (audit.excused, len(audit.overlaps)) == (1, 1)


def test_who_has_a_partition_again_takes_another_turn() -> None:
    played = Played()
    played.lines += [("a", assigned(6)), ("a", handed_out(7, 9))]
    assert played.audit().is_good(STABLE_S)


def test_who_is_expelled_holds_nothing() -> None:
    ownership = Ownership("g")
    for key, value in [current("a", {0: 1}), (current("a", {})[0], None), current("b", {0: 2})]:
        ownership.apply(key, value)
    assert not ownership.conflicts


def test_a_run_in_which_nothing_happened_is_no_good() -> None:
    assert not Story("g").audit({}, {}, {}, 0.0).is_good(STABLE_S)


def test_the_table_says_it_all() -> None:
    table = Played().audit().table({"consumers killed": 2}, 1.5, STABLE_S)
    names, values = ([str(cell) for cell in column.cells] for column in table.columns)
    shown = dict(zip(names, values, strict=True))
    assert (shown["consumers killed"], shown["  more than once"]) == ("2", "2 (20.00%)")
    assert "yes" in shown["every acknowledged record at least once, and all as promised"]
