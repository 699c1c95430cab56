"""Decisions about joins to a classic group.

A member without an id is given one. A dynamic member becomes a member only when it joins again with that id; otherwise
the id expires after a session timeout (KIP-394). A static member takes over from the member with the same
`group.instance.id`, which is fenced. In a stable group this causes no rebalance: the new process gets the old one's
assignment at once (KIP-345).

A member that joins again without a change keeps the generation: it has only missed its first answer. Otherwise a
rebalance begins.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from msgspec import structs

from tidelog.groups.classic.members import check_protocols, check_room, fenced, member_from, member_of, unknown
from tidelog.groups.classic.rebalance import chosen_protocol, join_answer, joining_grows, prepare, rebalancing
from tidelog.groups.classic.state import Member, Phase, record_of
from tidelog.groups.classic.turn import Turn
from tidelog.model.classic_groups import JoinAnswer, JoinGroup
from tidelog.model.errors import MemberIdRequired

NEWCOMER_S_MAX = 300.0
"""Seconds that a new member may wait for its first generation, as in Kafka. It sends no heartbeats meanwhile, so its
client may be gone."""


@dataclass(frozen=True, slots=True)
class Joiner:
    """A JoinGroup request, its number as a waiting request, and a new member id in case it has none."""

    request: JoinGroup
    wait: int
    drawn_id: str


def join(turn: Turn, joiner: Joiner) -> None:
    """Adds a member, or gives it an id to join with. Raises `UnknownMember`, `FencedInstance`, `InconsistentProtocol`
    or `GroupFull`."""
    request, group = joiner.request, turn.group
    if not request.member_id:
        _join_unknown(turn, joiner)
    elif request.member_id in group.pending:
        if request.instance_id is not None:
            # Ids are given away to dynamic members only.
            raise unknown(group.name, request.member_id)
        check_protocols(group, request)
        _add(turn, joiner, request.member_id)
    else:
        _join_again(turn, joiner, member_of(group, request))


def _join_unknown(turn: Turn, joiner: Joiner) -> None:
    request, group = joiner.request, turn.group
    holder = None if request.instance_id is None else group.instances.get(request.instance_id)
    # The instance id says that it is the same member: no need to wait for the session of its last process (KIP-345).
    if holder is not None:
        was = group.members[holder]
        check_protocols(group, request, without=was)
        _take_over(turn, joiner, was)
        return
    check_protocols(group, request)
    # A client that cannot repeat its join with an id is a member at once.
    if request.instance_id is not None or not request.requires_known_id:
        _add(turn, joiner, joiner.drawn_id)
        return
    # An id that was given away counts as a member, so that ids alone cannot fill the memory.
    check_room(group, member_from(request, joiner.drawn_id, None), turn.settings)
    # Not a member yet (KIP-394): a client whose first answer is lost, and that joins anew each time, would else leave a
    # member behind at each attempt, and every one of them be waited for.
    group.promise(joiner.drawn_id, request.session_timeout_ms)
    turn.heard[joiner.drawn_id] = None
    turn.tell(joiner.wait, MemberIdRequired(f"join again as {joiner.drawn_id!a}", joiner.drawn_id))


def _add(turn: Turn, joiner: Joiner, member_id: str) -> None:
    """Adds the caller as a member, and begins a rebalance."""
    request, group = joiner.request, turn.group
    member = member_from(request, member_id, joiner.wait)
    check_room(group, member, turn.settings)
    group.keep_promise(member_id)
    # It does not beat while its join waits, so its session says nothing of it.
    group.put(replace(member, newcomer_until_s=turn.now.monotonic_s + NEWCOMER_S_MAX))
    group.protocol_type = request.protocol_type
    turn.heard[member_id] = None
    joining_grows(group)
    prepare(turn)


def _join_again(turn: Turn, joiner: Joiner, was: Member) -> None:
    """Answers a join of an existing member: with the current generation if nothing has changed, otherwise after a
    rebalance."""
    request, group = joiner.request, turn.group
    says_the_same = was.protocols == request.protocols
    # A leader that joins again in a stable group wants a new assignment (its topics may have grown); a member that
    # joins again with the same words has only missed its answer.
    is_served = group.phase is Phase.COMPLETING or (group.phase is Phase.STABLE and group.leader != was.member_id)
    turn.heard[was.member_id] = None
    if is_served and says_the_same:
        turn.tell(joiner.wait, join_answer(group, was))
        return
    check_protocols(group, request, without=was)
    joining = member_from(request, was.member_id, joiner.wait)
    check_room(group, joining, turn.settings)
    # An earlier join of the same member is answered, so that each member has one join waiting at most.
    turn.tell(was.join_wait, rebalancing(group))
    turn.change(_rejoined(was, joining), join_wait=joiner.wait)
    prepare(turn)


def _rejoined(was: Member, said: Member) -> Member:
    """Returns the member with the values of its new join; its assignment and state stay."""
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
    """Replaces a static member by one that joined with the same instance id under a new member id."""
    group, leader_before = turn.group, turn.group.leader
    heir = member_from(joiner.request, joiner.drawn_id, joiner.wait)
    instance_id = joiner.request.instance_id
    assert instance_id is not None, "only static members take over"
    # The process before is fenced by its member id, if it is still there.
    turn.expel(was.member_id, fenced(group, instance_id))
    check_room(group, heir, turn.settings)
    group.put(replace(_rejoined(was, heir), member_id=heir.member_id, join_wait=joiner.wait, sync_wait=None))
    turn.heard[heir.member_id] = None
    # `expel` took the lead away with the member; it passes to the heir.
    if leader_before == was.member_id:
        group.leader = heir.member_id
    # The assignment in force was made for this protocol, and holds for the heir as well.
    if group.phase is Phase.STABLE and chosen_protocol(group) == group.protocol:
        _go_on(turn, joiner, leader_before)
    else:
        prepare(turn)


def _go_on(turn: Turn, joiner: Joiner, leader_before: str | None) -> None:
    """Answers a static member's join without a rebalance. A leader whose client cannot skip the assignment is told that
    another member leads."""
    group = turn.group
    member = turn.change(group.members[joiner.drawn_id], join_wait=None)
    # The generation's record names the new member id before its process hears of it.
    turn.records.append(record_of(group))
    answer = join_answer(group, member)
    if answer.members:
        answer = _not_to_assign(answer, joiner.request, leader_before)
    turn.tell(joiner.wait, answer)


def _not_to_assign(answer: JoinAnswer, request: JoinGroup, leader_before: str | None) -> JoinAnswer:
    # KIP-814: the leader may be told that it leads and has nothing to assign.
    if request.can_skip_assignment:
        return structs.replace(answer, skip_assignment=True)
    # An older client assigns whenever it is told that it leads, and the others would not hear of that. The member id
    # before is nobody's any more, so nobody takes itself for the leader.
    return structs.replace(answer, leader=leader_before or "", members=())
