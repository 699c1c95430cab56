"""DescribeProducers: what a partition remembers of those who write to it with sequence numbers.

The leader is asked. Ids that were made from HTTP's idempotency keys stand for one request each, and are not shown.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Any, Final

from tidelog.broker.kafka.admin.codes import DONE, Outcome, outcome_of
from tidelog.broker.kafka.admin.desk import ITEMS_MAX, Desk, Tree, topic_resource
from tidelog.model.access import Operation
from tidelog.model.errors import TidelogError
from tidelog.model.ids import KEYED_PRODUCER_BIT
from tidelog.model.kafka_codes import KafkaCode
from tidelog.model.producers import SEQUENCES, ProducerState

PRODUCERS_MAX: Final = 1_000
"""Producers of one answer; of more, those that were heard last."""
NONE: Final = -1


async def describe_producers(desk: Desk, request: Any) -> Tree:
    """Describes the producers of partitions that this broker leads."""
    if sum(len(topic.partition_indexes) for topic in request.topics) > ITEMS_MAX:
        refused = Outcome(KafkaCode.INVALID_REQUEST, f"ask for {ITEMS_MAX} partitions at most")
        return {"topics": [_topic(topic, [_partition(n, refused) for n in topic.partition_indexes])
                           for topic in request.topics]}  # fmt: skip
    left, topics = PRODUCERS_MAX, []
    for topic in request.topics:
        partitions = []
        for number in topic.partition_indexes:
            partitions.append(_described(desk, topic.name, number, left))
            left -= len(partitions[-1]["active_producers"])
        topics.append(_topic(topic, partitions))
    return {"topics": topics}


def _topic(asked: Any, partitions: list[Tree]) -> Tree:
    return {"name": asked.name, "partitions": partitions}


def _described(desk: Desk, topic: str, number: int, most: int) -> Tree:
    try:
        desk.require(Operation.READ, topic_resource(topic))
        led = desk.parts.partitions.led_here(topic, number)
    except TidelogError as error:
        return _partition(number, outcome_of(error))
    known = [each for each in led.producers.items() if not each[0] & KEYED_PRODUCER_BIT]
    return _partition(number, DONE, islice(reversed(known), most))


def _partition(number: int, outcome: Outcome, producers: Iterable[tuple[int, ProducerState]] = ()) -> Tree:
    return {
        "partition_index": number,
        **outcome.fields,
        "active_producers": [
            {
                "producer_id": producer_id,
                "producer_epoch": state.epoch,
                "last_sequence": (state.next_sequence - 1) % SEQUENCES,
                "last_timestamp": state.seen_ms,
                "coordinator_epoch": NONE,
                "current_txn_start_offset": NONE,
            }
            for producer_id, state in producers
        ],
    }
