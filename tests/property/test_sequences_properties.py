"""A producer's numbering against a broker's table, with answers lost and requests late: nothing twice, no lies.

The sender's part is played by a few lines that follow its rules (number at the first try, repeat, rewind, bump). The
broker is a real `ProducerTable` over a list that is its log. Late copies of abandoned requests arrive when they like.
"""

from __future__ import annotations

from contextlib import suppress

from hypothesis import given
from hypothesis import strategies as st

from tidelog.model.errors import OutOfOrderSequence, ProducerFenced, TidelogError, TooLarge
from tidelog.model.ids import ProducerId, TopicPartition
from tidelog.model.producers import SEQUENCES, ProducerTable
from tidelog.producer.sequences import Sequences, Stamp
from tidelog.producer.verdicts import Verdict, expired, judge
from tidelog.transport.errors import ConnectFailed, NoAnswer

T0 = TopicPartition("t", 0)

Request = tuple[Stamp, int, int]
"""Numbers, record count, identity."""

tries = st.lists(
    st.sampled_from(["answered", "answer lost", "request lost", "delayed", "refused", "no connection"]),
    min_size=1,
    max_size=4,
)
requests = st.lists(st.tuples(st.integers(1, 5), tries, st.integers(0, 2)), max_size=30)


class Broker:
    def __init__(self) -> None:
        self.table = ProducerTable(10)
        self.log: list[int] = []

    def append(self, request: Request) -> None:
        """Raises as the table; a duplicate changes nothing."""
        stamp, count, identity = request
        if self.table.check(*stamp, count) is None:
            self.table.remember(*stamp, count, len(self.log), 0)
            self.log.append(identity)


def attempt(broker: Broker, request: Request, how: str, late: list[Request]) -> TidelogError | None:
    """One try; the error the producer sees."""
    match how:
        case "no connection":
            return ConnectFailed("")
        case "request lost":
            return NoAnswer("")
        case "delayed":
            late.append(request)
            return NoAnswer("")
        case "refused":
            return TooLarge("")
    try:
        broker.append(request)
    except TidelogError as error:
        return error
    return NoAnswer("") if how == "answer lost" else None


def deliver(
    sequences: Sequences, broker: Broker, count: int, identity: int, plan: list[str], late: list[Request]
) -> str:
    """The sender's rules; the last try's error stands if the plan ends. Returns what the caller is told."""
    stamp = sequences.assign(T0, count)
    uncertain = False
    for how in plan:
        error = attempt(broker, (stamp, count, identity), how, late)
        if error is None:
            return "delivered"
        verdict = judge(error, numbered=True, uncertain=uncertain)
        uncertain |= not error.definite
        assert verdict not in (Verdict.FATAL, Verdict.RENUMBER), "nobody loses anything here"
        if verdict is not Verdict.RETRY:
            break
    else:
        verdict = expired(uncertain=uncertain)
    if verdict is Verdict.FAIL:
        sequences.rewind(T0, stamp)
        return "surely not"
    sequences.bump(T0)
    return "unknown"


def check_run(script: list[tuple[int, list[str], int]], *, first_sequence: int = 0, may_forget: bool = False) -> None:
    sequences = Sequences()
    sequences.adopt(ProducerId(7))
    broker = Broker()
    late: list[Request] = []
    told: dict[int, str] = {}
    if first_sequence:
        broker.append((sequences.assign(T0, first_sequence), first_sequence, -1))
        broker.log.clear()
    for identity, (count, plan, late_count) in enumerate(script):
        told[identity] = deliver(sequences, broker, count, identity, plan, late)
        for _ in range(min(late_count, len(late))):  # they come out of order, and after newer ones
            with suppress(OutOfOrderSequence, ProducerFenced):
                broker.append(late.pop())
    delivered = [identity for identity, outcome in told.items() if outcome == "delivered"]
    assert len(set(broker.log)) == len(broker.log), "nothing twice"
    assert [identity for identity in broker.log if told[identity] == "delivered"] == delivered, "all there, in order"
    assert not [identity for identity in broker.log if told[identity] == "surely not"], "a definite error is true"


@given(requests)
def test_every_outcome_is_true_and_nothing_comes_twice(script: list[tuple[int, list[str], int]]) -> None:
    check_run(script)


@given(requests, st.integers(SEQUENCES - 20, SEQUENCES - 1))
def test_also_where_the_numbers_wrap(script: list[tuple[int, list[str], int]], first_sequence: int) -> None:
    check_run(script, first_sequence=first_sequence)
