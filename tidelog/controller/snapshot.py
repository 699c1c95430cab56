"""A cluster image as bytes: the content of a metadata snapshot.

Canonical: equal images give identical bytes in every process, whatever the order of their history, so that brokers can
compare their snapshots by hash. It is JSON with sorted keys; reading accepts only bytes that writing can give.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import msgspec

from tidelog.model.cluster import HTTP, BrokerInfo, ClusterImage, Endpoint, PartitionInfo, in_order
from tidelog.model.errors import InternalError
from tidelog.model.ids import NodeId
from tidelog.model.levels import LEVEL_MIN

FORMAT = 10
"""The format of clusters at feature level 3 and above."""
FORMAT_WITHOUT_ACCESS = 9
"""Format 9, without users, tokens, ACLs and quotas; it is written at feature level 2."""
ACCESS_LEVEL = 3
FORMAT_WITHOUT_LEVELS = 8
"""Format 8: as format 9, without feature levels; it is read, and never written."""
BETWEEN_LEVEL = 2
"""The feature level given to snapshots of formats 6 to 8, which no release wrote."""
FORMAT_WITHOUT_RECOVERY_IDS = 7
"""Format 7: as format 8, with recoveries that have no ids; it is read, and never written."""
FORMAT_WITHOUT_LOSSES = 6
"""Format 6: as format 7, with partitions that have no accepted losses or regroupings; it is read, and never written."""
FORMAT_WITHOUT_SINCE = 5
"""Format 5: as format 6, without the positions at which replicas were assigned, and without recoveries. It is written
at feature level 1."""
FORMAT_WITHOUT_LISTENERS = 4
"""Format 4: as format 5, with brokers that have no address but the HTTP listener's; it is read, and never written."""


# Sorted keys make equal images equal bytes; brokers agree on a snapshot by its hash alone.
_ENCODER = msgspec.json.Encoder(order="sorted")


class SnapshotUnreadable(InternalError):
    """The bytes are no snapshot that this version can read. Nothing was changed."""


