"""Metadata records: the only way in which a cluster's state changes (Kafka's KRaft records).

Each is one JSON object with a `type`, the value of one record in the metadata log. They are applied in log order, by
`state.apply`, on every broker alike; a record says what happened, not what was asked.
"""

from __future__ import annotations

import msgspec


class MetadataRecord(msgspec.Struct, frozen=True, tag_field="type", forbid_unknown_fields=True):
    """Base of all; `type` is the class name."""


class ClusterCreated(MetadataRecord, frozen=True, tag=True):
    cluster_id: str


class BrokerRegistered(MetadataRecord, frozen=True, tag=True):
    """A broker process has started. Its position in the log is its epoch; each partition that the broker leads gets a
    new leader epoch, so that what an earlier process left half-written is told from what this one writes."""

    node_id: int
    incarnation: str
    host: str
    port: int
    rack: str | None


class TopicCreated(MetadataRecord, frozen=True, tag=True):
    """`assignments[p]` are the replicas of partition p, the preferred leader first."""

    name: str
    topic_id: str
    assignments: list[list[int]]
    configs: dict[str, str]


class TopicDeleted(MetadataRecord, frozen=True, tag=True):
    """The topic is gone for clients; its data may be removed."""

    topic_id: str


class TopicRemoved(MetadataRecord, frozen=True, tag=True):
    """No broker holds data of the deleted topic any more."""

    topic_id: str


class PartitionsAdded(MetadataRecord, frozen=True, tag=True):
    topic_id: str
    assignments: list[list[int]]


class ConfigsAltered(MetadataRecord, frozen=True, tag=True):
    """New overrides of a topic; null goes back to the default."""

    topic_id: str
    changes: dict[str, str | None]


class ProducerIdsAllocated(MetadataRecord, frozen=True, tag=True):
    """All producer ids below `next_producer_id` are given out, or reserved for a block that a broker holds."""

    next_producer_id: int


AnyRecord = (
    ClusterCreated
    | BrokerRegistered
    | TopicCreated
    | TopicDeleted
    | TopicRemoved
    | PartitionsAdded
    | ConfigsAltered
    | ProducerIdsAllocated
)

_decoder = msgspec.json.Decoder(AnyRecord)


def encode_record(record: MetadataRecord) -> bytes:
    return msgspec.json.encode(record, order="deterministic")


def decode_record(value: bytes) -> MetadataRecord:
    """Raises `msgspec.DecodeError` for anything that is not a known record."""
    record: MetadataRecord = _decoder.decode(value)
    return record
