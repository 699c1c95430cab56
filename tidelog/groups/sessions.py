"""Deadlines of members: soft state, beside a shard, of the broker that coordinates its groups.

Two kinds. A member that is not heard of for its session is expelled; so is one that keeps for its rebalance timeout
what it was told to give up. A coordinator that takes over knows of no time: everybody has a full session from then on.

Times are monotonic seconds.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import Final, TypeAlias

from tidelog.groups.settings import GroupSettings
from tidelog.groups.shard import Shard
from tidelog.groups.wishes import rebalance_timeout_ms, session_timeout_ms

GroupMember: TypeAlias = tuple[str, str]


class Deadlines:
    """A deadline for each key. Equal deadlines come up by key, so that a run can be repeated."""

    def __init__(self) -> None:
        self._due_s: Final = dict[GroupMember, float]()
        self._heap: Final = list[tuple[float, GroupMember]]()
        self._queued_s: Final = dict[GroupMember, float]()
        """When the key comes up in the heap: not later than it is due."""

    def set(self, key: GroupMember, due_s: float) -> None:
        """Sets the deadline of this key, whatever it was."""
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
        due = list[GroupMember]()
        while (key := self.pop(now_s)) is not None:
            due.append(key)
        return due

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
    """The deadlines of all members of a shard."""

    def __init__(self) -> None:
        self._heard: Final = Deadlines()
        self._giving_up: Final = Deadlines()
        self._epochs: Final = dict[GroupMember, int]()
        """The epoch under which each member was told to give something up."""

    def heard(self, group: str, member_id: str, timeout_ms: int, now_s: float) -> None:
        """Begins the member's session anew; without another heartbeat it is expelled after `timeout_ms`."""
        self._heard.set((group, member_id), now_s + timeout_ms / 1000)

    def giving_up(self, group: str, member_id: str, epoch: int, timeout_ms: int, now_s: float) -> None:
        """Notes that the member was told, with this epoch, to give something up within `timeout_ms`."""
        key = group, member_id
        # Told again with the same epoch, the member gets no more time; else one that never gives up would keep its
        # partitions.
        if self._epochs.get(key) != epoch:
            self._epochs[key] = epoch
            self._giving_up.set(key, now_s + timeout_ms / 1000)

    def gave_up(self, group: str, member_id: str) -> None:
        """Notes that the member has nothing left to give up."""
        if self._epochs.pop((group, member_id), None) is not None:
            self._giving_up.drop((group, member_id))

    def forget(self, group: str, member_id: str) -> None:
        """Forgets the deadlines of a member that is gone."""
        self._heard.drop((group, member_id))
        self.gave_up(group, member_id)

    def expired(self, now_s: float) -> list[GroupMember]:
        """Removes the members whose deadline has passed, and returns them by group and id, each once. `upkeep.expelled`
        says what follows."""
        # Sorted, and each once: a member may be silent and late at the same time, and runs must be repeatable.
        members = sorted(dict.fromkeys((*self._heard.pop_due(now_s), *self._giving_up.pop_due(now_s))))
        for group, member_id in members:
            self.forget(group, member_id)
        return members

    def next_s(self) -> float | None:
        """Returns when the next member expires, if none is heard before; None without members."""
        times = [at_s for at_s in (self._heard.next_s(), self._giving_up.next_s()) if at_s is not None]
        return min(times, default=None)

    def follow(self, shard: Shard, group: str, member_id: str, settings: GroupSettings, now_s: float) -> None:
        """Sets the deadlines of a member anew, after its heartbeat was decided and applied."""
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
        """Returns the sessions of a shard that was just loaded: a full session for everybody."""
        sessions = cls()
        for name in sorted(shard.groups):
            for member_id in sorted(shard.groups[name].members):
                # Nothing is known of when a member was heard last, and one that lives must not be expelled for the
                # coordinator's change.
                sessions.follow(shard, name, member_id, settings, now_s)
        return sessions
