"""Answers to members' heartbeats."""

from __future__ import annotations

from tidelog.groups.group import Current
from tidelog.groups.records import MemberRecord
from tidelog.groups.settings import GroupSettings
from tidelog.groups.wishes import session_timeout_ms
from tidelog.model.groups import HeartbeatAnswer, grouped

HEARTBEATS_PER_SESSION = 3
"""Minimum number of heartbeats per session timeout, so that one may be lost."""


def heartbeat_answer(member: MemberRecord, current: Current, settings: GroupSettings) -> HeartbeatAnswer:
    """Returns the answer to a member's heartbeat: epoch, heartbeat interval, session timeout and assignment. The
    assignment is None if the member has confirmed it."""
    session_ms = session_timeout_ms(member, settings)
    # A member with a short session has to be heard more often than the setting says.
    interval_ms = min(settings.heartbeat_interval_ms, session_ms // HEARTBEATS_PER_SESSION)
    assignment = None if current.is_told else grouped(tuple(current.held))
    return HeartbeatAnswer(member.member_id, current.epoch, interval_ms, session_ms, assignment)
