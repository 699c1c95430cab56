"""Reading records: `async with Consumer("t") as consumer: async for record in consumer: ...`."""

from tidelog.consumer.consumer import Consumer
from tidelog.consumer.records import ConsumerRecord, OffsetAndTimestamp
from tidelog.model.ids import TopicPartition

__all__ = ["Consumer", "ConsumerRecord", "OffsetAndTimestamp", "TopicPartition"]
