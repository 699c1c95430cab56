"""A cluster image as bytes: the content of a metadata snapshot.

Canonical: equal images give identical bytes in every process, whatever the order of their history, so that brokers can
compare their snapshots by hash. It is JSON with sorted keys; reading accepts only bytes that writing can give.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import msgspec

from tidelog.controller.records import ACCESS_LEVEL
from tidelog.model.cluster import HTTP, BrokerInfo, ClusterImage, Endpoint, PartitionInfo, in_order
from tidelog.model.errors import InternalError
from tidelog.model.ids import NodeId
from tidelog.model.levels import LEVEL_MIN

FORMAT = 10
"""The format of clusters at feature level 3 and above."""
FORMAT_WITHOUT_ACCESS = 9
"""Format 9, without users, tokens, ACLs and quotas; it is written at feature level 2."""
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

_LATER_FIELDS = (
    (FORMAT_WITHOUT_ACCESS, "image", ("access", "quotas")),
    (FORMAT_WITHOUT_LEVELS, "image", ("level",)),
    (FORMAT_WITHOUT_LEVELS, "broker", ("levels",)),
    (FORMAT_WITHOUT_RECOVERY_IDS, "recovery", ("recovery_id",)),
    (FORMAT_WITHOUT_LOSSES, "partition", ("losses", "regroupings")),
    (FORMAT_WITHOUT_SINCE, "partition", ("since",)),
    (FORMAT_WITHOUT_SINCE, "image", ("recoveries",)),
    (FORMAT_WITHOUT_SINCE, "broker", ("starts", "stamp")),
)
"""The fields that later formats have added: the last format without them, their owner, and their names."""

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
        return _encode(image, FORMAT_WITHOUT_SINCE)
    return _encode(image, FORMAT if image.level >= ACCESS_LEVEL else FORMAT_WITHOUT_ACCESS)


def _encode(image: ClusterImage, version: int) -> bytes:
    """Returns the image's bytes in a format, without the fields that later formats have added. Formats that are never
    written are needed for reading, which compares the bytes."""
    # The encoder takes plain dictionaries only, and not the read-only views that an image holds.
    brokers = tuple(replace(broker, listeners=dict(broker.listeners)) for broker in image.brokers.values())
    encoded = _ENCODER.encode(_Snapshot(version, _without_brokers(image), brokers))
    if version == FORMAT:
        return encoded
    snapshot = msgspec.json.decode(encoded)
    plain = snapshot["image"]
    owners = {
        "image": [plain],
        "broker": snapshot["brokers"],
        "recovery": plain["recoveries"],
        "partition": [info for topic in plain["topics"].values() for info in topic["partitions"]],
    }
    for last_without, owner, fields in _LATER_FIELDS:
        for entry in owners[owner] if version <= last_without else ():
            for field in fields:
                del entry[field]
    if version == FORMAT_WITHOUT_LISTENERS:
        for broker in snapshot["brokers"]:
            broker["host"], broker["port"] = broker.pop("listeners")[HTTP]
    return _ENCODER.encode(snapshot)


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
        if not FORMAT_WITHOUT_LISTENERS <= version <= FORMAT:
            raise SnapshotUnreadable(
                f"the metadata snapshot has format {version}, and this version of tidelog reads format "
                f"{FORMAT_WITHOUT_LISTENERS} to {FORMAT}; start the version that wrote it"
            )
        if version == FORMAT_WITHOUT_LISTENERS:
            old = msgspec.json.decode(data, type=_SnapshotInFormat4)
            image = _image_of(old.image, [broker.broker() for broker in old.brokers])
        else:
            snapshot = msgspec.json.decode(data, type=_Snapshot)
            image = _image_of(snapshot.image, snapshot.brokers)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:  # msgspec lets the second one through
        raise SnapshotUnreadable(f"the metadata snapshot cannot be understood: {error}") from error
    # A broker that wrote other bytes for the same image would disagree with the others about every hash.
    if _encode(image, version) != data:
        raise SnapshotUnreadable("the metadata snapshot is not in its canonical form; it was not written by a broker")
    # Their records were written without a level, and need the second one.
    if FORMAT_WITHOUT_SINCE < version < FORMAT_WITHOUT_ACCESS:
        return replace(image, level=BETWEEN_LEVEL)
    # Filled in only now, since the bytes to compare with have none.
    return _with_since(image) if version <= FORMAT_WITHOUT_SINCE else image


def _with_since(image: ClusterImage) -> ClusterImage:
    """Returns the image of an older format, in which all replicas are taken to be assigned since the beginning."""
    topics = {
        name: replace(topic, partitions=tuple(map(_since_the_beginning, topic.partitions)))
        for name, topic in image.topics.items()
    }
    return replace(image, topics=in_order(topics))


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
