"""Commits offsets of REST consumer instances: offsets that the client names, the positions of its reads, and automatic
commits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import structlog

from tidelog.broker.rest_consumers.groups import names
from tidelog.broker.rest_consumers.instance import Instance
from tidelog.broker.rest_consumers.requests import OffsetRefused, OffsetsCommitted, Partition
from tidelog.model.errors import NotOwned, TidelogError
from tidelog.model.groups import NO_EPOCH, CommitAnswer, CommitOffsets, CommittedOffset
from tidelog.transport.errors import error_from_code

logger = structlog.get_logger("tidelog.rest-consumers")


class Commits:
    """Commits offsets for all instances of a broker. The caller of a method holds the instance's lock.

    So commits of one instance never overtake each other. A commit that a former coordinator's broker still has under
    way is refused, because its coordinator no longer leads.
    """

    async def keep(self, instance: Instance, offsets: Sequence[CommittedOffset]) -> OffsetsCommitted:
        """Commits offsets that the client named. Raises `NotOwned` if the instance has subscribed and one of the
        partitions is not assigned to it (nothing is committed), or `GroupNotEmpty` if it has not subscribed and the
        group has members.
        """
        if instance.what.is_subscribed:
            owned = dict.fromkeys(instance.positions.partitions)
            foreign = [_partition(committed) for committed in offsets if _partition(committed) not in owned]
            if foreign:
                raise NotOwned(
                    f"consumer instance {instance.name} does not have {names(foreign)} (any more); nothing was kept"
                )
        return await self._commit(instance, offsets)

    async def keep_returned(self, instance: Instance) -> OffsetsCommitted:
        """Commits the next offset to read of every partition in which it differs from the committed offset. Raises the
        error if no offset could be committed.
        """
        return await self._commit(instance, _offsets(instance.positions.returned()))

    async def keep_unasked(self, instance: Instance, offsets: Mapping[Partition, int]) -> None:
        """Commits `offsets` if the instance has auto-commit enabled. A failure is logged only: a later commit includes
        these offsets, or the records are read again.
        """
        if not instance.what.settings.auto_commit:
            return
        try:
            await self._commit(instance, _offsets(offsets))
        except TidelogError as error:
            logger.info("a REST consumer could not commit", instance=instance.name, reason=error.message)

    async def _commit(self, instance: Instance, offsets: Sequence[CommittedOffset]) -> OffsetsCommitted:
        if not offsets:
            return OffsetsCommitted()
        member_id, epoch = "", NO_EPOCH
        if instance.what.is_subscribed:
            member_id, epoch = instance.name, instance.member_epoch
        request = CommitOffsets(
            group=instance.group,
            member_id=member_id,
            member_epoch=epoch,
            offsets=tuple(offsets),
        )
        answer = await instance.ask(CommitAnswer, request)
        refused = tuple(
            OffsetRefused(verdict.topic, verdict.partition, verdict.code, verdict.message)
            for verdict in answer.verdicts
            if verdict.code
        )
        if len(refused) == len(offsets):
            raise error_from_code(refused[0].error_code, refused[0].message)
        lost = {(refusal.topic, refusal.partition) for refusal in refused}
        instance.positions.commit(
            {_partition(committed): committed.offset for committed in offsets if _partition(committed) not in lost}
        )
        return OffsetsCommitted(refused)


def _partition(committed: CommittedOffset) -> Partition:
    return committed.topic, committed.partition


def _offsets(offsets: Mapping[Partition, int]) -> list[CommittedOffset]:
    return [CommittedOffset(topic, partition, offset) for (topic, partition), offset in offsets.items()]
