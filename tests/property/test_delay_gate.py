"""A delay gate lets bursts through, keeps a standing queue short, and opens again."""

from __future__ import annotations

from collections import deque

from hypothesis import given
from hypothesis import strategies as st

from tidelog.broker.face.delay_gate import DelayGate

TARGET_S = 0.1
INTERVAL_S = 1.0
SERVICE_S = 0.01
REFUSAL_S = SERVICE_S / 100

steps = st.lists(st.tuples(st.floats(0.0, 0.5), st.floats(0.0, 3.0)), max_size=60)


@given(steps)
def test_nobody_who_waited_for_less_than_the_target_is_refused(waits: list[tuple[float, float]]) -> None:
    gate, now_s = DelayGate(TARGET_S, INTERVAL_S), 0.0
    for passed_s, waited_s in waits:
        now_s += passed_s
        if waited_s < TARGET_S:
            assert gate.admits(waited_s, now_s)


@given(steps)
def test_a_refusal_has_a_whole_interval_of_long_waits_behind_it_or_a_refusal(waits: list[tuple[float, float]]) -> None:
    gate, now_s = DelayGate(TARGET_S, INTERVAL_S), 0.0
    past: list[tuple[float, float, bool]] = []
    for passed_s, waited_s in waits:
        now_s += passed_s
        admitted = gate.admits(waited_s, now_s)
        past.append((now_s, waited_s, admitted))
        if not admitted:
            recent = [one for one in past if one[0] >= now_s - INTERVAL_S]
            older = [one for one in past[:-1] if one[0] <= now_s - INTERVAL_S]
            refused_lately = any(not one[2] for one in recent[:-1])
            assert refused_lately or (older and all(one[1] >= TARGET_S for one in recent))


@given(steps, st.floats(0.0, 0.099))
def test_a_request_that_finds_nobody_waiting_ends_the_shedding(waits: list[tuple[float, float]], own_s: float) -> None:
    gate, now_s = DelayGate(TARGET_S, INTERVAL_S), 0.0
    for passed_s, waited_s in waits:
        now_s += passed_s
        gate.admits(waited_s, now_s)
    assert gate.admits(own_s, now_s + own_s + 0.001)
    assert not gate.is_shedding


class Queue:
    """A single server, first come first served, at a multiple of what it can do."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.gate = DelayGate(TARGET_S, INTERVAL_S)
        self.served: list[tuple[float, float]] = []
        """When each was begun, and how long it had waited."""
        self.refused = 0
        self._waiting: deque[float] = deque()

    def run(self, load: float, for_s: float) -> None:
        arrives_s, until_s = self.now_s, self.now_s + for_s
        while self.now_s < until_s:
            while arrives_s <= self.now_s:
                self._waiting.append(arrives_s)
                arrives_s += SERVICE_S / load
            if not self._waiting:
                self.now_s = arrives_s
                continue
            waited_s = self.now_s - self._waiting.popleft()
            if self.gate.admits(waited_s, self.now_s):
                self.served.append((self.now_s, waited_s))
                self.now_s += SERVICE_S
            else:
                self.refused += 1
                self.now_s += REFUSAL_S


def test_below_what_can_be_done_nothing_is_refused() -> None:
    queue = Queue()
    queue.run(0.9, 60)
    assert (queue.refused, queue.gate.is_shedding) == (0, False)


def test_a_burst_of_less_than_an_interval_is_served_whole() -> None:
    queue = Queue()
    queue.run(3.0, 0.3)
    queue.run(0.1, 5)
    assert queue.refused == 0


def test_at_ten_times_what_can_be_done_four_fifths_of_it_are_done_and_waits_stay_short() -> None:
    queue = Queue()
    queue.run(10.0, 60)
    served = [(at_s, waited_s) for at_s, waited_s in queue.served if at_s >= 3 * INTERVAL_S]
    assert len(served) * SERVICE_S >= 0.8 * (60 - 3 * INTERVAL_S)
    assert max(waited_s for _, waited_s in served) <= TARGET_S + SERVICE_S
    already_refused = queue.refused
    queue.run(0.5, 60)
    late = [at_s for at_s, waited_s in queue.served if at_s > 60 + 2 * INTERVAL_S and waited_s >= TARGET_S]
    assert not late
    assert queue.refused - already_refused < 10 * TARGET_S / SERVICE_S * 2, "only what still waited"
