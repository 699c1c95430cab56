"""Deciding about a join to a classic group.

A member without an id is given one. Unless it is static it is not a member yet: it has to join again with that id, or
the id is forgotten after a session (KIP-394). A static member takes over from whoever has its instance id, and whoever
that was is fenced; while the group is stable nobody else notices, and it has at once what the other one had (KIP-345).

A member that joins again changes nothing if the generation is what it takes: the answer to its first join was lost, or
its coordinator was. Otherwise everybody joins again.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from msgspec import structs

from tidelog.groups.classic.members import check_protocols, check_room, fenced, member_from, member_of, unknown
from tidelog.groups.classic.rebalance import chosen_protocol, joining_grows, prepare, rebalancing, standing
from tidelog.groups.classic.state import Member, Phase, record_of
from tidelog.groups.classic.turn import Turn
from tidelog.model.classic_groups import JoinAnswer, JoinGroup
from tidelog.model.errors import MemberIdRequired

NEWCOMER_S_MAX = 300.0
"""How long a new member waits for its first generation: it may be gone, and does not beat meanwhile. As Kafka's."""


@dataclass(frozen=True, slots=True)
class Joiner:
    """A request that waits for its answer, and the id for its member if it has none."""

    request: JoinGroup
    wait: int
    drawn_id: str


def join(turn: Turn, joiner: Joiner) -> None:
    """Raises what `JoinGroup` says, but for what `check_join` does."""
    request, group = joiner.request, turn.group
    if not request.member_id:
        _join_unknown(turn, joiner)
    elif request.member_id in group.pending:
        if request.instance_id is not None:
            raise unknown(group.name, request.member_id)
        check_protocols(group, request)
        _add(turn, joiner, request.member_id)
    else:
        _join_again(turn, joiner, member_of(group, request))


def _join_unknown(turn: Turn, joiner: Joiner) -> None:
    request, group = joiner.request, turn.group
    holder = None if request.instance_id is None else group.instances.get(request.instance_id)
    if holder is not None:
        was = group.members[holder]
        check_protocols(group, request, without=was)
        _take_over(turn, joiner, was)
        return
    check_protocols(group, request)
    if request.instance_id is not None or not request.requires_known_id:
        _add(turn, joiner, joiner.drawn_id)
        return
    check_room(group, member_from(request, joiner.drawn_id, None), turn.settings)
    group.promise(joiner.drawn_id, request.session_timeout_ms)
    turn.heard[joiner.drawn_id] = None
    turn.tell(joiner.wait, MemberIdRequired(f"join again as {joiner.drawn_id!a}", joiner.drawn_id))


def _add(turn: Turn, joiner: Joiner, member_id: str) -> None:
    """Makes the caller a member."""
    request, group = joiner.request, turn.group
    member = member_from(request, member_id, joiner.wait)
    check_room(group, member, turn.settings)
    group.keep_promise(member_id)
    group.put(replace(member, newcomer_until_s=turn.now.monotonic_s + NEWCOMER_S_MAX))
    group.protocol_type = request.protocol_type
    turn.heard[member_id] = None
    joining_grows(group)
    prepare(turn)


def _join_again(turn: Turn, joiner: Joiner, was: Member) -> None:
    """A member that is known."""
    request, group = joiner.request, turn.group
    says_the_same = was.protocols == request.protocols
    is_served = group.phase is Phase.COMPLETING or (group.phase is Phase.STABLE and group.leader != was.member_id)
    turn.heard[was.member_id] = None
    if is_served and says_the_same:
        turn.tell(joiner.wait, standing(group, was))
        return
    check_protocols(group, request, without=was)
    said = member_from(request, was.member_id, joiner.wait)
    check_room(group, said, turn.settings)
    turn.tell(was.join_wait, rebalancing(group))
    turn.change(_like(was, said), join_wait=joiner.wait)
    prepare(turn)


def _like(was: Member, said: Member) -> Member:
    """Returns the member with what it says now, and what it had."""
    return replace(
        was,
        protocols=said.protocols,
        session_timeout_ms=said.session_timeout_ms,
        rebalance_timeout_ms=said.rebalance_timeout_ms,
        client_id=said.client_id,
        client_host=said.client_host,
        kept_size=said.kept_size,
    )


# -- static members ----------------------------------------------------------------------------------------------------


def _take_over(turn: Turn, joiner: Joiner, was: Member) -> None:
    """A static member has come back, under another id."""
    group, led = turn.group, turn.group.leader
    said = member_from(joiner.request, joiner.drawn_id, joiner.wait)
    instance_id = joiner.request.instance_id
    assert instance_id is not None, "only static members take over"
    turn.expel(was.member_id, fenced(group, instance_id))
    check_room(group, said, turn.settings)
    group.put(replace(_like(was, said), member_id=said.member_id, join_wait=joiner.wait, sync_wait=None))
    turn.heard[said.member_id] = None
    if led == was.member_id:
        group.leader = said.member_id
    if group.phase is Phase.STABLE and chosen_protocol(group) == group.protocol:
        _go_on(turn, joiner, led)
    else:
        prepare(turn)


def _go_on(turn: Turn, joiner: Joiner, led: str | None) -> None:
    """Answers so that nobody else notices. A leader that cannot help assigning is told that another one leads."""
    group = turn.group
    member = turn.change(group.members[joiner.drawn_id], join_wait=None)
    turn.records.append(record_of(group))
    answer = standing(group, member)
    if answer.members:
        answer = _not_to_assign(answer, joiner.request, led)
    turn.tell(joiner.wait, answer)


def _not_to_assign(answer: JoinAnswer, request: JoinGroup, led: str | None) -> JoinAnswer:
    if request.can_skip_assignment:
        return structs.replace(answer, skip_assignment=True)
    return structs.replace(answer, leader=led or "", members=())
