"""Long polls: heartbeats whose answer waits for a change of the group, so that a member hears of a rebalance at once.

A member has at most one: a newer heartbeat ends the one before. Beyond `POLLS_MAX` a heartbeat is answered without a
wait.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Final

POLLS_MAX: Final = 10_000
"""Maximum number of long polls waiting at one coordinator."""


class Polls:
    """The long polls of one coordinator, by group and member."""

    def __init__(self, polls_max: int = POLLS_MAX) -> None:
        self._polls_max = polls_max
        self._groups: dict[str, dict[str, asyncio.Future[None]]] = {}
        self.waiting = 0

    async def wait(self, group: str, member_id: str, has_news: Callable[[], bool], until_s: float) -> None:
        """Waits until `has_news()` is true (checked at each change of the group), the member sends another heartbeat,
        or `until_s` (loop time) has passed. Returns at once if too many long polls wait."""
        # The member's earlier poll ends first, even if this one will not wait: it speaks of what the member was.
        self.heard(group, member_id)
        # Looked at once more before the wait: a change between the decision and now has woken nobody.
        if self.waiting >= self._polls_max or has_news():
            return
        self.waiting += 1
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout_at(until_s):
                    while await self._changed(group, member_id) and not has_news():
                        pass
        finally:
            self.waiting -= 1

    async def _changed(self, group: str, member_id: str) -> bool:
        """Waits for a change of the group. Returns False if the member sent another heartbeat meanwhile."""
        members = self._groups.setdefault(group, {})
        changed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        members[member_id] = changed
        try:
            await changed
        finally:
            # A newer poll of this member may have taken the place, and stays in it.
            is_ours = members.get(member_id) is changed
            if is_ours:
                del members[member_id]
            if not members and self._groups.get(group) is members:
                del self._groups[group]
        return is_ours

    def heard(self, group: str, member_id: str) -> None:
        """Ends the member's long poll, because it has sent a newer heartbeat."""
        poll = self._groups.get(group, {}).pop(member_id, None)
        # It may be done already: woken or cancelled a moment ago, while its task has not had its turn.
        if poll is not None and not poll.done():
            poll.set_result(None)

    def changed(self, group: str) -> None:
        """Wakes the long polls of a group that has changed, so that they check `has_news` again."""
        for poll in self._groups.get(group, {}).values():
            if not poll.done():
                poll.set_result(None)

    def end(self) -> None:
        """Ends all long polls."""
        for group in list(self._groups):
            for member_id in list(self._groups[group]):
                self.heard(group, member_id)
