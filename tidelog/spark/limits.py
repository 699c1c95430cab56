"""The size of a micro-batch: each partition's share of `maxOffsetsPerTrigger` or `maxBytesPerTrigger`.

As in Spark's Kafka source, the limit is divided in proportion to the backlogs of the partitions, rounded down, but at
least one record each, so that a small partition is not starved. The sum may exceed the limit by that much. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from tidelog.model.ids import TopicPartition
from tidelog.spark.options import Limits

Positions = Mapping[TopicPartition, int]


def backlog(begin: Positions, end: Positions) -> dict[TopicPartition, int]:
    """Returns the number of unread offsets of each partition that has any."""
    return {
        partition: end[partition] - begin[partition] for partition in sorted(end) if end[partition] > begin[partition]
    }


def prorate(begin: Positions, end: Positions, weights: Mapping[TopicPartition, float], limit: float) -> Positions:
    """Returns the end positions of a batch: `end` if the records from `begin` to `end` weigh at most `limit` in total,
    else a share of the limit for each partition in proportion to its backlog. A record of a partition weighs
    `weights[partition]`."""
    waiting = backlog(begin, end)
    total = sum(count * weights[partition] for partition, count in waiting.items())
    if total <= limit:
        return end
    taken = {}
    for partition, count in waiting.items():
        share = limit * (count / total)  # of the limit, in records: weights cancel out
        taken[partition] = begin[partition] + min(count, max(1, math.floor(share)))
    return {**end, **taken}


def limit_records(begin: Positions, end: Positions, records_max: int) -> Positions:
    """Returns the end of a batch of at most `records_max` records (Spark's Kafka source: `rateLimit`)."""
    return prorate(begin, end, dict.fromkeys(end, 1.0), records_max)


def limit_bytes(
    begin: Positions, end: Positions, record_bytes: Mapping[TopicPartition, float], bytes_max: int
) -> Positions:
    """Returns the end of a batch of about `bytes_max` bytes, given the mean size of a record in each partition."""
    return prorate(begin, end, record_bytes, bytes_max)


def is_worth_it(begin: Positions, end: Positions, limits: Limits, waited_s: float) -> bool:
    """Returns False if the batch should be delayed for more records (`minOffsetsPerTrigger`, `maxTriggerDelay`)."""
    if limits.records_min is None or waited_s >= limits.delay_s_max:
        return True
    return sum(backlog(begin, end).values()) >= limits.records_min
