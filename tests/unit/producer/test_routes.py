"""Where records go: named partitions, keys, and the turn of the sticky one."""

from __future__ import annotations

import pytest

from tidelog.model.batch_header import Compression
from tidelog.model.errors import UnknownPartition
from tidelog.model.ids import TopicPartition
from tidelog.model.partitioner import partition_for_key
from tidelog.producer.accumulator import Accumulator
from tidelog.producer.routes import KEYS_REMEMBERED, TopicRoute


def route(partitions: int = 4, available: list[int] | None = None, first: int = 0) -> TopicRoute:
    accumulator = Accumulator(
        batch_bytes=1000, linger_s=0, compression=Compression.NONE, buffer_memory=1000, on_ready=lambda queue: None
    )
    queues = [accumulator.queue(TopicPartition("t", number)) for number in range(partitions)]
    return TopicRoute("t", queues, list(range(partitions)) if available is None else available, first)


def test_keys_go_where_kafkas_clients_send_them() -> None:
    it = route(7)
    for number in range(1000):
        key = b"key-%d" % number
        assert it.for_key(key).partition.partition == partition_for_key(key, 7)
        assert it.for_key(key) is it.for_key(key)


def test_remembered_keys_are_bounded() -> None:
    it = route()
    for number in range(KEYS_REMEMBERED + 5):
        it.for_key(b"%d" % number)
    assert len(it._by_key) <= KEYS_REMEMBERED


def test_the_sticky_partition_goes_round() -> None:
    it = route(3, first=1)
    seen = []
    for _ in range(7):
        seen.append(it.sticky.partition.partition)
        it.advance()
    assert seen == [1, 2, 0, 1, 2, 0, 1]


def test_records_without_a_key_avoid_partitions_without_a_leader() -> None:
    it = route(4, available=[1, 3])
    seen = set()
    for _ in range(4):
        seen.add(it.sticky.partition.partition)
        it.advance()
    assert seen == {1, 3}


def test_without_any_leader_they_wait_like_all_others() -> None:
    assert route(2, available=[]).sticky.partition.partition == 0


@pytest.mark.parametrize("partition", [-1, 4])
def test_a_partition_that_does_not_exist_is_named(partition: int) -> None:
    with pytest.raises(UnknownPartition, match=f"has 4 partitions, and no {partition}"):
        route(4).at(partition)
