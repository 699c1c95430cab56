"""Deadlines of classic groups. They are kept in memory by the coordinator, not in the log.

There is one for each member's session, restarted when the member is heard from, and one for each group that waits for
all members to join or sync. After a change of coordinator all begin anew.
"""

from __future__ import annotations

from typing import Final

from tidelog.groups.classic.state import ClassicGroup, Phase
from tidelog.groups.sessions import Deadlines
from tidelog.groups.shard import Shard

ALL: Final = ""
"""Stands, instead of a member id, for the group's wait for all members."""


class ClassicDeadlines(Deadlines):
    """Deadlines of all classic groups of a shard (one partition of `__consumer_offsets`), in monotonic seconds.

    Handle the one that `pop` returns before asking for the next, since it may extend others.
    """

    def heard(self, group: ClassicGroup, member_id: str, now_s: float) -> None:
        """Restarts the session of a member, or of a member id handed out for a later join. Ignores any other id."""
        member = group.members.get(member_id)
        timeout_ms = group.pending.get(member_id) if member is None else member.session_timeout_ms
        if timeout_ms is not None:
            self.set((group.name, member_id), now_s + timeout_ms / 1000)

    def follow(self, group: ClassicGroup) -> None:
        """Sets or removes the deadline of the group's wait for all members to join or sync."""
        if group.due_s is None:
            self.drop((group.name, ALL))
        else:
            self.set((group.name, ALL), group.due_s)

    @classmethod
    def of(cls, shard: Shard, now_s: float) -> ClassicDeadlines:
        """Returns the deadlines for the groups of a shard that was just loaded: full session timeouts, and the full
        time to sync."""
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
