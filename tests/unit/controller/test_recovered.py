"""Effects of `ClusterRecovered` on an image: epochs far beyond, in-sync sets by the disks, a lasting audit record."""

from __future__ import annotations

from types import MappingProxyType

from tidelog.controller.apply import RECOVERIES_MAX, RECOVERY_EPOCHS, apply
from tidelog.controller.records import ClusterRecovered, SyncedReplicas, decode_record, encode_record
from tidelog.controller.snapshot import decode_image, encode_image
from tidelog.model.cluster import NO_LEADER, BrokerInfo, ClusterImage, PartitionInfo, Topic, in_order
from tidelog.model.ids import NodeId, TopicId

TOPIC = TopicId("a" * 32)
ONE, TWO, THREE = NodeId(1), NodeId(2), NodeId(3)


def broker(node: NodeId, *, is_fenced: bool = False) -> BrokerInfo:
    return BrokerInfo(node, MappingProxyType({}), None, 5, "p", "h", 1, f"disk-{node}", is_fenced)


def image() -> ClusterImage:
    partition = PartitionInfo(0, ONE, 4, (ONE, TWO, THREE), (ONE, TWO), partition_epoch=7)
    topic = Topic("t", TOPIC, MappingProxyType({}), (partition,))
    brokers = in_order({ONE: broker(ONE), TWO: broker(TWO), THREE: broker(THREE, is_fenced=True)})
    return ClusterImage("c", 100, controller_epoch=3, brokers=brokers, topics=in_order({"t": topic}))


def recovered(generation: int = 1, synced: tuple[SyncedReplicas, ...] = ()) -> ClusterRecovered:
    return ClusterRecovered(generation, 1_000, "me@here", 100, ("something",), synced, "abcd")


def test_epochs_of_the_part_that_was_lost_are_not_given_out_again() -> None:
    after = apply(image(), recovered(), 500)
    (partition,) = after.topics["t"].partitions
    assert (partition.leader, partition.isr) == (ONE, (ONE, TWO))
    assert (partition.leader_epoch, partition.partition_epoch) == (4 + RECOVERY_EPOCHS, 7 + RECOVERY_EPOCHS)
    assert (after.controller_epoch, after.position) == (3 + RECOVERY_EPOCHS, 501)


def test_in_sync_is_who_holds_the_most() -> None:
    (partition,) = apply(image(), recovered(synced=(SyncedReplicas(TOPIC, 0, (2, 3)),)), 500).topics["t"].partitions
    assert (partition.leader, partition.isr, partition.elr) == (TWO, (TWO,), (THREE,))
    (partition,) = apply(image(), recovered(synced=(SyncedReplicas(TOPIC, 0, (3,)),)), 500).topics["t"].partitions
    assert (partition.leader, partition.isr, partition.elr) == (NO_LEADER, (), (THREE,))


def test_the_audit_record_stays_in_snapshots() -> None:
    after = apply(image(), recovered(generation=2), 500)
    assert decode_image(encode_image(after)) == after
    assert (after.generation, after.recoveries[0].recovery_id) == (2, "abcd")
    assert after.recoveries[0].given_up == ("something",)
    record = recovered(synced=(SyncedReplicas(TOPIC, 0, (2,)),))
    assert decode_record(encode_record(record)) == record


def test_audit_records_are_bounded() -> None:
    after = image()
    for generation in range(1, RECOVERIES_MAX + 10):
        after = apply(after, recovered(generation), 500 + generation)
    assert len(after.recoveries) == RECOVERIES_MAX and after.generation == RECOVERIES_MAX + 9
