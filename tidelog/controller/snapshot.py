"""A cluster image as bytes: the state of a metadata snapshot.

Canonical: equal images give identical bytes in every process, whatever order their history had, so that brokers can
compare their snapshots by hash. It is JSON with sorted keys; reading accepts nothing but what writing gives.
"""

from __future__ import annotations

from dataclasses import replace

import msgspec

from tidelog.model.cluster import BrokerInfo, ClusterImage, in_order
from tidelog.model.errors import InternalError

FORMAT = 4


class SnapshotUnreadable(InternalError):
    """This is no snapshot that this version can read. Nothing was changed."""


class _Snapshot(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    format: int
    image: ClusterImage
    """All but its brokers."""
    brokers: tuple[BrokerInfo, ...]
    """By node id: as keys of JSON, numbers would be text, and sorted as such."""


class _Header(msgspec.Struct, frozen=True):
    format: int


def encode_image(image: ClusterImage) -> bytes:
    """The image's canonical form."""
    plain = replace(
        image,
        brokers={},
        topics={name: replace(topic, configs=dict(topic.configs)) for name, topic in image.topics.items()},
        deleted_topics=dict(image.deleted_topics),
    )
    return msgspec.json.encode(_Snapshot(FORMAT, plain, tuple(image.brokers.values())), order="sorted")


def decode_image(data: bytes) -> ClusterImage:
    """The image that was encoded. Raises `SnapshotUnreadable`."""
    try:
        version = msgspec.json.decode(data, type=_Header).format
        if version != FORMAT:
            raise SnapshotUnreadable(
                f"the metadata snapshot has format {version}, and this version of tidelog reads format {FORMAT}; "
                "start the version that wrote it"
            )
        image = _image_of(msgspec.json.decode(data, type=_Snapshot))
    except msgspec.DecodeError as error:
        raise SnapshotUnreadable(f"the metadata snapshot cannot be understood: {error}") from error
    if encode_image(image) != data:
        raise SnapshotUnreadable("the metadata snapshot is not in its canonical form; it was not written by a broker")
    return image


def _image_of(snapshot: _Snapshot) -> ClusterImage:
    image = snapshot.image
    topics = {name: replace(topic, configs=in_order(topic.configs)) for name, topic in image.topics.items()}
    return replace(
        image,
        brokers=in_order({broker.node_id: broker for broker in snapshot.brokers}),
        topics=in_order(topics),
        deleted_topics=in_order(image.deleted_topics),
    )
