"""Members of a classic group: lookup, and validation of joins."""

from __future__ import annotations

from typing import Final

from tidelog.groups.classic.state import ClassicGroup, Member, Phase, sized
from tidelog.groups.settings import GroupSettings
from tidelog.model.classic_groups import ClassicRequest, JoinGroup
from tidelog.model.errors import (
    FencedInstance,
    GroupFull,
    InconsistentProtocol,
    InvalidRequest,
    InvalidSessionTimeout,
    UnknownMember,
)
from tidelog.model.groups import NAME_LENGTH_MAX, check_group_name

PROTOCOLS_MAX: Final = 16
METADATA_BYTES_MAX: Final = 256 << 10
"""Maximum metadata bytes of one member, for all its protocols."""
GROUP_BYTES_MAX: Final = 768 << 10
"""Maximum bytes of all members in the group's record, without assignments; with them it must still fit into one
record."""
REBALANCE_TIMEOUT_MS_MAX: Final = 86_400_000
"""Maximum rebalance timeout; longer ones (some clients send 2^31 - 1 ms) are reduced to it."""


def check_join(request: JoinGroup, settings: GroupSettings) -> None:
    """Raises `InvalidGroupName`, `InvalidSessionTimeout`, `InvalidRequest` or `InconsistentProtocol` for a join that
    would be invalid in any group."""
    check_group_name(request.group)
    least, most = settings.session_timeouts_ms
    if not least <= request.session_timeout_ms <= most:
        raise InvalidSessionTimeout(
            f"session.timeout.ms is {least} to {most} here (group.min.session.timeout.ms, "
            f"group.max.session.timeout.ms); this one is {request.session_timeout_ms}"
        )
    if not request.protocol_type or not request.protocols:
        raise InconsistentProtocol("a member names the type of its protocols, and one protocol at least")
    _check_lengths(request)


def _check_lengths(request: JoinGroup) -> None:
    names = [protocol.name for protocol in request.protocols]
    if len(names) > PROTOCOLS_MAX or len(set(names)) < len(names):
        raise InvalidRequest(f"a member names at most {PROTOCOLS_MAX} protocols, each once")
    texts = (request.member_id, request.instance_id or "", request.client_id, request.client_host)
    for text in (*texts, request.protocol_type, *names):
        if len(text) > NAME_LENGTH_MAX:
            raise InvalidRequest(f"ids and names of members have at most {NAME_LENGTH_MAX} characters")
    size = sum(len(protocol.metadata) for protocol in request.protocols)
    if size > METADATA_BYTES_MAX:
        raise InvalidRequest(f"the metadata of a member have at most {METADATA_BYTES_MAX} bytes; these have {size}")


def check_protocols(group: ClassicGroup, request: JoinGroup, without: Member | None = None) -> None:
    """Raises `InconsistentProtocol` if the member shares no protocol with the other members. `without` is its own entry
    in the group, which is ignored."""
    # Alone, a member may choose any type and protocol anew.
    if len(group.members) == (without is not None):
        return
    common = group.common_protocols(without)
    if group.protocol_type != request.protocol_type:
        raise InconsistentProtocol(
            f"group {group.name!a} is of type {group.protocol_type!a}, and the member of {request.protocol_type!a}"
        )
    if not any(protocol.name in common for protocol in request.protocols):
        raise InconsistentProtocol(
            f"the members of group {group.name!a} have {', '.join(map(ascii, common))} in common, and the new one has "
            f"{', '.join(ascii(protocol.name) for protocol in request.protocols)} (partition.assignment.strategy)"
        )


def check_room(group: ClassicGroup, member: Member, settings: GroupSettings) -> None:
    """Raises `GroupFull` if the group has no room for the member."""
    was = group.members.get(member.member_id)
    is_known = was is not None or member.member_id in group.pending
    # Ids that were given away count, or joins without ids would go past the bound.
    if not is_known and len(group.members) + len(group.pending) >= settings.classic_members_max:
        raise GroupFull(f"group {group.name!a} has as many members as it may have (group.max.size)")
    # A generation that does not fit into one record could not be written, and nobody could be told of it.
    if group.kept_size - (0 if was is None else was.kept_size) + member.kept_size > GROUP_BYTES_MAX:
        raise GroupFull(
            f"what is kept of the members of group {group.name!a} would be more than {GROUP_BYTES_MAX} bytes with this "
            f"one, and is {group.kept_size} now: use fewer members, or shorter subscriptions"
        )


def member_from(request: JoinGroup, member_id: str, wait: int | None) -> Member:
    """Returns the member that a JoinGroup describes."""
    member = Member(
        member_id=member_id,
        instance_id=request.instance_id,
        client_id=request.client_id,
        client_host=request.client_host,
        session_timeout_ms=request.session_timeout_ms,
        # Some clients say 2^31 - 1 ms; one that died would hold up the others for weeks.
        rebalance_timeout_ms=max(1, min(request.rebalance_timeout_ms, REBALANCE_TIMEOUT_MS_MAX)),
        protocols=request.protocols,
        join_wait=wait,
    )
    return sized(member)


def member_of(group: ClassicGroup, request: ClassicRequest) -> Member:
    """Returns the member that sent a request. Raises `FencedInstance` or `UnknownMember`."""
    return named_member(group, request.member_id, request.instance_id)


def named_member(group: ClassicGroup, member_id: str, instance_id: str | None) -> Member:
    """Returns the member with this id. Raises `FencedInstance` if its instance id now belongs to another member;
    `UnknownMember`."""
    if instance_id is not None:
        holder = group.instances.get(instance_id)
        # Another process has taken the instance id over: this one must stop, and not join anew (KIP-345).
        if holder is not None and holder != member_id:
            raise fenced(group, instance_id)
    member = group.members.get(member_id)
    if member is None or group.phase is Phase.EMPTY or (instance_id is not None and member.instance_id != instance_id):
        raise unknown(group.name, member_id)
    return member


def fenced(group: ClassicGroup, instance_id: str) -> FencedInstance:
    """Returns the error for a static member whose instance id another process has taken over."""
    return FencedInstance(f"another process has joined group {group.name!a} as instance {instance_id!a}; stop this one")


def unknown(group: str, member_id: str) -> UnknownMember:
    """Returns the error for a caller that is not a member."""
    return UnknownMember(f"group {group!a} has no member {member_id!a} (any more); join anew")
