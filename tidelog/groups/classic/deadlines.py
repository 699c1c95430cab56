"""Deadlines of classic groups: soft state, beside a shard, of the broker that coordinates its groups.

One for each member's session, which begins anew when the member is heard; one for each group that waits for all to
join, or to sync. A coordinator that takes over knows of no time: everything begins anew then.
"""

from __future__ import annotations

from typing import Final

from tidelog.groups.classic.state import ClassicGroup, Phase
from tidelog.groups.sessions import Deadlines, GroupMember
from tidelog.groups.shard import Shard

ALL: Final = ""
"""Stands, in place of a member id, for a group that waits for all of its members."""


class ClassicDeadlines:
    """The deadlines of all classic groups of a shard; times are monotonic seconds."""

    def __init__(self) -> None:
        self._deadlines = Deadlines()

    def heard(self, group: ClassicGroup, member_id: str, now_s: float) -> None:
        """Begins the session of a member, or of an id that was given away, anew; any other id is passed over."""
        member = group.members.get(member_id)
        timeout_ms = group.pending.get(member_id) if member is None else member.session_timeout_ms
        if timeout_ms is not None:
            self._deadlines.set((group.name, member_id), now_s + timeout_ms / 1000)

    def follow(self, group: ClassicGroup) -> None:
        """Sets the deadline of the group's wait for all members, or drops it."""
        if group.due_s is None:
            self._deadlines.drop((group.name, ALL))
        else:
            self._deadlines.set((group.name, ALL), group.due_s)

    def later(self, group: str, member_id: str, due_s: float) -> None:
        """Puts off what was due and could not be done."""
        self._deadlines.set((group, member_id), due_s)

    def pop(self, now_s: float) -> GroupMember | None:
        """Returns what is due first, by group and member or `ALL`, and forgets it; None if nothing is due. What follows
        may give others more time, so that it is done before the next one is asked for."""
        return self._deadlines.pop(now_s)

    def next_s(self) -> float | None:
        """Returns when something is due, if nobody speaks before."""
        return self._deadlines.next_s()

    @classmethod
    def of(cls, shard: Shard, now_s: float) -> ClassicDeadlines:
        """Returns those of a shard that was just loaded: full sessions, and the full time to sync."""
        deadlines = cls()
        for _, group in sorted(shard.groups.items()):
            classic = group.classic
            if classic is None:
                continue
            if classic.phase is Phase.COMPLETING:
                # The generation was written, and not yet assigned: its leader gets the full time again.
                classic.syncing_until_s = now_s + classic.rebalance_s
            for member_id in classic.members:
                deadlines.heard(classic, member_id, now_s)
            deadlines.follow(classic)
        return deadlines
