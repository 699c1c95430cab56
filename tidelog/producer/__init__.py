"""The producer client: `async with Producer("http://127.0.0.1:8082") as producer: await producer.send("t",
b"value")`."""

from tidelog.producer.delivery import Deliveries, Delivery, RecordMetadata
from tidelog.producer.producer import Producer

__all__ = ["Deliveries", "Delivery", "Producer", "RecordMetadata"]
