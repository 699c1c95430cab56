"""The active controller's own commands, which it issues at its periodic tick. Pure."""

from __future__ import annotations

from tidelog.config.schema import BrokerConfig
from tidelog.controller.commands import AgreeSnapshot, FenceBroker, NoteStamps, Stamped, TakeSnapshot
from tidelog.controller.decide_brokers import is_voting
from tidelog.controller.decide_partitions import elect_leaders
from tidelog.controller.partition_commands import ElectionType, ElectLeaders
from tidelog.controller.sessions import Sessions
from tidelog.model.cluster import ClusterImage


def overdue(image: ClusterImage, sessions: Sessions, now_s: float) -> list[FenceBroker]:
    """Returns commands that fence the live brokers whose sessions have expired."""
    return [FenceBroker(node, broker_epoch) for node, broker_epoch in sessions.expired(image, now_s)]


def preferred_election(image: ClusterImage, config: BrokerConfig) -> ElectLeaders | None:
    """Returns the command that elects preferred leaders that are in sync; None if it would change nothing, or is turned
    off."""
    if not config.auto_leader_rebalance_enable:
        return None
    command = ElectLeaders(ElectionType.PREFERRED)
    # Deciding is pure, so the election is tried on this image first, and asked for only if it changes something.
    return command if elect_leaders(image, command, config).records else None


def fresh_stamps(image: ClusterImage, sessions: Sessions) -> NoteStamps | None:
    """Returns the command that records the brokers' reported time marks (counters in their data directories); None if
    the metadata have them all."""
    brokers = [(broker, sessions.of(node)) for node, broker in image.brokers.items()]
    stamps = [
        Stamped(broker.node_id, broker.epoch, session.stamp)
        for broker, session in brokers
        if session is not None and session.broker_epoch == broker.epoch and session.stamp > broker.stamp
    ]
    return NoteStamps(stamps) if stamps else None


def next_snapshot(
    image: ClusterImage, sessions: Sessions, *, every_records: int
) -> TakeSnapshot | AgreeSnapshot | None:
    """Returns the command that records agreement on the newest snapshot, if a majority of the voters report the same
    root hash; else the command to write a new snapshot, if the log has grown by `every_records`; else None.

    A snapshot about which voters disagree is never agreed: one of them has diverged, and the log must stay until a
    later snapshot finds a majority.
    """
    if image.snapshot_agreed < image.snapshot_position:
        reported = _reported(image, sessions)
        # One voter's word is not enough: the log may only begin where a majority can give everything that lies before.
        majority = len(image.voters) // 2 + 1
        agreed = [root_hash for root_hash in dict.fromkeys(reported) if reported.count(root_hash) >= majority]
        if agreed:
            return AgreeSnapshot(image.snapshot_position, agreed[0])
    return TakeSnapshot() if image.position - image.snapshot_position >= every_records else None


def _reported(image: ClusterImage, sessions: Sessions) -> list[str]:
    """Returns the root hashes of the newest snapshot that live voters report."""
    # A broker that lives on another disk may hold a snapshot, and still no vote.
    live = [voter.node_id for voter in image.voters if is_voting(image, voter.voter_id)]
    reports = [sessions.of(node) for node in live]
    return [
        session.snapshot_hash
        for session in reports
        if session is not None and session.snapshot_position == image.snapshot_position
    ]
