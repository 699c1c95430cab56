"""Spark's calls, in the orders in which it makes them, on partitions that change meanwhile."""

from __future__ import annotations

import pytest

from tests.unit.spark.lake import Lake
from tests.unit.spark.query import Query
from tidelog.model.errors import InvalidRequest
from tidelog.model.ids import TopicPartition
from tidelog.spark.errors import DataLoss


@pytest.fixture
def lake() -> Lake:
    lake = Lake()
    lake.create("t", 100, 20)
    return lake


def test_from_the_earliest_in_two_batches(lake: Lake) -> None:
    query = Query(lake, startingOffsets="earliest")
    assert query.step() == [(0, 0, 100), (1, 0, 20)]
    assert query.step() is None
    lake.write("t", 1, 5)
    assert query.step() == [(1, 20, 25)]


def test_latest_is_pinned_by_an_empty_first_batch(lake: Lake) -> None:
    query = Query(lake)
    assert query.step() == []
    lake.write("t", 0, 50)
    assert query.step() == [(0, 100, 150)]


def test_a_first_batch_that_failed_skips_nothing(lake: Lake) -> None:
    query = Query(lake)
    assert query.plan()
    lake.write("t", 0, 50)  # and the query dies before batch 0 is committed
    query.restart()
    assert query.run() == []
    assert query.step() == [(0, 100, 150)]


def test_a_first_batch_that_was_never_planned_may_begin_later(lake: Lake) -> None:
    query = Query(lake)
    query.initial()
    lake.write("t", 0, 50)
    query.restart()
    query.step()
    lake.write("t", 0, 1)
    assert query.step() == [(0, 150, 151)]


def test_batch_n_is_planned_again_as_it_was(lake: Lake) -> None:
    query = Query(lake, startingOffsets="earliest")
    query.step()
    lake.write("t", 0, 10)
    first = query.step()
    lake.write("t", 0, 1000)
    query.restart()
    assert query.run() == first == [(0, 100, 110)]
    assert query.step() == [(0, 110, 1110)]


def test_timestamps_are_pinned_too(lake: Lake) -> None:
    query = Query(lake, startingTimestamp="15")
    assert query.step() == []
    assert query.step() == [(0, 15, 100), (1, 15, 20)]


def test_a_time_that_nothing_is_as_young_as(lake: Lake) -> None:
    with pytest.raises(InvalidRequest, match="t-1 has no record from 20 ms on"):
        Query(lake, startingTimestamp="20").step()
    query = Query(lake, startingTimestamp="20", startingOffsetsByTimestampStrategy="latest")
    assert [query.step(), query.step()] == [[], [(0, 20, 100)]]


def test_offsets_by_partition(lake: Lake) -> None:
    query = Query(lake, startingOffsets='{"t": {"0": 97, "1": -2}}')
    assert query.step() == [(0, 97, 100), (1, 0, 20)]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"subscribe": "u"}, "topic 'u' does not exist"),
        ({"subscribe": "t,u"}, "topic 'u' does not exist"),
        ({"startingOffsets": '{"t": {"0": 1, "1": 1, "2": 1}}'}, "there is no partition t-2"),
        ({"startingOffsets": '{"t": {"0": 1}}'}, "t-1 is not there"),
    ],
)
def test_what_is_not_there_is_told_at_the_start(lake: Lake, options: dict[str, str], says: str) -> None:
    with pytest.raises(InvalidRequest, match=says):
        Query(lake, **options).initial()


def test_a_limit_is_shared_by_backlog_and_ends(lake: Lake) -> None:
    query = Query(lake, startingOffsets="earliest", maxOffsetsPerTrigger="60")
    assert query.step() == [(0, 0, 50), (1, 0, 10)]
    assert query.step() == [(0, 50, 100), (1, 10, 20)]
    assert query.step() is None


def test_everything_is_everything_whatever_the_limits(lake: Lake) -> None:
    query = Query(lake, startingOffsets="earliest", maxOffsetsPerTrigger="6")
    assert query.step(is_limited=False) == [(0, 0, 100), (1, 0, 20)]


def test_a_limit_of_bytes(lake: Lake) -> None:
    lake.sizes = {TopicPartition("t", 0): 10.0, TopicPartition("t", 1): 100.0}
    query = Query(lake, startingOffsets="earliest", maxBytesPerTrigger="1500")
    assert query.step() == [(0, 0, 50), (1, 0, 10)]


def test_few_records_wait_for_more_or_for_the_delay(lake: Lake) -> None:
    query = Query(lake, startingOffsets="earliest", minOffsetsPerTrigger="10", maxTriggerDelay="60s")
    assert query.step() == [(0, 0, 100), (1, 0, 20)]  # the first one never waits
    lake.write("t", 0, 9)
    assert query.step() is None
    assert lake.waits == 1  # at the brokers, not in a loop of Spark's
    query.now_s = 60.0
    assert query.step() == [(0, 100, 109)]
    lake.write("t", 1, 10)
    assert query.step() == [(1, 20, 30)]


