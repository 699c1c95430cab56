"""Decisions about members that leave a classic group, and about expired sessions."""

from __future__ import annotations

from tidelog.groups.classic.members import named_member, unknown
from tidelog.groups.classic.rebalance import complete_if_all_joined, joining_is_over, prepare, syncing_is_over
from tidelog.groups.classic.state import ClassicGroup
from tidelog.groups.classic.turn import Turn
from tidelog.model.classic_groups import LeaveAnswer, LeaveGroup, LeaveVerdict, Leaving
from tidelog.model.errors import TidelogError


def leave(turn: Turn, request: LeaveGroup) -> LeaveAnswer:
    """Removes the members, each with its own error or success, and begins one rebalance if any of them left."""
    before = len(turn.group.members)
    verdicts = tuple(LeaveVerdict(leaving, _expelled(turn, leaving)) for leaving in request.members)
    _go_on_without(turn, is_smaller=len(turn.group.members) < before)
    return LeaveAnswer(verdicts)


def _expelled(turn: Turn, leaving: Leaving) -> TidelogError | None:
    group = turn.group
    # The id was given away, and its client will not join with it.
    if leaving.instance_id is None and group.keep_promise(leaving.member_id):
        return None
    try:
        member_id = _member_id_of(group, leaving)
    except TidelogError as error:
        return error
    turn.expel(member_id, unknown(group.name, member_id))
    return None


def _member_id_of(group: ClassicGroup, leaving: Leaving) -> str:
    """Returns the id of a leaving member. Administrators name a static member by its instance id only."""
    if not leaving.member_id and leaving.instance_id is not None:
        holder = group.instances.get(leaving.instance_id)
        if holder is None:
            raise unknown(group.name, leaving.instance_id)
        return holder
    return named_member(group, leaving.member_id, leaving.instance_id).member_id


def silence(turn: Turn, member_id: str) -> None:
    """Handles the expired session of a member or a handed-out id. A member whose request waits for an answer sends no
    heartbeats and stays, except a new member that has waited for `NEWCOMER_S_MAX`."""
    group = turn.group
    # The others' joins may have waited only for this id.
    if group.keep_promise(member_id):
        complete_if_all_joined(turn)
        return
    member = group.members.get(member_id)
    if member is None:
        return
    is_given_up = member.newcomer_until_s is not None and turn.now.monotonic_s >= member.newcomer_until_s
    # A member that waits does not beat: its request is the sign of life. A newcomer's may be all that is left of it.
    if (member.join_wait is not None and not is_given_up) or member.sync_wait is not None:
        turn.heard[member_id] = None
        return
    turn.expel(member_id, unknown(group.name, member_id))
    _go_on_without(turn, is_smaller=True)


def time_is_up(turn: Turn) -> None:
    """Handles the deadline of the group's wait for members to join or to sync."""
    if turn.group.joining is not None:
        joining_is_over(turn)
    elif turn.group.syncing_until_s is not None:
        syncing_is_over(turn)


def _go_on_without(turn: Turn, *, is_smaller: bool) -> None:
    if is_smaller:
        prepare(turn)
    else:
        # An id that was given away may have been all that the others' joins waited for.
        complete_if_all_joined(turn)
