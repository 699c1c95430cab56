"""An honest history is valid; and one lie in it, of any kind, is found and called by its name."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.unit.checker.honest import Honest
from tidelog.checker import Op, decode, encode, judge
from tidelog.checker.operations import Poll, Send, View

Changed = dict[int, Op]
"""Operations by their index, to be put in the place of others."""

histories = st.builds(lambda rng: Honest(rng, 120).operations, st.randoms(use_true_random=False))


@given(histories)
def test_an_honest_history_is_valid(history: list[Op]) -> None:
    assert not judge(history).anomalies
    assert decode(encode(history)) == history


# -- lies: each yields all the ways to tell it of a history ----------------------------------------------------------


def polls(history: list[Op]) -> Iterator[tuple[Op, Poll, str, list[tuple[int, str]]]]:
    """Successful ones, with what they returned."""
    for op in history:
        for part in op.value:
            if isinstance(part, Poll) and op.type == "ok":
                [(key, records)] = part.records.items()
                yield op, part, key, records


def sends(history: list[Op]) -> Iterator[tuple[Op, Op, list[Send]]]:
    """Successful ones: invocation, completion, records."""
    for op in history:
        if op.f == "send" and op.type == "ok":
            assert op.invocation is not None
            yield history[op.invocation], op, [part for part in op.value if isinstance(part, Send)]


def instead(op: Op, key: str, records: list[tuple[int, str]]) -> Changed:
    return {op.index: replace(op, value=[Poll({key: records})])}


def shows_another_value(history: list[Op]) -> Iterator[Changed]:
    for op, _, key, records in polls(history):
        if len(records) > 1:
            yield instead(op, key, [*records[:-1], (records[-1][0], records[0][1])])


def shows_a_value_again(history: list[Op]) -> Iterator[Changed]:
    for op, _, key, records in polls(history):
        if op.process == "end" and 0 < len(records) < 5:
            yield instead(op, key, [*records, (records[-1][0] + 1, records[0][1])])


def refuses_what_is_there(history: list[Op]) -> Iterator[Changed]:
    for _, op, _ in sends(history):
        yield {op.index: replace(op, type="fail", value=[])}


def invents(history: list[Op]) -> Iterator[Changed]:
    for op, _, key, records in polls(history):
        if op.process == "end" and len(records) < 5:
            yield instead(op, key, [*records, (records[-1][0] + 1 if records else 0, "invented")])


def shows_to_nobody(history: list[Op]) -> Iterator[Changed]:
    for _, _, sent in sends(history):
        value = sent[0].value
        yield {
            op.index: replace(op, value=[without(part, value) for part in op.value]) for op in history if op.f != "send"
        }


def without(part: object, value: str) -> Poll | View | str:
    if isinstance(part, Poll):
        return Poll({key: [one for one in records if one[1] != value] for key, records in part.records.items()})
    if isinstance(part, View):
        return View(
            part.key, part.start, part.high_watermark, part.end, [one for one in part.records if one[1] != value]
        )
    assert isinstance(part, str)
    return part


def leaves_out(history: list[Op]) -> Iterator[Changed]:
    for op, _, key, records in polls(history):
        if len(records) > 2:
            yield instead(op, key, [records[0], *records[2:]])


def goes_backwards(history: list[Op]) -> Iterator[Changed]:
    for op, _, key, records in polls(history):
        if len(records) > 1:
            yield instead(op, key, [records[1], records[0], *records[2:]])


def later_polls(history: list[Op]) -> Iterator[tuple[Op, str, list[tuple[int, str]]]]:
    """Of a process that goes on with what it polled before."""
    for op, _, key, records in polls(history):
        if op.process == "end" and records and records[0][0] > 0:
            yield op, key, records


def leaves_out_between_polls(history: list[Op]) -> Iterator[Changed]:
    for op, key, records in later_polls(history):
        if len(records) > 1:
            yield instead(op, key, records[1:])


def polls_again(history: list[Op]) -> Iterator[Changed]:
    for op, key, records in later_polls(history):
        yield (
            instead(op, key, [records[0], *records]) if len(records) == 1 else instead(op, key, records[-1:] + records)
        )


def repeats_the_last(history: list[Op]) -> Iterator[Changed]:
    before: dict[str, tuple[int, str]] = {}
    for op, _, key, records in polls(history):
        if op.process == "end" and records:
            if key in before:
                yield instead(op, key, [before[key], *records])
            before[key] = records[-1]


def appends_in_another_order(history: list[Op]) -> Iterator[Changed]:
    last: dict[tuple[str, str], tuple[Op, Op]] = {}
    for invocation, op, sent in sends(history):
        place = op.process, sent[0].key
        if place in last:
            earlier = last[place]
            yield {
                earlier[0].index: replace(earlier[0], value=invocation.value),
                earlier[1].index: replace(earlier[1], value=op.value),
                invocation.index: replace(invocation, value=earlier[0].value),
                op.index: replace(op, value=earlier[1].value),
            }
        last[place] = invocation, op


def turns_a_batch_around(history: list[Op]) -> Iterator[Changed]:
    for invocation, op, sent in sends(history):
        if len(sent) > 1:
            turned = invocation.value[::-1]
            yield {invocation.index: replace(invocation, value=turned), op.index: replace(op, value=[*sent[::-1]])}


def tears_a_batch(history: list[Op]) -> Iterator[Changed]:
    """The middle of the batch was somebody else's."""
    for invocation, op, sent in sends(history):
        if len(sent) == 3:
            stranger = len(history)
            yield {
                invocation.index: replace(invocation, value=[invocation.value[0], invocation.value[2]]),
                op.index: replace(op, value=[sent[0], sent[2]]),
                stranger: Op(stranger, 0.0, "stranger", "invoke", "send", [sent[1]]),
            }


