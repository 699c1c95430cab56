"""DescribeProducers: the producer state of a partition (producer id, epoch, last sequence), as its leader has it.

Producer ids that stand for an idempotency key of an HTTP request are left out, since each of them is used only once.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Any, Final

from tidelog.broker.kafka.admin.codes import DONE, Outcome, Refused, outcome_of
from tidelog.broker.kafka.admin.desk import Desk, Tree, bound, topic_resource
from tidelog.model.access import Operation
from tidelog.model.errors import TidelogError
from tidelog.model.ids import KEYED_PRODUCER_BIT
from tidelog.model.producers import SEQUENCES, ProducerState

PRODUCERS_MAX: Final = 1_000
"""Maximum number of producers in one answer; the most recently active are kept."""
NONE: Final = -1


async def describe_producers(desk: Desk, request: Any) -> Tree:
    """Describes the active producers of partitions that this broker leads."""
    bound(*(1 + len(topic.partition_indexes) for topic in request.topics))
    remaining, topics = PRODUCERS_MAX, []
    for topic in request.topics:
        partitions = []
        for number in topic.partition_indexes:
            partitions.append(_described(desk, topic.name, number, remaining))
            remaining -= len(partitions[-1]["active_producers"])
        topics.append({"name": topic.name, "partitions": partitions})
    return {"topics": topics}


def _described(desk: Desk, topic: str, number: int, most: int) -> Tree:
    try:
        desk.require(Operation.READ, topic_resource(topic))
        led = desk.parts.partitions.led_here(topic, number)
    except (TidelogError, Refused) as error:
        return _partition(number, outcome_of(error))
    producers = [producer for producer in led.producers.items() if not producer[0] & KEYED_PRODUCER_BIT]
    return _partition(number, DONE, islice(reversed(producers), most))


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
