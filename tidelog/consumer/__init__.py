"""The consumer client: `async with Consumer("t") as consumer: async for record in consumer: ...`."""

from tidelog.consumer.consumer import Consumer
from tidelog.consumer.errors import CommitFailed, GroupNeeded, PollIntervalExceeded
from tidelog.consumer.rebalance_listener import ConsumerRebalanceListener
from tidelog.consumer.records import ConsumerBatch, ConsumerRecord, OffsetAndMetadata, OffsetAndTimestamp
from tidelog.model.errors import RecordsLost
from tidelog.model.ids import TopicPartition
from tidelog.model.lost_ranges import LostRange

__all__ = [
    "CommitFailed",
    "Consumer",
    "ConsumerBatch",
    "ConsumerRebalanceListener",
    "ConsumerRecord",
    "GroupNeeded",
    "LostRange",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "PollIntervalExceeded",
    "RecordsLost",
    "TopicPartition",
]
