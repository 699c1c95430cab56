"""Applies the records about brokers to the image: registrations, fences, the voter ids of their disks, and time marks.

A registration makes a broker anew; its *epoch* is the position of that record. What was decided about an earlier life
of a broker does not touch the present one. Voter ids, starts and time marks belong to the disk, and stay with it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from types import MappingProxyType

from tidelog.controller.apply_topics import still_held
from tidelog.controller.commands import Stamped
from tidelog.controller.records import (
    BrokerFenced,
    BrokerRegistered,
    BrokersStamped,
    BrokerUnfenced,
    BrokerUnregistered,
    VoterAssigned,
)
from tidelog.model.cluster import NO_VOTER, BrokerInfo, ClusterImage, in_order
from tidelog.model.ids import NodeId

BrokerRecord = BrokerRegistered | BrokerFenced | BrokerUnfenced | BrokerUnregistered | BrokersStamped | VoterAssigned


def apply_to_brokers(image: ClusterImage, record: BrokerRecord, offset: int) -> ClusterImage:
    """Returns the image after a record about brokers, which is at `offset` in the metadata log."""
    if isinstance(record, BrokersStamped):
        return _stamp(image, record.stamps)
    node = NodeId(record.node_id)
    if isinstance(record, BrokerRegistered):
        return _with_broker(image, _registered(image, record, offset))
    broker = image.brokers.get(node)
    if isinstance(record, VoterAssigned):
        # The id is used up even if its broker has another disk by now, or is gone.
        image = replace(image, next_voter_id=max(image.next_voter_id, record.voter_id + 1))
        if broker is None or broker.storage != record.storage:
            return image
        return _with_broker(image, replace(broker, voter_id=record.voter_id))
    # The record was decided about an earlier life of the broker; the present one is not fenced by it.
    if broker is None or broker.epoch != record.epoch:
        return image
    if isinstance(record, BrokerUnregistered):
        return _without_broker(image, node)
    return _with_broker(image, replace(broker, is_fenced=isinstance(record, BrokerFenced)))


def _registered(image: ClusterImage, record: BrokerRegistered, offset: int) -> BrokerInfo:
    """Returns the entry of a registering broker, with its disk's voter id if it has one."""
    node = NodeId(record.node_id)
    previous = image.brokers.get(node)
    # Voter id, starts and marks belong to the disk: a new one begins without them.
    on_this_disk = previous if previous is not None and previous.storage == record.storage else None
    voter_id = NO_VOTER if on_this_disk is None else on_this_disk.voter_id
    # A founder votes before it registers for the first time.
    for voter in image.voters:
        if (voter.node_id, voter.incarnation) == (node, record.storage):
            voter_id = voter.voter_id
    return BrokerInfo(
        node,
        in_order(record.advertised),
        record.rack,
        offset,
        record.incarnation,
        record.peer_host,
        record.peer_port,
        record.storage,
        # Until a heartbeat shows that it has applied this record, the broker would act on metadata of its last life.
        is_fenced=True,
        voter_id=voter_id,
        # The most that a directory has ever shown: a copy of it that shows less is an old one.
        starts=max(record.starts, 0 if on_this_disk is None else on_this_disk.starts),
        stamp=max(record.stamp, 0 if on_this_disk is None else on_this_disk.stamp),
        levels=record.levels,
    )


def _stamp(image: ClusterImage, stamps: Iterable[Stamped]) -> ClusterImage:
    brokers = dict(image.brokers)
    for stamped in stamps:
        broker = brokers.get(NodeId(stamped.node_id))
        # A mark of an earlier process may be one of another directory.
        if broker is not None and broker.epoch == stamped.broker_epoch:
            brokers[broker.node_id] = replace(broker, stamp=max(broker.stamp, stamped.stamp))
    return replace(image, brokers=MappingProxyType(brokers))


def _with_broker(image: ClusterImage, broker: BrokerInfo) -> ClusterImage:
    brokers = {**image.brokers, broker.node_id: broker}
    # A broker that registers again on the disk that votes is back: its voter need not go.
    staying = tuple(voter_id for voter_id in image.voters_leaving if voter_id != broker.voter_id)
    return replace(image, brokers=in_order(brokers), voters_leaving=staying)


def _without_broker(image: ClusterImage, node: NodeId) -> ClusterImage:
    brokers = {node_id: broker for node_id, broker in image.brokers.items() if node_id != node}
    # A removed broker never reports that its data are gone, and would keep deleted topics in the image for ever.
    left = {
        topic_id: tuple(holder for holder in holders if holder != node)
        for topic_id, holders in image.deleted_topics.items()
    }
    # The metadata log still counts these voters, so the controller takes them out one by one (`voting`).
    leaving = [voter.voter_id for voter in image.voters if voter.node_id == node]
    return replace(
        image,
        brokers=MappingProxyType(brokers),
        deleted_topics=still_held(left),
        voters_leaving=tuple(sorted({*image.voters_leaving, *leaving})),
    )
