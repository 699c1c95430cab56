"""Registrations that were written when a broker had one address for clients, in the metadata log and in snapshots."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.controller.test_snapshot import rich
from tidelog.controller.apply import apply
from tidelog.controller.records import decode_record, encode_record
from tidelog.controller.snapshot import SnapshotUnreadable, decode_image, encode_image
from tidelog.model.cluster import ClusterImage, Endpoint
from tidelog.model.ids import NodeId

SNAPSHOT = (Path(__file__).parent / "v1" / "metadata" / "snapshot-4.json").read_bytes()
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


def test_a_snapshot_of_format_4_has_the_image_that_its_brokers_had() -> None:
    image = decode_image(SNAPSHOT)
    assert image == rich().image
    assert [str(broker.http) for broker in image.brokers.values()] == [
        "10.0.0.1:8082",
        "10.0.0.2:8082",
        "10.0.0.10:8082",
    ]
    assert encode_image(image) == encode_image(rich().image)
    assert b'"format":5' in encode_image(image)


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