class _Snapshot(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    format: int
    image: ClusterImage
    """The image without its brokers."""
    brokers: tuple[BrokerInfo, ...]
    """The brokers, in order of node ids. (As keys of a JSON object the ids would be sorted as text.)"""


class _BrokerInFormat4(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    node_id: NodeId
    host: str
    port: int
    rack: str | None
    epoch: int
    incarnation: str
    peer_host: str
    peer_port: int
    storage: str
    is_fenced: bool
    voter_id: int

    @classmethod
    def of(cls, broker: BrokerInfo) -> _BrokerInFormat4:
        fields = {name: getattr(broker, name) for name in cls.__struct_fields__ if name not in ("host", "port")}
        return cls(host=broker.http.host, port=broker.http.port, **fields)

    def broker(self) -> BrokerInfo:
        fields = msgspec.structs.asdict(self)
        return BrokerInfo(listeners={HTTP: Endpoint(fields.pop("host"), fields.pop("port"))}, **fields)


class _SnapshotInFormat4(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    format: int
    image: ClusterImage
    brokers: tuple[_BrokerInFormat4, ...]


class _Header(msgspec.Struct, frozen=True):
    format: int


def encode_image(image: ClusterImage) -> bytes:
    """Returns the image's canonical bytes, in the format of its cluster's feature level."""
    # The level decides, not the version that runs: during an upgrade old and new brokers must write the same bytes.
    if image.level == LEVEL_MIN:
        return _encode_in_format_5(image)
    return _encode(image) if image.level >= ACCESS_LEVEL else _encode_in_format_9(image)


def _encode(image: ClusterImage) -> bytes:
    # The encoder takes plain dictionaries only, and not the read-only views that an image holds.
    brokers = tuple(replace(broker, listeners=dict(broker.listeners)) for broker in image.brokers.values())
    return _ENCODER.encode(_Snapshot(FORMAT, _without_brokers(image), brokers))


def _encode_in_format_9(image: ClusterImage) -> bytes:
    brokers = msgspec.json.decode(_encode(image))["brokers"]
    return _ENCODER.encode({"format": FORMAT_WITHOUT_ACCESS, "image": _without_access(image), "brokers": brokers})


def _encode_in_format_8(image: ClusterImage) -> bytes:
    # Never written any more: reading a snapshot of this format asks for the very bytes that it had.
    return _ENCODER.encode(_snapshot(image, FORMAT_WITHOUT_LEVELS, _without_level(image)))


def _encode_in_format_7(image: ClusterImage) -> bytes:
    return _ENCODER.encode(_snapshot(image, FORMAT_WITHOUT_RECOVERY_IDS, _without_recovery_ids(image)))


def _encode_in_format_6(image: ClusterImage) -> bytes:
    return _ENCODER.encode(_snapshot(image, FORMAT_WITHOUT_LOSSES, _without_losses(image)))


def _encode_in_format_5(image: ClusterImage) -> bytes:
    snapshot = _snapshot(image, FORMAT_WITHOUT_SINCE, _without_since(image))
    for broker in snapshot["brokers"]:
        del broker["starts"], broker["stamp"]
    return _ENCODER.encode(snapshot)


def _encode_in_format_4(image: ClusterImage) -> bytes:
    brokers = tuple(_BrokerInFormat4.of(broker) for broker in image.brokers.values())
    snapshot = {"format": FORMAT_WITHOUT_LISTENERS, "image": _without_since(image), "brokers": brokers}
    return _ENCODER.encode(snapshot)


def _snapshot(image: ClusterImage, version: int, encoded: dict[str, Any]) -> dict[str, Any]:
    """Returns a snapshot of format `version` as JSON, with brokers that lack their feature levels."""
    brokers = msgspec.json.decode(_encode(image))["brokers"]
    for broker in brokers:
        del broker["levels"]
    return {"format": version, "image": encoded, "brokers": brokers}


def _without_access(image: ClusterImage) -> dict[str, Any]:
    """Returns the image as JSON, without brokers, users, tokens, ACLs and quotas (format 9)."""
    encoded: dict[str, Any] = msgspec.json.decode(_ENCODER.encode(_without_brokers(image)))
    del encoded["access"], encoded["quotas"]
    return encoded


def _without_level(image: ClusterImage) -> dict[str, Any]:
    """Returns the image as JSON for format 8: without feature level, users, tokens, ACLs and quotas."""
    encoded = _without_access(image)
    del encoded["level"]
    return encoded


def _without_recovery_ids(image: ClusterImage) -> dict[str, Any]:
    """Returns the image as JSON for format 7: as format 8, and recoveries without ids."""
    encoded = _without_level(image)
    for recovery in encoded["recoveries"]:
        del recovery["recovery_id"]
    return encoded


def _without_losses(image: ClusterImage) -> dict[str, Any]:
    """Returns the image as JSON for format 6: as format 7, and partitions without losses and regroupings."""
    encoded = _without_recovery_ids(image)
    for topic in encoded["topics"].values():
        for partition in topic["partitions"]:
            del partition["losses"], partition["regroupings"]
    return encoded


def _without_since(image: ClusterImage) -> dict[str, Any]:
    """Returns the image as JSON for format 5: as format 6, without the positions of assignments and without
    recoveries."""
    encoded = _without_losses(image)
    for topic in encoded["topics"].values():
        for partition in topic["partitions"]:
            del partition["since"]
    del encoded["recoveries"]
    return encoded


def _without_brokers(image: ClusterImage) -> ClusterImage:
    """Returns the image with ordinary dictionaries, which can be encoded, and without its brokers."""
    return replace(
        image,
        brokers={},
        topics={name: replace(topic, configs=dict(topic.configs)) for name, topic in image.topics.items()},
        deleted_topics=dict(image.deleted_topics),
        access=replace(image.access, users=dict(image.access.users), tokens=dict(image.access.tokens)),
    )


def decode_image(data: bytes) -> ClusterImage:
    """Returns the image that the bytes encode. Raises `SnapshotUnreadable`."""
    try:
        version = msgspec.json.decode(data, type=_Header).format
        if version == FORMAT:
            snapshot = msgspec.json.decode(data, type=_Snapshot)
            image = _image_of(snapshot.image, snapshot.brokers)
            canonical = _encode(image)
        elif version == FORMAT_WITHOUT_ACCESS:
            snapshot = msgspec.json.decode(data, type=_Snapshot)
            image = _image_of(snapshot.image, snapshot.brokers)
            canonical = _encode_in_format_9(image)
        elif version == FORMAT_WITHOUT_LEVELS:
            snapshot = msgspec.json.decode(data, type=_Snapshot)
            image = _image_of(snapshot.image, snapshot.brokers)
            canonical = _encode_in_format_8(image)
        elif version == FORMAT_WITHOUT_RECOVERY_IDS:
            snapshot = msgspec.json.decode(data, type=_Snapshot)
            image = _image_of(snapshot.image, snapshot.brokers)
            canonical = _encode_in_format_7(image)
        elif version == FORMAT_WITHOUT_LOSSES:
            snapshot = msgspec.json.decode(data, type=_Snapshot)
            image = _image_of(snapshot.image, snapshot.brokers)
            canonical = _encode_in_format_6(image)
        elif version == FORMAT_WITHOUT_SINCE:
            snapshot = msgspec.json.decode(data, type=_Snapshot)
            image = _image_of(snapshot.image, snapshot.brokers)
            # Encoded before the later fields are filled in, since the bytes to compare with have none.
            canonical = _encode_in_format_5(image)
            image = _with_since(image)
        elif version == FORMAT_WITHOUT_LISTENERS:
            old = msgspec.json.decode(data, type=_SnapshotInFormat4)
            image = _image_of(old.image, [broker.broker() for broker in old.brokers])
            canonical = _encode_in_format_4(image)
            image = _with_since(image)
        else:
            raise SnapshotUnreadable(
                f"the metadata snapshot has format {version}, and this version of tidelog reads format "
                f"{FORMAT_WITHOUT_LISTENERS} to {FORMAT}; start the version that wrote it"
            )
    except (msgspec.DecodeError, UnicodeDecodeError) as error:  # msgspec lets the second one through
        raise SnapshotUnreadable(f"the metadata snapshot cannot be understood: {error}") from error
    # A broker that wrote other bytes for the same image would disagree with the others about every hash.
    if canonical != data:
        raise SnapshotUnreadable("the metadata snapshot is not in its canonical form; it was not written by a broker")
    # Their records were written without a level, and need the second one.
    is_between = FORMAT_WITHOUT_SINCE < version < FORMAT_WITHOUT_ACCESS
    return replace(image, level=BETWEEN_LEVEL) if is_between else image


def _with_since(image: ClusterImage) -> ClusterImage:
    """Returns the image of an older format, in which all replicas are taken to be assigned since the beginning."""
    return replace(
        image,
        topics=in_order(
            {
                name: replace(topic, partitions=tuple(_since_the_beginning(info) for info in topic.partitions))
                for name, topic in image.topics.items()
            }
        ),
    )


def _since_the_beginning(info: PartitionInfo) -> PartitionInfo:
    return replace(info, since=tuple((node, 0) for node in info.replicas))


def _image_of(image: ClusterImage, brokers: Iterable[BrokerInfo]) -> ClusterImage:
    topics = {name: replace(topic, configs=in_order(topic.configs)) for name, topic in image.topics.items()}
    brokers_by_id = {broker.node_id: replace(broker, listeners=in_order(broker.listeners)) for broker in brokers}
    access = image.access
    return replace(
        image,
        brokers=in_order(brokers_by_id),
        topics=in_order(topics),
        deleted_topics=in_order(image.deleted_topics),
        access=replace(access, users=in_order(access.users), tokens=in_order(access.tokens)),
    )
