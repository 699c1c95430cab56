"""Deadlines of consumer group members, in monotonic seconds. They are kept in memory by the coordinator, not in the
log.

There are two kinds: a member is removed if it is not heard from for its session timeout, or if it keeps partitions that
it was told to revoke for its rebalance timeout. After a change of coordinator all members have a full session.
"""

from __future__ import annotations

from functools import partial
from heapq import heappop, heappush
from typing import Final, TypeAlias

from tidelog.groups.settings import GroupSettings
from tidelog.groups.shard import Shard
from tidelog.groups.wishes import rebalance_timeout_ms, session_timeout_ms

GroupMember: TypeAlias = tuple[str, str]


class Deadlines:
    """Deadlines of group members. A key is a group and a member id, and has one deadline; equal deadlines come up in
    the order of keys, so that simulations are reproducible."""

    def __init__(self) -> None:
        self._due_s: Final = dict[GroupMember, float]()
        self._heap: Final = list[tuple[float, GroupMember]]()
        self._queued_s: Final = dict[GroupMember, float]()
        """Deadline of each key in the heap, not later than the real one."""

    def set(self, key: GroupMember, due_s: float) -> None:
        """Sets the deadline of a key, replacing the one before."""
        self._due_s[key] = due_s
        # The heap is cleaned lazily: a key with a later deadline is not looked for in it; its old entry is put back
        # when it comes up (`next_s`). So an entry is touched once a session, and not once a heartbeat.
        if key not in self._queued_s or due_s < self._queued_s[key]:
            self._queued_s[key] = due_s
            heappush(self._heap, (due_s, key))

    def drop(self, key: GroupMember) -> None:
        # Its entry in the heap stays, and is passed over when it comes up.
        self._due_s.pop(key, None)

    def pop_due(self, now_s: float) -> list[GroupMember]:
        """Removes the deadlines that have passed; returns their keys."""
        return list(iter(partial(self.pop, now_s), None))

    def pop(self, now_s: float) -> GroupMember | None:
        """Removes the first deadline that has passed, and returns its key; None if none has passed."""
        at_s = self.next_s()
        if at_s is None or at_s > now_s:
            return None
        key = self._heap[0][1]
        self.drop(key)
        return key

    def next_s(self) -> float | None:
        """Returns the earliest deadline; None if there is none."""
        while self._heap:
            at_s, key = self._heap[0]
            due_s = self._due_s.get(key)
            # The entry on top is the key's deadline. Any other entry is an old one: of a key dropped, or heard since.
            if due_s == at_s:
                return at_s
            heappop(self._heap)
            # Of several entries for one key only the one that `_queued_s` notes may put the key back.
            if self._queued_s.get(key) == at_s:
                del self._queued_s[key]
                if due_s is not None:
                    self.set(key, due_s)
        return None


class Sessions:
    """Session and revocation deadlines of all members of a shard (one partition of `__consumer_offsets`)."""

    def __init__(self) -> None:
        self._heard: Final = Deadlines()
        self._giving_up: Final = Deadlines()
        self._epochs: Final = dict[GroupMember, int]()
        """The member epoch with which each member was told to revoke partitions, by group and member id."""

    def heard(self, group: str, member_id: str, timeout_ms: int, now_s: float) -> None:
        """Restarts the member's session: without another heartbeat it expires after `timeout_ms`."""
        self._heard.set((group, member_id), now_s + timeout_ms / 1000)

    def giving_up(self, group: str, member_id: str, epoch: int, timeout_ms: int, now_s: float) -> None:
        """Notes that the member was told, with this epoch, to revoke partitions within `timeout_ms`."""
        key = group, member_id
        # Told again with the same epoch, the member gets no more time; else one that never gives up would keep its
        # partitions.
        if self._epochs.get(key) != epoch:
            self._epochs[key] = epoch
            self._giving_up.set(key, now_s + timeout_ms / 1000)

    def gave_up(self, group: str, member_id: str) -> None:
        """Notes that the member has nothing left to revoke."""
        if self._epochs.pop((group, member_id), None) is not None:
            self._giving_up.drop((group, member_id))

    def forget(self, group: str, member_id: str) -> None:
        """Removes the deadlines of a member that has left."""
        self._heard.drop((group, member_id))
        self.gave_up(group, member_id)

    def expired(self, now_s: float) -> list[GroupMember]:
        """Removes the deadlines that have passed; returns their members by group and id, each once. `upkeep.expelled`
        makes the records that remove them."""
        # Sorted, and each once: a member may be silent and late at the same time, and runs must be repeatable.
        members = sorted(dict.fromkeys((*self._heard.pop_due(now_s), *self._giving_up.pop_due(now_s))))
        for group, member_id in members:
            self.forget(group, member_id)
        return members

    def next_s(self) -> float | None:
        """Returns the next deadline of any member; None without members."""
        times = [at_s for at_s in (self._heard.next_s(), self._giving_up.next_s()) if at_s is not None]
        return min(times, default=None)

    def follow(self, shard: Shard, group: str, member_id: str, settings: GroupSettings, now_s: float) -> None:
        """Updates the deadlines of a member, after its heartbeat was decided and applied."""
        entry = shard.groups.get(group)
        member = None if entry is None else entry.members.get(member_id)
        # The heartbeat that was applied may have been a leave.
        if entry is None or member is None:
            self.forget(group, member_id)
            return
        self.heard(group, member_id, session_timeout_ms(member, settings), now_s)
        current = entry.currents[member_id]
        # The rebalance timeout runs only while the member has something to give up.
        if current.revoking:
            self.giving_up(group, member_id, current.epoch, rebalance_timeout_ms(member), now_s)
        else:
            self.gave_up(group, member_id)

    @classmethod
    def of(cls, shard: Shard, settings: GroupSettings, now_s: float) -> Sessions:
        """Returns the deadlines for the groups of a shard that was just loaded: a full session for each member."""
        sessions = cls()
        for name in sorted(shard.groups):
            for member_id in sorted(shard.groups[name].members):
                # Nothing is known of when a member was heard last, and one that lives must not be expelled for the
                # coordinator's change.
                sessions.follow(shard, name, member_id, settings, now_s)
        return sessions
