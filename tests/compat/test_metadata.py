"""Metadata records and snapshots that older versions wrote: registrations of when a broker had one address for clients,
and partitions of when nobody noted since when their replicas are there."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.controller.test_snapshot import rich
from tidelog.controller.apply import apply
from tidelog.controller.records import decode_record, encode_record
from tidelog.controller.snapshot import SnapshotUnreadable, decode_image, encode_image
from tidelog.model.cluster import ClusterImage, Endpoint, in_order
from tidelog.model.ids import NodeId
from tidelog.model.levels import FIRST_LEVEL, LEVEL_MIN

SNAPSHOTS = {
    version: (Path(__file__).parent / "v1" / "metadata" / f"snapshot-{version}.json").read_bytes()
    for version in (4, 5, 6)
}
SNAPSHOT = SNAPSHOTS[4]
RECOVERED = (
    b'{"brokers":[],"format":7,"image":{"brokers":{},"cluster_id":"c","controller_epoch":0,"controller_id":-1,'
    b'"deleted_topics":{},"moves_throttle":0,"next_producer_id":0,"next_voter_id":1,"position":5,"recoveries":[{"at_ms":'
    b'1000,"by":"me@here","generation":1,"given_up":["something"],"kept":4}],"snapshot_agreed":0,"snapshot_position":0,'
    b'"topics":{},"voters":[],"voters_end":1,"voters_founded":0,"voters_leaving":[]}}'
)
RECORD = (
    b'{"type":"BrokerRegistered","node_id":1,"incarnation":"process","host":"10.0.0.1","port":8082,"rack":"rack-a",'
    b'"peer_host":"10.0.0.1","peer_port":9192,"storage":"disk-1","is_clean":true}'
)


def test_the_address_in_an_old_record_is_that_of_the_http_listener() -> None:
    record = decode_record(RECORD)
    assert encode_record(record) == RECORD
    broker = apply(ClusterImage("c"), record, 5).brokers[NodeId(1)]
    assert dict(broker.listeners) == {"http": Endpoint("10.0.0.1", 8082)}
    assert broker.http == Endpoint("10.0.0.1", 8082)
    assert (broker.peer_host, broker.peer_port, broker.rack, broker.epoch) == ("10.0.0.1", 9192, "rack-a", 5)


def of_the_first_level(image: ClusterImage) -> ClusterImage:
    """The image as it is at the first feature level, where nobody knows when its replicas began."""
    topics = {
        name: replace(
            topic,
            partitions=tuple(
                replace(info, since=tuple((node, 0) for node in info.replicas)) for info in topic.partitions
            ),
        )
        for name, topic in image.topics.items()
    }
    return replace(image, topics=in_order(topics), level=LEVEL_MIN)


@pytest.mark.parametrize("version", SNAPSHOTS)
def test_an_older_snapshot_has_the_image_that_its_brokers_had(version: int) -> None:
    image, rich_image = decode_image(SNAPSHOTS[version]), rich().image
    silent = {node: replace(broker, levels=FIRST_LEVEL) for node, broker in rich_image.brokers.items()}
    rich_image = replace(rich_image, brokers=in_order(silent))
    if version < 6:
        rich_image = of_the_first_level(rich_image)
    elif version < 10:
        rich_image = replace(rich_image, level=2)
    assert image == rich_image
    assert [str(broker.http) for broker in image.brokers.values()] == [
        "10.0.0.1:8082",
        "10.0.0.2:8082",
        "10.0.0.10:8082",
    ]
    assert encode_image(image) == encode_image(rich_image)
    assert (b'"format":5' if version < 6 else b'"format":9') in encode_image(image)


@pytest.mark.parametrize(("level", "since"), [(1, ((2, 0), (3, 0))), (2, ((2, 7), (3, 9)))])
def test_a_partition_of_an_old_record_is_there_since_that_record(level: int, since: object) -> None:
    """At the first feature level nobody knows, as its brokers did not."""
    created = (
        b'{"type":"TopicCreated","name":"t","topic_id":"74000000000000000000000000000000","assignments":[[1,2]],'
        b'"configs":{}}'
    )
    changed = (
        b'{"type":"PartitionsChanged","changes":[{"topic_id":"74000000000000000000000000000000","partition":0,'
        b'"leader":2,"leader_epoch":1,"isr":[2],"partition_epoch":1,"replicas":[2,3]}]}'
    )
    image = ClusterImage("c", level=level)
    for offset, record in ((7, created), (9, changed)):
        assert encode_record(decode_record(record)) == record
        image = apply(image, decode_record(record), offset)
    assert image.topics["t"].partitions[0].since == since


def test_recoveries_of_format_7_have_no_ids() -> None:
    image = decode_image(RECOVERED)
    assert (image.generation, image.recoveries[0].recovery_id, image.recoveries[0].by) == (1, "", "me@here")
    assert decode_image(encode_image(image)) == image
    with pytest.raises(SnapshotUnreadable, match="canonical"):
        decode_image(RECOVERED.replace(b'"kept":4', b'"kept":4,"recovery_id":""'))


def test_a_snapshot_of_format_8_has_ids_of_recoveries_and_no_level() -> None:
    named = RECOVERED.replace(b'"format":7', b'"format":8').replace(b'"kept":4', b'"kept":4,"recovery_id":"r1"')
    image = decode_image(named)
    assert (image.recoveries[0].recovery_id, image.level) == ("r1", 2)
    for wrong in (
        named.replace(b'"cluster_id"', b'"level":2,"cluster_id"'),
        named.replace(b',"recovery_id":"r1"', b""),
    ):
        with pytest.raises(SnapshotUnreadable, match="canonical"):
            decode_image(wrong)


def test_a_snapshot_of_format_6_is_judged_as_strictly_as_ever() -> None:
    old = b'"is_founding":false,'
    assert old in SNAPSHOTS[6]
    for new in (old + b'"losses":[],', b""):
        with pytest.raises(SnapshotUnreadable, match="canonical"):
            decode_image(SNAPSHOTS[6].replace(old, new, 1))


@pytest.mark.parametrize("old", [b'"is_founding":false', b'"next_engine_id":1'])
def test_a_snapshot_of_format_5_is_judged_as_strictly_as_ever(old: bytes) -> None:
    assert old in SNAPSHOTS[5]
    with pytest.raises(SnapshotUnreadable, match="canonical"):
        decode_image(SNAPSHOTS[5].replace(old, old + b',"since":[[1,0]]', 1))
    with pytest.raises(SnapshotUnreadable, match="canonical"):
        decode_image(SNAPSHOTS[5].replace(old + b",", b"", 1))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (b'"host":"10.0.0.1"', b'"host": "10.0.0.1"', "canonical"),
        (b'"host":"10.0.0.1"', b'"host":1', "cannot be understood"),
        (b'"host":"10.0.0.1"', b'"listeners":{}', "cannot be understood"),
        (b'"format":4', b'"format":5', "cannot be understood"),
        (b'"format":4', b'"format":3', "format 3"),
    ],
)
def test_a_snapshot_of_format_4_is_judged_as_strictly_as_ever(old: bytes, new: bytes, message: str) -> None:
    assert old in SNAPSHOT
    with pytest.raises(SnapshotUnreadable, match=message):
        decode_image(SNAPSHOT.replace(old, new))
