from __future__ import annotations

import pytest

from tidelog.model.errors import InvalidRequest
from tidelog.model.ids import TopicPartition
from tidelog.spark.bounds import EARLIEST, LATEST
from tidelog.spark.options import Limits, SourceOptions, parse_source_options

BASE = {"kafka.bootstrap.servers": "a:1,http://b:2", "subscribe": "orders"}


def stream(**options: str) -> SourceOptions:
    return parse_source_options({**BASE, **options}, is_streaming=True)


def batch(**options: str) -> SourceOptions:
    return parse_source_options({**BASE, **options}, is_streaming=False)


def test_what_kafka_has_is_the_default() -> None:
    found = stream()
    assert found.bootstrap == ("http://a:1", "http://b:2")
    assert found.selection.topics == ("orders",)
    assert (found.start.offset, found.end.offset, batch().start.offset) == (LATEST, LATEST, EARLIEST)
    assert found.limits == Limits(delay_s_max=900)
    assert found.loss.fails
    assert not found.includes_headers
    assert found.timeout_s == 120


def test_names_come_in_lower_case_and_values_as_text() -> None:
    found = stream(
        maxoffsetspertrigger="7", minoffsetspertrigger="3", maxtriggerdelay="2m", maxbytespertrigger="9",
        minpartitions="4", maxrecordsperpartition="5", failondataloss="FALSE", includeheaders="true",
    )  # fmt: skip
    assert (found.limits.records_max, found.limits.records_min, found.limits.bytes_max) == (7, 3, 9)
    assert found.limits.delay_s_max == 120
    assert (found.division.partitions_min, found.division.records_max) == (4, 5)
    assert not found.loss.fails
    assert found.includes_headers


@pytest.mark.parametrize(
    ("text", "seconds"), [("250", 0.25), ("250ms", 0.25), ("3s", 3), ("15min", 900), ("2 h", 7200), ("1d", 86400)]
)
def test_durations_are_sparks(text: str, seconds: float) -> None:
    assert stream(maxTriggerDelay=text).limits.delay_s_max == pytest.approx(seconds)


def test_the_kinds_of_selection() -> None:
    servers = {"bootstrap.servers": "a:1"}
    subscribed = parse_source_options({**servers, "subscribe": "b, a,b"}, is_streaming=True).selection
    assert subscribed.named == ("b", "a")
    matched = parse_source_options({**servers, "subscribePattern": "or.*"}, is_streaming=True).selection
    assert (matched.named, matched.wants_topic("orders"), matched.wants_topic("doors")) == (None, True, False)
    assigned = parse_source_options({**servers, "assign": '{"a": [2, 0]}'}, is_streaming=True).selection
    assert (assigned.partitions_of("a", 3), assigned.partitions_of("a", 1), assigned.wants_topic("b")) == (
        (0, 2),
        (0,),
        False,
    )


def test_a_timestamp_beats_timestamps_beat_offsets() -> None:
    offsets = {"startingOffsets": '{"orders": {"0": 5, "1": -2}}'}
    times = {"startingOffsetsByTimestamp": '{"orders": {"0": 17}}'}
    partition = TopicPartition("orders", 0)
    assert stream(**offsets).start.of(partition) == 5
    assert stream(**offsets, **times).start.timestamp_of(partition) == 17
    assert stream(**offsets, **times, startingTimestamp="3").start.timestamp_of(TopicPartition("orders", 9)) == 3
    with pytest.raises(InvalidRequest, match="must name every partition"):
        stream(**offsets).start.of(TopicPartition("orders", 2))


def test_what_can_change_when_it_is_looked_up_again() -> None:
    assert stream(startingOffsets="earliest").start.is_fixed
    assert not stream().start.is_fixed
    assert not stream(startingTimestamp="3").start.is_fixed
    assert stream(startingOffsets='{"orders": {"0": 5, "1": -2}}').start.is_fixed
    assert not stream(startingOffsets='{"orders": {"0": 5, "1": -1}}').start.is_fixed


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"startingOffset": "earliest"}, "unknown option startingoffset"),
        ({"kafka.group.id": "g"}, "not in a consumer group"),
        ({"kafka.security.protocols": "SSL"}, "unknown option kafka.security.protocols"),
        ({"endingOffsets": "latest"}, "no sense in a streaming query"),
        ({"assign": '{"a": [0]}'}, "exactly one"),
        ({"subscribe": " , "}, "names no topic"),
        ({"bootstrap.servers": "c:3"}, "contradict"),
        ({"maxOffsetsPerTrigger": "0"}, "from 1 on"),
        ({"minOffsetsPerTrigger": "5", "maxOffsetsPerTrigger": "4"}, "more than"),
        ({"failOnDataLoss": "yes"}, "true or false"),
        ({"maxTriggerDelay": "soon"}, "15m"),
        ({"startingOffsets": "first"}, "must be JSON"),
        ({"startingOffsets": '{"orders": {"0": -3}}'}, "from -2 on"),
        ({"startingOffsetsByTimestampStrategy": "never"}, "error or latest"),
    ],
)
def test_a_mistake_is_told(options: dict[str, str], says: str) -> None:
    with pytest.raises(InvalidRequest, match=says):
        stream(**options)


def test_a_batch_ends_where_it_says() -> None:
    assert batch(endingOffsets='{"orders": {"0": 9}}').end.of(TopicPartition("orders", 0)) == 9
    assert batch(endingTimestamp="5").end.latest_if_none
    with pytest.raises(InvalidRequest, match="no sense in a batch query"):
        batch(maxOffsetsPerTrigger="5")
    with pytest.raises(InvalidRequest, match="nothing would be read"):
        batch(endingOffsets="earliest")


def test_the_servers_are_needed() -> None:
    with pytest.raises(InvalidRequest, match=r"bootstrap\.servers is missing"):
        parse_source_options({"subscribe": "t"}, is_streaming=True)


@pytest.mark.parametrize("assign", ["[]", "{}", '{"a": 1}', '{"a": []}', '{"a": ["0"]}', '{"a": [-1]}'])
def test_an_assignment_names_partitions(assign: str) -> None:
    with pytest.raises(InvalidRequest, match="option assign"):
        parse_source_options({"bootstrap.servers": "a:1", "assign": assign}, is_streaming=True)
