"""The active controller's own initiatives, looked at in each tick. Pure."""

from __future__ import annotations

from tidelog.config.schema import BrokerConfig
from tidelog.controller.commands import AgreeSnapshot, FenceBroker, NoteStamps, Stamped, TakeSnapshot
from tidelog.controller.decide_brokers import is_voting
from tidelog.controller.decide_partitions import elect_leaders
from tidelog.controller.partition_commands import ElectionType, ElectLeaders
from tidelog.controller.sessions import Sessions
from tidelog.model.cluster import ClusterImage


def overdue(image: ClusterImage, sessions: Sessions, now_s: float) -> list[FenceBroker]:
    """Returns commands that fence the live brokers that were not heard of for a session's time."""
    return [FenceBroker(node, broker_epoch) for node, broker_epoch in sessions.expired(image, now_s)]


def misled(image: ClusterImage, config: BrokerConfig) -> ElectLeaders | None:
    """Returns the command that elects preferred leaders that are in sync; None if it would change nothing, or is not
    wanted."""
    if not config.auto_leader_rebalance_enable:
        return None
    command = ElectLeaders(ElectionType.PREFERRED)
    return command if elect_leaders(image, command, config).records else None


def fresh_stamps(image: ClusterImage, sessions: Sessions) -> NoteStamps | None:
    """The time marks that brokers have told, and that the metadata do not have yet; None if there are none."""
    told = [(broker, sessions.of(node)) for node, broker in image.brokers.items()]
    stamps = [
        Stamped(broker.node_id, broker.epoch, session.stamp)
        for broker, session in told
        if session is not None and session.broker_epoch == broker.epoch and session.stamp > broker.stamp
    ]
    return NoteStamps(stamps) if stamps else None


def next_snapshot(
    image: ClusterImage, sessions: Sessions, *, every_records: int
) -> TakeSnapshot | AgreeSnapshot | None:
    """The newest snapshot agreed, if a majority of the voters report the same; else a new one, if the log has grown.

    A snapshot that voters disagree about is never agreed: one of them has gone astray, and the log must stay until a
    later snapshot finds a majority.
    """
    if image.snapshot_agreed < image.snapshot_position:
        reported = _reported(image, sessions)
        majority = len(image.voters) // 2 + 1
        agreed = [root_hash for root_hash in dict.fromkeys(reported) if reported.count(root_hash) >= majority]
        if agreed:
            return AgreeSnapshot(image.snapshot_position, agreed[0])
    return TakeSnapshot() if image.position - image.snapshot_position >= every_records else None


def _reported(image: ClusterImage, sessions: Sessions) -> list[str]:
    """Root hashes of the newest snapshot, as the voters say."""
    live = [voter.node_id for voter in image.voters if is_voting(image, voter.voter_id)]
    found = [sessions.of(node) for node in live]
    return [
        session.snapshot_hash
        for session in found
        if session is not None and session.snapshot_position == image.snapshot_position
    ]
