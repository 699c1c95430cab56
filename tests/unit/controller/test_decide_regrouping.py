"""Partitions that an operator has go on from what is left of them."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from tests.unit.controller.cluster import IsrCluster, newest, topic_id
from tidelog.controller.commands import DeleteTopic, FenceBroker
from tidelog.controller.partition_commands import RegroupPartition
from tidelog.controller.snapshot import decode_image, encode_image
from tidelog.model.cluster import PAXOS, PartitionInfo
from tidelog.model.errors import InvalidRequest, LossRefused, UnknownPartition, UnknownTopic
from tidelog.model.losses import LossStatement

SAID = (LossStatement(1, "no vote"), LossStatement(2, "unreachable"))


def info(cluster: IsrCluster) -> PartitionInfo:
    return cluster.partition


def made() -> IsrCluster:
    return IsrCluster(commit_protocol=PAXOS)


def command(cluster: IsrCluster, kept: tuple[int, ...], source: int = -1) -> RegroupPartition:
    epoch = info(cluster).partition_epoch
    return RegroupPartition(topic_id("t"), 0, epoch, kept, 9, source, SAID, "op", 1, 1_000, 30, 5)


def test_those_who_are_left_vote_under_other_ids_in_an_epoch_of_their_own() -> None:
    cluster = made()
    before = info(cluster)
    asked = command(cluster, (1, 3), source=3)
    cluster.do(asked)
    after = info(cluster)
    assert [member.node_id for member in after.members] == [1, 3]
    old = {member.engine_id for member in (*before.members, *before.wanted)}
    assert not old & {member.engine_id for member in (*after.members, *after.wanted)}
    assert [member.node_id for member in sorted(after.wanted, key=lambda one: one.node_id)] == [1, 2, 3]
    assert after.leader_epoch == before.leader_epoch + 1 and not after.is_founding
    assert after.eras == (after.leader_epoch, 0)
    (one,) = after.regroupings
    assert (one.members, one.statements, one.source, one.position, one.birth) == (after.members, SAID, 3, 30, 5)
    assert decode_image(encode_image(cluster.image)) == cluster.image
    cluster.do(asked)
    assert info(cluster) == after, "a repetition finds its own record"
    with pytest.raises(LossRefused, match="has changed"):
        cluster.do(replace(asked, at_ms=2_000))
    cluster.do(replace(command(cluster, (1,)), at_ms=3_000))
    assert info(cluster).eras == (info(cluster).leader_epoch, after.leader_epoch)


def test_what_cannot_be() -> None:
    cluster = made()
    asked = command(cluster, (1, 3))
    for wrong, error in (
        (replace(asked, kept=()), InvalidRequest),
        (replace(asked, kept=(1, 1)), InvalidRequest),
        (replace(asked, kept=(1, 9)), LossRefused),
        (replace(asked, partition=4), UnknownPartition),
        (replace(asked, topic_id="no"), UnknownTopic),
        (replace(asked, by="x" * 300), InvalidRequest),
    ):
        with pytest.raises(error):
            cluster.do(wrong)
    in_sync = IsrCluster()
    with pytest.raises(InvalidRequest, match="broker 2 is none of those that are kept"):
        in_sync.do(command(in_sync, (1, 3), source=2))
    cluster.do(FenceBroker(3, newest(cluster.image, 3)))
    with pytest.raises(LossRefused, match="has changed"):
        cluster.do(replace(asked, partition_epoch=info(cluster).partition_epoch))
    cluster.do(DeleteTopic("t", topic_id("t")))
    with pytest.raises(UnknownTopic):
        cluster.do(asked)


def test_a_leader_that_waits_begins_anew_without_those_that_are_not_kept() -> None:
    cluster = IsrCluster(min_insync_replicas="3")
    for node in (1, 3):
        cluster.do(FenceBroker(node, newest(cluster.image, node)))
    cluster.heartbeat(1)
    before = info(cluster)
    assert (before.leader, before.isr, before.elr) == (2, (2,), (1, 3))
    cluster.do(command(cluster, (1, 2), source=2))
    after = info(cluster)
    assert (after.leader, after.isr, after.elr) == (2, (2,), (1,))
    assert after.leader_epoch == before.leader_epoch + 1
    assert [one.end for one in after.regroupings] == [9]
