"""Subscription and settings in a member's heartbeat: validation, and the member's record."""

from __future__ import annotations

from typing import Final

from msgspec import structs

from tidelog.groups.assignors import ASSIGNORS
from tidelog.groups.patterns import matcher
from tidelog.groups.records import MemberRecord
from tidelog.groups.settings import REBALANCE_TIMEOUT_MS, GroupSettings
from tidelog.model.errors import InvalidRequest, UnsupportedAssignor
from tidelog.model.groups import Heartbeat
from tidelog.model.names import check_topic_name

SUBSCRIBED_TOPICS_MAX = 1_000
TEXT_LENGTH_MAX = 255
REBALANCE_TIMEOUT_MS_MAX = 86_400_000
_WISHES: Final = ("rack", "pattern", "assignor", "session_timeout_ms", "rebalance_timeout_ms")


def newcomer(request: Heartbeat, settings: GroupSettings) -> MemberRecord:
    """Returns the record of a joining member, which must name a subscription. Raises `InvalidRequest` or
    `UnsupportedAssignor`."""
    _check(request, settings)
    if request.topics is None and request.pattern is None:
        raise InvalidRequest("who joins says what it subscribes to: give topics, or a pattern")
    return MemberRecord(
        group=request.group,
        member_id=request.member_id,
        instance_id=request.instance_id,
        client_id=request.client_id,
        client_host=request.client_host,
        rack=request.rack,
        topics=topic_names(request.topics or ()),
        pattern=request.pattern or "",
        assignor=request.assignor,
        session_timeout_ms=request.session_timeout_ms,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
    )


def updated(was: MemberRecord, request: Heartbeat, settings: GroupSettings) -> MemberRecord:
    """Returns the member's record as changed by the heartbeat. None, or an empty client id, keeps the old value. Raises
    `InvalidRequest` or `UnsupportedAssignor`."""
    _check(request, settings)
    # None means "as before": clients say most of this only once, in their first heartbeat.
    changes = {name: wish for name in _WISHES if (wish := getattr(request, name)) is not None}
    if request.topics is not None:
        changes["topics"] = topic_names(request.topics)
    if request.client_id:
        changes |= {"client_id": request.client_id, "client_host": request.client_host}
    return structs.replace(was, **changes) if changes else was


def subscription(member: MemberRecord) -> tuple[tuple[str, ...], str, str | None]:
    """Returns the inputs of the assignment: topics, pattern, assignor."""
    return member.topics, member.pattern, member.assignor


def topic_names(topics: tuple[str, ...]) -> tuple[str, ...]:
    """Returns the names sorted, each once, so that equal subscriptions are equal values."""
    return tuple(sorted(dict.fromkeys(topics)))


def session_timeout_ms(member: MemberRecord, settings: GroupSettings) -> int:
    """Returns the member's session timeout in ms."""
    return settings.session_timeout_ms if member.session_timeout_ms is None else member.session_timeout_ms


def rebalance_timeout_ms(member: MemberRecord) -> int:
    """Returns the member's rebalance timeout in ms: the time it may keep partitions that it was told to revoke."""
    return REBALANCE_TIMEOUT_MS if member.rebalance_timeout_ms is None else member.rebalance_timeout_ms


def _check(request: Heartbeat, settings: GroupSettings) -> None:
    for name in request.topics or ():
        check_topic_name(name)
    if request.topics is not None and len(request.topics) > SUBSCRIBED_TOPICS_MAX:
        raise InvalidRequest(f"a member subscribes to at most {SUBSCRIBED_TOPICS_MAX} topics by name; use a pattern")
    # Compiled here, so that a pattern which is none is refused with the heartbeat, and not met in a rebalance.
    if request.pattern:
        matcher(request.pattern)
    if request.assignor is not None and request.assignor not in ASSIGNORS:
        raise UnsupportedAssignor(f"there is no assignor {request.assignor!a}; use one of {', '.join(ASSIGNORS)}")
    for what, text in (("client_id", request.client_id), ("client_host", request.client_host), ("rack", request.rack)):
        if text is not None and len(text) > TEXT_LENGTH_MAX:
            raise InvalidRequest(f"{what} has at most {TEXT_LENGTH_MAX} characters; this one has {len(text)}")
    _check_time("session_timeout_ms", request.session_timeout_ms, *settings.session_timeouts_ms)
    _check_time("rebalance_timeout_ms", request.rebalance_timeout_ms, 1, REBALANCE_TIMEOUT_MS_MAX)


def _check_time(what: str, time_ms: int | None, least: int, most: int) -> None:
    if time_ms is not None and not least <= time_ms <= most:
        raise InvalidRequest(f"{what} is {least} to {most}; this one is {time_ms}")
