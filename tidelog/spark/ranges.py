"""From positions to offset ranges: the records that still exist, and the reaction to missing ones. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from tidelog.model.errors import InvalidRequest
from tidelog.model.ids import TopicPartition
from tidelog.spark.bounds import EARLIEST, LATEST, Bound
from tidelog.spark.errors import LossRule
from tidelog.spark.offsets import Offsets
from tidelog.spark.planner import OffsetRange
from tidelog.spark.view import Snapshot, View


def resolve(bound: Bound, snapshot: Snapshot, view: View) -> dict[TopicPartition, int]:
    """Returns the offset of a bound in each partition. Raises `InvalidRequest` for an unknown or unlisted partition, or
    a timestamp after the last record."""
    unknown = set(bound.offsets or bound.timestamps_ms or ()).difference(snapshot.extents)
    if unknown:
        raise InvalidRequest(
            f"offsets or timestamps are given for partitions, but there is no partition {min(unknown)}"
        )
    times = {partition: time for partition in snapshot.extents if (time := bound.timestamp_of(partition)) is not None}
    offsets = view.first_since(times) if times else {}
    positions = {}
    for partition, extent in snapshot.extents.items():
        offset = offsets.get(partition) if partition in times else bound.of(partition)
        if offset is None and not bound.latest_if_none:
            raise InvalidRequest(
                f"{partition} has no record from {times[partition]} ms on; "
                "startingOffsetsByTimestampStrategy=latest would begin at its end"
            )
        if offset is None or offset == LATEST:
            offset = extent.end
        positions[partition] = extent.start if offset == EARLIEST else offset
    return positions


def drop_lost_topics(start: Offsets, snapshot: Snapshot, loss: LossRule) -> Offsets:
    """Returns the positions without those of deleted or recreated topics, which are reported as lost."""
    lost = []
    for topic in start.topics:
        if topic not in snapshot.topic_ids:
            loss.lost(f"topic {topic!r} was deleted")
        elif start.topic_ids.get(topic, snapshot.topic_ids[topic]) != snapshot.topic_ids[topic]:
            loss.lost(f"topic {topic!r} was deleted and made again: the offsets of the old one mean other records now")
        else:
            continue
        lost.append(topic)
    return start.without(lost)


def ranges_between(start: Offsets, end: Offsets, snapshot: Snapshot, loss: LossRule) -> list[OffsetRange]:
    """Returns the ranges to read from `start` to `end`, as far as they exist. A partition added since `start` is read
    from 0; a topic that is new to the query, from its log start."""
    kept = drop_lost_topics(end, snapshot, loss)
    ranges = []
    for partition, limit in sorted(kept.positions.items()):
        extent = snapshot.extents.get(partition)
        if extent is None:
            loss.lost(f"partition {partition} is gone")
            continue
        begin = _begin(start, partition, snapshot.topic_ids[partition.topic], extent.start)
        if begin < min(extent.start, limit):
            loss.lost(f"{partition}: records {begin} to {min(extent.start, limit) - 1} have been deleted")
            begin = extent.start
        if begin < limit:
            ranges.append(OffsetRange(*partition, begin, limit, snapshot.topic_ids[partition.topic]))
    return ranges


def _begin(start: Offsets, partition: TopicPartition, topic_id: str, earliest: int) -> int:
    if start.topic_ids.get(partition.topic) != topic_id:
        return earliest  # a topic that is new to the query, perhaps in place of one that was reported to be gone
    return start.positions.get(partition, 0)


def check_exists(
    selection_names: tuple[str, ...] | None, assigned: Mapping[str, tuple[int, ...]], snapshot: Snapshot
) -> None:
    """Raises `InvalidRequest` if a topic or partition given by name does not exist, when a query starts."""
    for topic in selection_names or ():
        if topic not in snapshot.topic_ids:
            raise InvalidRequest(f"topic {topic!r} does not exist; create it first")
    for topic, numbers in assigned.items():
        for number in numbers:
            if TopicPartition(topic, number) not in snapshot.extents:
                raise InvalidRequest(f"topic {topic!r} has no partition {number}")
