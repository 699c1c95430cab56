"""Group membership of a consumer instance that has subscribed: the broker that keeps it sends heartbeats in its name
(KIP-848).

A heartbeat is sent with a request of the client, at most once in an eighth of the session timeout, and at once when the
group has changed, so that other members do not wait for partitions that this one has to revoke. The session timeout is
twice the instance's idle timeout: an idle instance is deleted before it is expelled.

Before a partition is revoked, an instance with auto-commit commits the records known to be processed. The other records
that it has read are delivered again, to the partition's next owner.
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
"""Maximum number of heartbeats in a row, while each answer brings a new assignment. After that the next change of the
group continues.
"""


class Membership:
    """Sends the heartbeats of all instances on a broker. The caller of a method holds the instance's lock."""

    def __init__(self, commits: Commits, session_timeout_ms: int) -> None:
        self._commits = commits
        self._session_timeout_ms = session_timeout_ms

    def is_due(self, instance: Instance) -> bool:
        """Returns True if the instance has subscribed and its member should send a heartbeat now."""
        if not instance.what.is_subscribed:
            return False
        silent_s = asyncio.get_running_loop().time() - instance.spoken_s
        return instance.is_dirty or instance.member_epoch == JOIN or silent_s * 8_000 >= self._session_timeout_ms

    async def speak(self, instance: Instance) -> None:
        """Sends heartbeats, joining the group if the instance is no member, and takes over the assignments in the
        answers. Raises `GroupFull`; `InvalidRequest` for an invalid pattern; `UnknownGroup` for a classic group;
        `NotLeader`, `Overloaded`, `CoordinatorNotAvailable` or `CoordinatorLost` if the coordinator does not answer.
        """
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
        """Leaves the group and drops all partitions. An unknown member counts as one that has left."""
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
        """Returns True if the answer to a heartbeat may bring the member a new epoch, a new assignment or an error."""
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
