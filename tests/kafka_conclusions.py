"""The conclusions of Kafka's clients from an error code, as Java's producer and librdkafka draw them."""

from __future__ import annotations

from typing import Final

from tidelog.model.kafka_codes import KafkaCode

RETRIED: Final = (
    KafkaCode.CORRUPT_MESSAGE,
    KafkaCode.UNKNOWN_TOPIC_OR_PARTITION,
    KafkaCode.LEADER_NOT_AVAILABLE,
    KafkaCode.NOT_LEADER_OR_FOLLOWER,
    KafkaCode.REQUEST_TIMED_OUT,
    KafkaCode.REPLICA_NOT_AVAILABLE,
    KafkaCode.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaCode.COORDINATOR_NOT_AVAILABLE,
    KafkaCode.NOT_COORDINATOR,
    KafkaCode.NOT_ENOUGH_REPLICAS,
    KafkaCode.NOT_CONTROLLER,
    KafkaCode.KAFKA_STORAGE_ERROR,
    KafkaCode.FETCH_SESSION_ID_NOT_FOUND,
    KafkaCode.FENCED_LEADER_EPOCH,
    KafkaCode.UNKNOWN_LEADER_EPOCH,
    KafkaCode.OFFSET_NOT_AVAILABLE,
    KafkaCode.UNKNOWN_TOPIC_ID,
    KafkaCode.THROTTLING_QUOTA_EXCEEDED,
)
"""Codes after which Java's clients and librdkafka send the same request again."""


def is_definite(code: KafkaCode) -> bool:
    """Returns True if clients conclude from the code that nothing was appended. librdkafka concludes that from
    UNKNOWN_SERVER_ERROR, too, so no fault of a broker is sent under that code."""
    return code is not KafkaCode.REQUEST_TIMED_OUT
