"""Decisions about regroupings: an operator lets a partition without an electable leader continue with its remaining
replicas.

A broker has asked the replicas, at one partition epoch, which records they have; here it is checked that nothing has
changed since, and the audit record and the partition's change are written as one record. A command that comes twice
finds its own record; of two commands, the second finds that the partition has changed.

With in-sync replicas the replica that has the most leads from now on, and the others follow it. With Paxos all
remaining replicas vote, each under another id (`docs/replication-paxos.md`, "When a majority has lost its votes").
"""

from __future__ import annotations

from dataclasses import replace

from tidelog.config.schema import BrokerConfig
from tidelog.controller.broker_state import Brokers
from tidelog.controller.decide_losses import STATEMENTS_MAX, WORD_CHARS_MAX
from tidelog.controller.decide_partitions import Partitions
from tidelog.controller.decision import Decision
from tidelog.controller.leadership import change_of
from tidelog.controller.partition_commands import RegroupPartition
from tidelog.controller.protocols import rules_of
from tidelog.controller.quorum_leadership import quorum_regrouped
from tidelog.controller.records import PartitionRegrouped
from tidelog.model.cluster import NO_LEADER, ClusterImage, PartitionInfo
from tidelog.model.errors import InvalidRequest, LossRefused, UnknownPartition, UnknownTopic
from tidelog.model.ids import NodeId


def regroup(image: ClusterImage, command: RegroupPartition, config: BrokerConfig) -> Decision:
    """Returns the record by which a partition continues with the replicas that are kept.

    Raises `UnknownTopic`, `UnknownPartition`, `InvalidRequest`, or `LossRefused` if the partition has changed.
    """
    _check(command)
    partitions = Partitions(image, config)
    if image.topic_by_id(command.topic_id) is None:
        raise UnknownTopic("the topic was deleted meanwhile; nothing was given up")
    entry = partitions.find(command.topic_id, command.partition)
    if entry is None:
        raise UnknownPartition(f"there is no partition {command.partition}; nothing was given up")
    topic, info = entry
    # A repetition, whose first answer was lost, finds its own record, and must not give up anything again.
    if any(
        (regrouping.at_ms, regrouping.by, regrouping.via) == (command.at_ms, command.by, command.via)
        for regrouping in info.regroupings
    ):
        return Decision()
    kept = tuple(node for node in info.replicas if node in command.kept)
    # The operator has agreed to what the replicas said at this epoch. After a change, somebody may lead, or hold more.
    is_as_found = info.partition_epoch == command.partition_epoch and len(kept) == len(command.kept)
    if not is_as_found or not all(image.is_live(node) for node in kept):
        raise LossRefused("the partition has changed since its replicas were asked; nothing was given up: ask again")
    if rules_of(topic).leader_reports_members:
        # With Paxos no old vote counts any more, so nobody's promises can stand against the new leader.
        was, proposed = info, quorum_regrouped(info, kept, Brokers(image))
    else:
        was, proposed = _without_leader(info, kept), _led_by(info, command)
    change = change_of(topic, info, partitions.settle(topic, was, proposed))
    record = PartitionRegrouped(
        change,
        command.end,
        command.at_ms,
        command.by,
        command.via,
        command.source,
        command.statements,
        command.position,
        command.birth,
    )
    return Decision((record,))


def _without_leader(info: PartitionInfo, kept: tuple[NodeId, ...]) -> PartitionInfo:
    """Returns the partition without a leader, so that a new leader epoch begins. The eligible replicas (ELR) that are
    kept stay eligible."""
    # Those that are not kept are waited for no more, whatever they had acknowledged; that is what the operator gives
    # up.
    elr = tuple(node for node in kept if node in (*info.isr, *info.elr))
    return replace(info, leader=NO_LEADER, isr=(), elr=elr)


def _led_by(info: PartitionInfo, command: RegroupPartition) -> PartitionInfo:
    # Only those that are kept were seen to be live: another one could be elected, and never lead.
    if command.source not in command.kept:
        raise InvalidRequest(f"broker {command.source} is none of those that are kept; nothing was given up")
    leader = NodeId(command.source)
    # The in-sync set is the source alone: the others follow it, and truncate what it lacks.
    return replace(info, leader=leader, isr=(leader,))


def _check(command: RegroupPartition) -> None:
    words = [command.by, *(said.status for said in command.statements)]
    if not command.kept or len(set(command.kept)) < len(command.kept) or command.end < 0 or command.position < 0:
        raise InvalidRequest("a partition goes on from the replicas of one broker or more, each named once")
    if len(command.statements) > STATEMENTS_MAX or any(len(word) > WORD_CHARS_MAX for word in words):
        raise InvalidRequest("too much is said of this partition")
