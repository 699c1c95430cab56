"""Deadlines of members: soft state, beside a shard, of the broker that coordinates its groups.

Two kinds. A member that is not heard of for its session is expelled; so is one that keeps for its rebalance timeout
what it was told to give up. A coordinator that takes over knows of no time: everybody has a full session from then on.

Times are monotonic seconds. Deadlines are in heaps that are cleaned lazily: whoever is heard again is not looked for in
the heap; its old entry, when it comes up, is put back with the new deadline. So an entry is touched once a session, not
once a heartbeat.
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
        if key not in self._queued_s or due_s < self._queued_s[key]:
            self._queued_s[key] = due_s
            heappush(self._heap, (due_s, key))

    def drop(self, key: GroupMember) -> None:
        self._due_s.pop(key, None)

    def __contains__(self, key: GroupMember) -> bool:
        return key in self._due_s

    def pop_due(self, now_s: float) -> list[GroupMember]:
        """Removes the deadlines that have passed; returns their keys."""
        due = list[GroupMember]()
        while (key := self.pop(now_s)) is not None:
            due.append(key)
        return due

    def pop(self, now_s: float) -> GroupMember | None:
        """The first whose time has come; it has no deadline any more. None if there is no such."""
        at_s = self.next_s()
        if at_s is None or at_s > now_s:
            return None
        key = self._heap[0][1]
        self.drop(key)
        return key

    def next_s(self) -> float | None:
        """The earliest deadline; None without any."""
        while self._heap:
            at_s, key = self._heap[0]
            due_s = self._due_s.get(key)
            if due_s == at_s:
                return at_s
            heappop(self._heap)
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
        """The member has spoken; it is expelled after so long a silence."""
        self._heard.set((group, member_id), now_s + timeout_ms / 1000)

    def giving_up(self, group: str, member_id: str, epoch: int, timeout_ms: int, now_s: float) -> None:
        """The member was told, with this epoch, to give something up. Told again, it has no more time."""
        key = group, member_id
        if self._epochs.get(key) != epoch:
            self._epochs[key] = epoch
            self._giving_up.set(key, now_s + timeout_ms / 1000)

    def gave_up(self, group: str, member_id: str) -> None:
        """The member has nothing left to give up."""
        if self._epochs.pop((group, member_id), None) is not None:
            self._giving_up.drop((group, member_id))

    def forget(self, group: str, member_id: str) -> None:
        """The member is none any more."""
        self._heard.drop((group, member_id))
        self.gave_up(group, member_id)

    def expired(self, now_s: float) -> list[GroupMember]:
        """Members, by group and id, whose time has come, each once; they are forgotten here. `upkeep.expelled` says
        what follows."""
        found = sorted(dict.fromkeys((*self._heard.pop_due(now_s), *self._giving_up.pop_due(now_s))))
        for group, member_id in found:
            self.forget(group, member_id)
        return found

    def next_s(self) -> float | None:
        """When somebody expires, if nobody speaks before."""
        times = [at_s for at_s in (self._heard.next_s(), self._giving_up.next_s()) if at_s is not None]
        return min(times, default=None)

    def follow(self, shard: Shard, group: str, member_id: str, settings: GroupSettings, now_s: float) -> None:
        """All of the above, after a heartbeat of this member was decided and applied."""
        known = shard.groups.get(group)
        member = None if known is None else known.members.get(member_id)
        if known is None or member is None:
            self.forget(group, member_id)
            return
        self.heard(group, member_id, session_timeout_ms(member, settings), now_s)
        current = known.currents[member_id]
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
                sessions.follow(shard, name, member_id, settings, now_s)
        return sessions
