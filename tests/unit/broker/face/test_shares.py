"""A broker lets its clients use no more than rate x time, a burst, and the request that passed last."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.broker.face.shares import BURST_S, DELAY_S_MAX, Client, Shares
from tidelog.model.access import Principal
from tidelog.model.errors import QuotaExceeded, TooManyConnections
from tidelog.model.quotas import DEFAULT, Entity, Quota

KEY = "producer_byte_rate"
ALICE, BOB = Principal("User", "alice"), Principal("User", "bob")
ALICES = Client(ALICE)
T = TypeVar("T")


class World:
    """A clock that its sleepers move."""

    def __init__(self, *quotas: Quota, buckets_max: int = 100) -> None:
        self.now_s = 100.0
        self.slept: list[float] = []
        self.shares = Shares(lambda: self.now_s, buckets_max, self.sleep)
        self.shares.follow(quotas)

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)

    def use(self, amount: float, caller: Client = ALICES, key: str = KEY) -> float:
        return run(self.shares.use(key, caller, amount))


def run(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(work)


def quota(rate: float, user: str | None = "alice", client_id: str | None = None, key: str = KEY) -> Quota:
    return Quota(Entity(user, client_id), ((key, rate),))


def test_without_a_quota_nothing_is_counted() -> None:
    world = World()
    assert not world.shares.are_set
    assert world.use(10**12) == 0
    assert world.shares.buckets == 0


def test_use_waits_for_the_end_of_the_debt_and_is_refused_behind_a_long_one() -> None:
    world = World(quota(100.0))
    assert world.use(150) == 0  # a burst of 100, and what passed last
    assert world.use(60) == 0.5
    assert world.slept == [0.5]
    with pytest.raises(QuotaExceeded, match="producer_byte_rate of user alice is 100 per second") as refused:
        world.use(1)
    assert refused.value.retry_after_s == 1
    assert world.shares.refused == {KEY: 1} and world.shares.delayed == {KEY: 1}
    world.now_s += 1.2  # what was refused was not charged
    assert world.use(1) == 0


def test_retry_after_tells_when_there_is_room() -> None:
    world = World(quota(100.0))
    world.use(1000)
    with pytest.raises(QuotaExceeded) as refused:
        world.use(1)
    world.now_s += refused.value.retry_after_s
    assert world.use(1) <= DELAY_S_MAX


@given(
    st.floats(0.5, 1e6),
    st.lists(
        st.tuples(st.floats(0, 2), st.floats(0, 5), st.integers(0, 3), st.text(max_size=4)), min_size=1, max_size=60
    ),
    st.sampled_from([("alice", None), ("alice", DEFAULT), (DEFAULT, DEFAULT), (None, DEFAULT)]),
)
def test_no_more_passes_than_rate_times_time_and_a_burst_whatever_the_client_ids(
    rate: float, asked: list[tuple[float, float, int, str]], entity: tuple[str | None, str | None]
) -> None:
    """All uses of one principal, however many connections and client ids it spreads them over."""
    world = World(quota(rate, *entity))
    passed: list[tuple[float, float]] = []
    for gap_s, seconds_worth, _, client_id in asked:
        world.now_s += gap_s
        amount = rate * seconds_worth
        try:
            waited_s = world.use(amount, Client(ALICE, client_id))
        except QuotaExceeded:
            continue
        assert waited_s <= DELAY_S_MAX
        passed.append((world.now_s + waited_s, amount))
    for i, (begin_s, _) in enumerate(passed):
        for j in range(i, len(passed)):
            end_s, last = passed[j]
            total = sum(amount for _, amount in passed[i : j + 1])
            bound = max(rate * BURST_S, 1) + rate * (end_s - begin_s) + last
            assert total <= bound * (1 + 1e-6) + 1e-6


def test_a_principal_beside_one_over_its_share_passes() -> None:
    world = World(quota(100.0, DEFAULT))
    world.use(1000)
    with pytest.raises(QuotaExceeded):
        world.use(1)
    assert world.use(50, Client(BOB)) == 0


def test_buckets_are_bounded_and_the_one_not_asked_longest_goes() -> None:
    world = World(quota(100.0, DEFAULT), buckets_max=10)
    world.use(1000)
    for number in range(9):
        world.use(1, Client(Principal("User", f"u{number}")))
    with pytest.raises(QuotaExceeded):
        world.use(1)
    for number in range(1000):
        world.use(1, Client(Principal("User", f"v{number}")))
    assert world.shares.buckets == 10


def test_a_changed_rate_counts_at_once_and_the_debt_stays() -> None:
    world = World(quota(100.0))
    world.use(600)
    world.shares.follow((quota(1000.0),))
    assert world.use(1) == 0.5
    world.shares.follow(())
    assert world.use(10**9) == 0
    assert world.shares.buckets == 0


def test_a_caller_that_owes_is_refused_before_it_does_anything() -> None:
    world = World(quota(100.0))
    world.shares.refuse_if_owing(KEY, Client(ALICE))
    world.use(1000)
    with pytest.raises(QuotaExceeded):
        world.shares.refuse_if_owing(KEY, Client(ALICE))


def test_connections_are_counted_by_address() -> None:
    world = World(Quota(Entity(address=DEFAULT), (("connection_creation_rate", 3.0),)))
    admitted = [world.shares.admits_connection(address) for address in ["10.0.0.1"] * 6 + ["10.0.0.2"]]
    assert admitted == [True, True, True, True, False, False, True]
    assert world.shares.admits_connection("::ffff:10.0.0.1") is False
    world.now_s += 1.0
    assert world.shares.admits_connection("10.0.0.1")


def test_the_open_connections_of_a_user_are_counted() -> None:
    world = World(quota(2.0, DEFAULT, key="connections"), quota(3.0, "bob", key="connections"))
    shares = world.shares
    for user, most in (("alice", 2), ("bob", 3), ("carol", 2)):
        for _ in range(most):
            shares.hold(user)
        with pytest.raises(TooManyConnections, match=f"user {user} has {most} connections open"):
            shares.hold(user)
    shares.release("alice")
    shares.hold("alice")
    assert shares.refused == {"connections": 3}
    world.shares.follow((quota(1.0, "alice", key="connections"),))
    shares.hold("carol")
    shares.release("alice")
    with pytest.raises(TooManyConnections):
        shares.hold("alice")
    shares.release("alice")
    shares.hold("alice")
