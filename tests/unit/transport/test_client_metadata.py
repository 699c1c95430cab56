"""Bootstrap lists, the metadata cache, and waits between retries."""

from __future__ import annotations

import pytest

from tidelog.model.errors import InvalidRequest, LeaderNotAvailable, UnknownPartition, UnknownTopic
from tidelog.transport.addresses import parse_bootstrap
from tidelog.transport.backoff import EXHAUSTED_S, Backoff
from tidelog.transport.metadata import (
    BrokerMetadata,
    ClusterMetadata,
    MetadataCache,
    PartitionMetadata,
    TopicMetadata,
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("http://127.0.0.1:8082", ("http://127.0.0.1:8082",)),
        ("a:1, http://b:2/ ,c", ("http://a:1", "http://b:2", "http://c:8082")),
        ("A:1,a:1,", ("http://a:1",)),
        ("[::1]:9", ("http://[::1]:9",)),
    ],
)
def test_bootstrap_lists(text: str, expected: tuple[str, ...]) -> None:
    assert parse_bootstrap(text) == expected


@pytest.mark.parametrize("text", ["", " , ", "a:b", "a:99999", "http://a:1/x", "http://u@a:1", "http://"])
def test_bad_bootstrap_lists_say_what_is_expected(text: str) -> None:
    with pytest.raises(InvalidRequest, match="bootstrap"):
        parse_bootstrap(text)


def cluster(*leaders: int, name: str = "t") -> ClusterMetadata:
    partitions = tuple(PartitionMetadata(number, leader, 1, (1, 2), (1,)) for number, leader in enumerate(leaders))
    brokers = (BrokerMetadata(1, "one", 81), BrokerMetadata(2, "::2", 82))
    return ClusterMetadata("c", 1, brokers, (TopicMetadata(name, "id", "isr", False, partitions),))


@pytest.fixture
def cache() -> MetadataCache:
    cache = MetadataCache(max_age_s=10.0)
    cache.apply(cluster(1, 2, -1, 9), ("t",), 100.0)
    return cache


def test_partitions_are_led_where_the_metadata_says(cache: MetadataCache) -> None:
    assert cache.leader_address("t", 0) == "http://one:81"
    assert cache.leader_address("t", 1) == "http://[::2]:82"
    for leaderless in (2, 3):
        with pytest.raises(LeaderNotAvailable):
            cache.leader_address("t", leaderless)
    with pytest.raises(UnknownPartition):
        cache.leader_address("t", 4)
    with pytest.raises(UnknownPartition):
        cache.leader_address("t", -1)
    with pytest.raises(UnknownTopic):
        cache.leader_address("u", 0)


def test_entries_age_and_serve_until_replaced(cache: MetadataCache) -> None:
    assert cache.is_fresh("t", 109.9)
    assert not cache.is_fresh("t", 110.0)
    assert cache.topic("t") is not None
    cache.invalidate("t")
    cache.invalidate("never heard of")
    assert not cache.is_fresh("t", 100.0)
    assert cache.leader_address("t", 0) == "http://one:81"


def test_a_topic_that_was_asked_for_and_is_not_there_does_not_exist(cache: MetadataCache) -> None:
    cache.apply(cluster(1, name="u"), ("u", "t"), 101.0)
    assert cache.topic("t") is None
    assert cache.topic("u") is not None


def test_an_answer_about_others_leaves_a_topic_alone(cache: MetadataCache) -> None:
    cache.apply(cluster(1, name="u"), ("u",), 101.0)
    assert cache.topic("t") is not None
    assert cache.fetched_since("t", 100.0)
    assert not cache.fetched_since("t", 100.5)


class Fixed:
    """Entropy that always draws the same place of the range."""

    def __init__(self, place: float) -> None:
        self.place = place

    def token_hex(self, bytes_count: int) -> str:
        return "00" * bytes_count

    def uniform(self, low: float, high: float) -> float:
        return low + (high - low) * self.place


def test_waits_double_up_to_the_bound_and_jitter_halves_them() -> None:
    longest = Backoff(Fixed(1.0), initial_s=0.1, max_s=1.0)
    shortest = Backoff(Fixed(0.0), initial_s=0.1, max_s=1.0)
    assert [longest.next_s() for _ in range(6)] == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.0, 1.0])
    assert [shortest.next_s() for _ in range(6)] == pytest.approx([0.05, 0.1, 0.2, 0.4, 0.5, 0.5])
    longest.reset()
    assert longest.next_s() == pytest.approx(0.1)


def test_a_brokers_wish_to_wait_is_granted_within_the_bound() -> None:
    backoff = Backoff(Fixed(0.0), initial_s=0.1, max_s=1.0)
    assert backoff.next_s(at_least_s=0.7) == 0.7
    assert backoff.next_s(at_least_s=4.0) == 4.0
    assert backoff.next_s(at_least_s=60) == EXHAUSTED_S


def test_a_client_that_repeats_too_much_altogether_waits_for_longer() -> None:
    budget = iter([True, False, True])
    backoff = Backoff(Fixed(1.0), initial_s=0.1, max_s=1.0, may_retry=lambda: next(budget))
    assert [backoff.next_s() for _ in range(3)] == pytest.approx([0.1, EXHAUSTED_S, 0.4])


def test_thousands_of_retries_do_not_overflow() -> None:
    backoff = Backoff(Fixed(1.0), initial_s=0.1, max_s=1.0)
    assert [backoff.next_s() for _ in range(2000)][-1] == 1.0