def test_available_now_ends_under_concurrent_writes(lake: Lake) -> None:
    query = Query(lake, startingOffsets="earliest", maxOffsetsPerTrigger="50", minOffsetsPerTrigger="50")
    query.planner.freeze()
    steps = 0
    while query.step() is not None:
        lake.write("t", steps % 2, 1000)
        steps += 1
    assert steps == 3
    assert [end for partition, _, end in query.read if partition == 0][-1] == 100
    assert [end for partition, _, end in query.read if partition == 1][-1] == 20
    assert lake.waits == 0


def test_available_now_from_the_latest_pins_and_ends(lake: Lake) -> None:
    query = Query(lake)
    query.planner.freeze()
    assert [query.step(), query.step()] == [[], None]


def test_an_idle_query_waits_at_the_brokers(lake: Lake) -> None:
    query = Query(lake, startingOffsets="earliest")
    query.step()
    lake.arrives = {TopicPartition("t", 0): 3}
    assert query.step() == [(0, 100, 103)]
    assert lake.waits == 1


def test_new_partitions_and_new_topics_are_read_from_their_beginning(lake: Lake) -> None:
    query = Query(lake, startingOffsets="earliest")
    del query.options["subscribe"]
    query.restart(subscribePattern="t.*")
    query.step()
    lake.write("t", 2, 7)
    lake.create("tt", 3)
    assert query.step() == [(2, 0, 7), (0, 0, 3)]


def test_a_new_partition_that_has_lost_its_first_records(lake: Lake) -> None:
    query = Query(lake, startingOffsets="earliest")
    query.step()
    lake.write("t", 2, 7)
    lake.delete("t", 2, 4)
    with pytest.raises(DataLoss, match="t-2 is new"):
        query.step()
    query.restart(failOnDataLoss="false")
    assert query.step() == [(2, 4, 7)]


def test_records_that_retention_took(lake: Lake) -> None:
    query = Query(lake, startingOffsets="earliest")
    query.step()
    lake.write("t", 0, 50)
    lake.delete("t", 0, 120)
    with pytest.raises(DataLoss, match=r"t-0: records 100 to 119 have been deleted.*failOnDataLoss"):
        query.step()
    query.restart(failOnDataLoss="false")
    assert query.run() == [(0, 120, 150)]


def test_all_of_a_batch_is_gone(lake: Lake) -> None:
    query = Query(lake, startingOffsets="earliest", failOnDataLoss="false")
    query.plan()
    lake.write("t", 0, 500)
    lake.delete("t", 0, 300)
    query.restart()
    assert query.run() == [(1, 0, 20)]
    assert query.step() == [(0, 300, 600)]


def test_a_topic_that_was_made_again_is_no_silence(lake: Lake) -> None:
    query = Query(lake, startingOffsets="earliest")
    query.step()
    lake.create("t", 1000, 1000, topic_id="2")
    with pytest.raises(DataLoss, match="deleted and made again"):
        query.step()
    query.restart(failOnDataLoss="false")
    assert query.step() == [(0, 0, 1000), (1, 0, 1000)]
    assert query.step() is None


def test_a_topic_that_was_deleted(lake: Lake) -> None:
    query = Query(lake, startingOffsets="earliest")
    query.step()
    lake.drop("t")
    with pytest.raises(DataLoss, match="'t' was deleted"):
        query.plan()


def test_a_topic_that_was_deleted_after_the_plan(lake: Lake) -> None:
    query = Query(lake, startingOffsets="earliest", failOnDataLoss="false")
    query.step()
    lake.write("t", 0, 5)
    query.plan()
    lake.drop("t")
    query.restart()
    assert query.run() == []


def test_one_look_serves_a_batch_from_its_end_to_its_tasks(lake: Lake) -> None:
    query = Query(lake, startingOffsets="earliest")
    query.step()
    lake.write("t", 0, 5)
    before = lake.looks
    query.step()
    assert lake.looks == before + 1
    query.run()  # again, which is another look, as after a restart
    assert lake.looks == before + 2


def test_a_leader_that_knows_less_moves_nothing_back(lake: Lake) -> None:
    query = Query(lake, startingOffsets="earliest", failOnDataLoss="false")
    query.step()
    lake.create("t", 90, 21)
    lake.ids["t"] = "t-1"
    assert query.step() == [(1, 20, 21)]
    lake.write("t", 0, 20)
    assert query.step() == [(0, 100, 110)]


def test_the_newest_ends_are_known_for_the_lag(lake: Lake) -> None:
    query = Query(lake, startingOffsets="earliest", maxOffsetsPerTrigger="1")
    assert query.planner.newest is None
    query.step()
    assert query.planner.newest is not None
    assert query.planner.newest.positions == {TopicPartition("t", 0): 100, TopicPartition("t", 1): 20}
