"""Verdicts, and histories as lines of JSON."""

from __future__ import annotations

from string import ascii_letters

import pytest

from tests.unit.checker.story import K, Story, in_order
from tidelog.checker import Op, decode, encode, judge
from tidelog.checker.operations import Damage, Poll, Prefix, Send, Unread, View

BEFORE_UNREAD = b"""\
{"index":0,"time":0.0,"process":"p","type":"invoke","f":"send","value":[["send","t-0",null,"a"]]}
{"index":1,"time":1.0,"process":"p","type":"ok","f":"send","value":[["send","t-0",0,"a"]],"invocation":0,"epoch":3}
{"index":2,"time":2.0,"process":"w","type":"info","f":"damage","value":[["damage","t-0",[1]]]}
{"index":3,"time":3.0,"process":"w","type":"info","f":"prefix","value":[["prefix","t-0",0,0]]}
{"index":4,"time":4.0,"process":"q","type":"invoke","f":"poll"}
{"index":5,"time":5.0,"process":"q","type":"ok","f":"poll","value":[["poll",{"t-0":[[0,"a"],[2,"a"]]},{}]]}
{"index":6,"time":6.0,"process":"w","type":"info","f":"view","value":[["view","t-0",0,3,3,[[0,"a"],[2,"a"]],[1],false]]}
"""
"""A history that was written before a log could go on behind what is unread."""


def busy(*, batches: int = 100, faults: int = 1) -> Story:
    story = Story()
    for number in range(batches):
        story.send("producer", number, f"v{number}")
        story.poll("reader", (number, f"v{number}"))
    for number in range(faults):
        story.tell("fault", f"killed {number}")
    return story


def test_enough_happened_and_nothing_is_wrong() -> None:
    verdict = judge(busy().recorder.operations)
    assert (verdict.word, verdict.acknowledged, verdict.polls, verdict.faults) == ("valid", 100, 100, 1)


@pytest.mark.parametrize(("batches", "faults", "reasons"), [(99, 1, 2), (100, 0, 1), (0, 0, 3)])
def test_what_proves_nothing_is_void(batches: int, faults: int, reasons: int) -> None:
    verdict = judge(busy(batches=batches, faults=faults).recorder.operations)
    assert verdict.word == "void"
    assert len(verdict.void) == reasons


def test_a_run_without_faults_may_be_wanted() -> None:
    assert judge(busy(faults=0).recorder.operations, faults_min=0).word == "valid"


def test_what_is_wrong_is_wrong_however_little_happened() -> None:
    story = Story()
    story.poll("reader", (0, "ghost"))
    assert judge(story.recorder.operations).word == "invalid"


def test_lines_of_json_and_back() -> None:
    story = in_order(Story(), ascii_letters)
    story.send("other", None, "x1", key="u-3", type_="fail", guarantee="none")
    story.poll("reader", (0, "a"), end=7, epoch=4, replica=2, rebalanced=(K,))
    story.txn("t", Send(K, 52, "!"), Poll({K: [(1, "b")]}))
    story.tell("damage", Damage(K, [1]))
    story.tell("unread", Unread(K, [1, 2]))
    story.tell("prefix", Prefix(K, 2, 1))
    story.tell("fault", "killed 2")
    story.recorder.tell("view", [View(K, 0, 1, 1, [(0, "a")], [1])], replica=3)
    lines = encode(story.recorder.operations)
    assert decode(lines) == story.recorder.operations
    assert decode(lines.replace(b"\n", b"\n\n")) == story.recorder.operations


def test_an_old_history_reads_as_ever() -> None:
    assert encode(decode(BEFORE_UNREAD)) == BEFORE_UNREAD
    assert judge(decode(BEFORE_UNREAD)).kinds == {"duplicate": 1}


def test_a_line_as_people_write_it() -> None:
    line = b'{"index":0,"time":1,"process":"p","type":"ok","f":"send","value":[["send","t-0",null,"a"]]}'
    assert decode(line) == [Op(0, 1.0, "p", "ok", "send", [Send("t-0", None, "a")])]


@pytest.mark.parametrize("line", [b"{", b'{"index":0}', b'{"index":0,"time":1,"process":"p","type":"ok","f":"jump"}'])
def test_a_line_that_is_no_operation(line: bytes) -> None:
    with pytest.raises(ValueError, match="line 2"):
        decode(b"\n" + line)


def test_a_completion_without_a_number_ends_what_its_process_began() -> None:
    ops = [
        Op(0, 0.0, "p", "invoke", "send", [Send(K, None, "a")]),
        Op(1, 1.0, "q", "invoke", "poll"),
        Op(2, 2.0, "p", "ok", "send", [Send(K, 0, "a")]),
        Op(3, 3.0, "q", "ok", "poll", [Poll({K: [(0, "a")]})]),
    ]
    verdict = judge(ops)
    assert (verdict.acknowledged, verdict.polls, verdict.anomalies) == (1, 1, ())


def test_a_completion_of_nothing() -> None:
    with pytest.raises(ValueError, match="operation 1 completes nothing"):
        judge([Op(1, 1.0, "p", "ok", "poll", [])])


def test_a_value_that_is_sent_twice_cannot_be_judged() -> None:
    story = in_order(Story())
    story.send("other", 6, "a")
    with pytest.raises(ValueError, match="unique"):
        story.kinds()


def test_what_is_wrong_is_told_in_words() -> None:
    story = in_order(Story(), "ab")
    story.poll("reader", (2, "ghost"))
    [anomaly] = judge(story.recorder.operations).anomalies
    assert str(anomaly) == "phantom: t-0: ghost at 2 was never sent there, and seen by poll 6 of reader"