def acknowledged(history: list[Op]) -> set[tuple[str, int | None]]:
    return {(send.key, send.offset) for _, _, sent in sends(history) for send in sent}


def hides_what_is_acknowledged(history: list[Op]) -> Iterator[Changed]:
    known = acknowledged(history)
    for op, part, key, records in polls(history):
        if op.process == "end" and records and part.ends[key] == records[-1][0] + 1 and (key, records[-1][0]) in known:
            yield {op.index: replace(op, value=[Poll({key: records[:-1]}, {key: records[-1][0]})])}


def views(history: list[Op]) -> Iterator[tuple[Op, View]]:
    for op in history:
        for part in op.value:
            if isinstance(part, View):
                yield op, part


def loses_on_one_replica(history: list[Op]) -> Iterator[Changed]:
    known = acknowledged(history)
    for op, view in views(history):
        for record in view.records:
            if (view.key, record[0]) in known:
                yield {op.index: replace(op, value=[without(view, record[1])])}


def differs_on_one_replica(history: list[Op]) -> Iterator[Changed]:
    for op, view in views(history):
        if view.records:
            other = View(
                view.key, 0, view.high_watermark, view.end, [*view.records[:-1], (view.records[-1][0], "other")]
            )
            yield {op.index: replace(op, value=[other])}


def forgets_its_end(history: list[Op]) -> Iterator[Changed]:
    for op, view in views(history):
        if view.records:
            shorter = View(view.key, 0, view.high_watermark - 1, view.end - 1, view.records[:-1])
            yield {op.index: replace(op, value=[shorter])}


Lie = Callable[[list[Op]], Iterator[Changed]]
LIES: list[tuple[Lie, str]] = [
    (shows_another_value, "inconsistent-offsets"),
    (shows_a_value_again, "duplicate"),
    (refuses_what_is_there, "G1a"),
    (invents, "phantom"),
    (shows_to_nobody, "lost-write or unseen"),
    (leaves_out, "int-poll-skip"),
    (goes_backwards, "int-nonmonotonic-poll"),
    (leaves_out_between_polls, "poll-skip"),
    (polls_again, "int-nonmonotonic-poll"),
    (repeats_the_last, "nonmonotonic-poll"),
    (appends_in_another_order, "nonmonotonic-send"),
    (turns_a_batch_around, "int-nonmonotonic-send"),
    (tears_a_batch, "int-send-skip"),
    (hides_what_is_acknowledged, "stale-read"),
    (loses_on_one_replica, "acknowledged-missing"),
    (loses_on_one_replica, "gap"),
    (differs_on_one_replica, "unequal-replicas"),
    (forgets_its_end, "unequal-replicas"),
]


@pytest.mark.parametrize(("lie", "kind"), LIES)
@given(history=histories, rng=st.randoms(use_true_random=False))
@settings(max_examples=15)
def test_a_lie_is_found_and_named(lie: Lie, kind: str, history: list[Op], rng: Random) -> None:
    ways = [*lie(history)]
    assume(ways)
    changed = rng.choice(ways)
    told = [changed.get(op.index, op) for op in history] + [
        op for index, op in changed.items() if index >= len(history)
    ]
    found = judge(told).kinds
    assert any(name in found for name in kind.split(" or ")), found
