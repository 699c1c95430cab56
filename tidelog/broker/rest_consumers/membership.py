"""Speaking for an instance that subscribed: it is a member of its group, and this broker beats for it.

The member is heard whenever its client is, but not more often than its session needs; and at once when its group has
changed, so that nobody waits for what it has to give up. It has a session of twice an instance's time to be quiet: who
is quiet is deleted before it is expelled.

What is given up is committed before, if the instance commits by itself: what is known to be processed. The rest of what
it has read comes again, from whoever has the partition then.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Final

from tidelog.broker.rest_consumers.commits import Commits
from tidelog.broker.rest_consumers.instance import Instance
from tidelog.model.errors import FencedMember, UnknownMember
from tidelog.model.groups import JOIN, LEAVE, Heartbeat, HeartbeatAnswer, pairs

ROUNDS_MAX: Final = 8
"""Heartbeats in a row, as long as each has news; what is left then comes when the group changes next."""


class Membership:
    """For all instances of a broker; each call has its turn of the instance."""

    def __init__(self, commits: Commits, session_timeout_ms: int) -> None:
        self._commits = commits
        self._session_timeout_ms = session_timeout_ms

    def is_due(self, instance: Instance) -> bool:
        """The member should be heard."""
        if not instance.what.is_subscribed:
            return False
        silent_s = asyncio.get_running_loop().time() - instance.spoken_s
        return instance.is_dirty or instance.member_epoch == JOIN or silent_s * 8_000 >= self._session_timeout_ms

    async def speak(self, instance: Instance) -> None:
        """Has it join if it is no member, and take and give up what it is told. Raises as `Heartbeat`."""
        for _ in range(ROUNDS_MAX):
            instance.is_dirty = False
            try:
                answer = await self._beat(instance)
            except (UnknownMember, FencedMember):
                if instance.member_epoch == JOIN:
                    # Its group knows it by another subscription: the last keeper did not get to say this one.
                    await self.leave(instance)
                instance.member_epoch = JOIN
                instance.positions.have(())
                continue
            instance.member_epoch = answer.member_epoch
            instance.spoken_s = asyncio.get_running_loop().time()
            if answer.assignment is None:
                return
            await self._take(instance, pairs(answer.assignment))

    async def leave(self, instance: Instance) -> None:
        """It is no member any more, and has nothing. A member that is not known has left already."""
        with suppress(UnknownMember, FencedMember):
            gone = Heartbeat(group=instance.group, member_id=instance.name, member_epoch=LEAVE)
            await instance.ask(HeartbeatAnswer, gone)
        instance.member_epoch = JOIN
        instance.positions.have(())
        instance.wake()

    async def _take(self, instance: Instance, given: list[tuple[str, int]]) -> None:
        positions = instance.positions
        kept = dict.fromkeys(given)
        lost = {partition: offset for partition, offset in positions.processed().items() if partition not in kept}
        await self._commits.keep_unasked(instance, lost)
        positions.have(given)
        instance.wake()

    def has_news(self, instance: Instance) -> bool:
        """Whether there is anything that the member would be told."""
        return instance.home.has_news(self._heartbeat(instance))

    async def _beat(self, instance: Instance) -> HeartbeatAnswer:
        return await instance.ask(HeartbeatAnswer, self._heartbeat(instance))

    def _heartbeat(self, instance: Instance) -> Heartbeat:
        return Heartbeat(
            group=instance.group,
            member_id=instance.name,
            member_epoch=instance.member_epoch,
            client_id=instance.name,
            topics=instance.what.topics,
            pattern=instance.what.pattern,
            session_timeout_ms=self._session_timeout_ms,
            owned=instance.owned,
        )
