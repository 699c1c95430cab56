"""Asks all replicas of a partition which of its damaged offsets they have, before an operator gives these offsets up.

Any broker may ask, also while the partition has no leader. Each replica reads the offsets in question from its disk,
also from its journal if it has one, so that its answer is up to date. Nothing is changed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass

from tidelog.broker.repair.copies import Copies, Holder, Peers
from tidelog.broker.repair.loss_report import (
    PIECES_MAX,
    UNREACHABLE,
    LossReport,
    Piece,
    divided,
    judge,
    status_of,
)
from tidelog.broker.repair.repair_messages import (
    REQUESTED_MAX,
    SUSPECTS_MAX,
    DamageQuery,
    DamageReply,
    RecoverQuery,
    RecoverReply,
    RequestedBatch,
    Suspect,
    VerifyQuery,
)
from tidelog.broker.repair.verifying import Verifier
from tidelog.model.cluster import ClusterImage, PartitionInfo, Topic
from tidelog.model.errors import LeaderNotAvailable, NotFound, OffsetOutOfRange, TidelogError
from tidelog.model.holdings import Holding
from tidelog.model.ids import OFFSET_MAX, PartitionId, TopicId
from tidelog.storage.rows import Row
from tidelog.storage.segment import Damage
from tidelog.transport.peer import Lane

ANSWER_S_MAX = 5.0
READ_S_MAX = 20.0
"""Seconds that replicas may spend reading the offsets that an operator has named."""


@dataclass(frozen=True, slots=True)
class LossFinder:
    """Finds which offsets of a partition are lost on all replicas, for one broker. `holder` returns this broker's
    replica."""

    node_id: int
    holder: Callable[[PartitionId], Holder | None]
    image: Callable[[], ClusterImage]
    copies: Copies
    verifier: Verifier
    peers: Peers

    def answer(self, query: DamageQuery) -> DamageReply:
        """Returns the damaged batches of this broker's replica, as far as it knows them. Raises `NotFound` without a
        replica."""
        holder = self.holder(PartitionId(TopicId(query.topic_id), query.partition))
        if holder is None or not holder.is_readable:
            raise NotFound(f"broker {self.node_id} has no replica of this partition that can be read now")
        suspects: list[Suspect] = []
        for damage in holder.log.damaged_ranges():
            if damage.start < query.end and damage.end > query.start:
                suspects += _suspects(holder, damage)
            if len(suspects) >= SUSPECTS_MAX:
                break
        log = holder.log
        return DamageReply(
            log.log_start_offset, holder.high_watermark, log.log_end_offset, tuple(suspects[:SUSPECTS_MAX])
        )

    async def find(
        self, topic: Topic, info: PartitionInfo, offsets: tuple[int, int] | None, even_though: Sequence[int]
    ) -> LossReport:
        """Asks all replicas about the damage in the offsets [start, end), or in all, and returns which can be given up.
        Raises `LeaderNotAvailable` if no replica can be asked, or `OffsetOutOfRange`."""
        partition_id = PartitionId(topic.topic_id, info.partition)
        start, end = offsets or (0, OFFSET_MAX)
        before = [loss for loss in info.losses if loss.start < end and loss.end > start]
        if offsets is not None:
            await asyncio.gather(*(self._read(node, partition_id, offsets) for node in self._live(info)))
        query = DamageQuery(partition_id.topic_id, partition_id.partition, start, end)
        answers = await asyncio.gather(*(self._damage_at(node, query) for node in self._live(info)))
        replies = dict(answer for answer in answers if answer is not None)
        if not replies:
            raise LeaderNotAvailable(f"no replica of {topic.name}-{info.partition} can be asked now")
        _check_extent(offsets, replies.values())
        ordered = sorted(replies, key=lambda node: node != info.leader)
        pieces = divided(replies[node] for node in ordered)[: PIECES_MAX + 1]
        await asyncio.gather(*(self._state(node, partition_id, pieces, replies.get(node)) for node in info.replicas))
        return judge(pieces, offsets, replies, even_though, before, (*info.isr, *info.elr))

    def _live(self, info: PartitionInfo) -> list[int]:
        return [node for node in info.replicas if self.image().is_live(node)]

    async def _read(self, node: int, partition_id: PartitionId, offsets: tuple[int, int]) -> None:
        """Has a replica read these offsets, so that it finds the damage in them. Errors are ignored, since later
        requests to the same replica fail, too."""
        offset, end = offsets
        with suppress(TidelogError, TimeoutError, OSError):
            async with asyncio.timeout(READ_S_MAX):
                while offset < end:
                    query = VerifyQuery(partition_id.topic_id, partition_id.partition, offset, end)
                    reply = await self.verifier.verify(node, query)
                    if reply.next_offset <= offset:
                        return
                    offset = reply.next_offset

    async def _damage_at(self, node: int, query: DamageQuery) -> tuple[int, DamageReply] | None:
        try:
            if node == self.node_id:
                return node, self.answer(query)
            answer = await self.peers.request(node, query, deadline_s=ANSWER_S_MAX, lane=Lane.DATA)
        except (TidelogError, TimeoutError):
            return None
        assert isinstance(answer.message, DamageReply)
        return node, answer.message

    async def _state(
        self, node: int, partition_id: PartitionId, pieces: Sequence[Piece], own: DamageReply | None
    ) -> None:
        """Asks one replica whether it has each piece, and adds its status to the pieces."""
        left = list(pieces)
        while left and own is not None:
            try:
                leader_epoch, held = await self._ask(node, partition_id, left[:REQUESTED_MAX])
            except (TidelogError, TimeoutError):
                break
            for piece, holding in zip(left, held, strict=False):
                piece.statements[node] = status_of(holding, leader_epoch, piece, own)
            if not held:
                break
            left = left[len(held) :]
        for piece in left:
            piece.statements[node] = UNREACHABLE

    async def _ask(self, node: int, partition_id: PartitionId, pieces: Sequence[Piece]) -> tuple[int, list[Holding]]:
        identities = [piece.identity for piece in pieces]
        if node != self.node_id:
            reply, batches = await self.copies.ask(node, partition_id, identities)
            return reply.leader_epoch, [holding for _, holding, _ in batches]
        query = RecoverQuery(
            partition_id.topic_id, partition_id.partition, tuple(RequestedBatch(*identity) for identity in identities)
        )
        message = self.copies.answer(query).message
        assert isinstance(message, RecoverReply)
        return message.leader_epoch, [held.holding for held in message.held]


def _suspects(holder: Holder, damage: Damage) -> list[Suspect]:
    """Returns the batches of a damaged range, by their catalog rows; offsets only where the rows are lost."""
    suspects: list[Suspect] = []
    for entry in holder.log.entries(damage.start):
        start = entry.base_offset if isinstance(entry, Row) else entry.start
        if start >= damage.end or len(suspects) >= SUSPECTS_MAX:
            break
        if isinstance(entry, Row):
            suspects.append(
                Suspect(start, entry.next_offset, entry.epoch, entry.digest, entry.length, entry.max_timestamp)
            )
        else:
            lost = holder.log.damage.lost.rest(max(start, damage.start), min(entry.end, damage.end))
            suspects += [Suspect(begin, end) for begin, end in lost]
    return suspects


def _check_extent(offsets: tuple[int, int] | None, replies: Collection[DamageReply]) -> None:
    """Raises `OffsetOutOfRange` for offsets that no replica's log spans, committed or not."""
    start = min(reply.log_start_offset for reply in replies)
    end = max(reply.log_end_offset for reply in replies)
    if offsets is not None and not start <= offsets[0] < offsets[1] <= end:
        held = f"{start} to {end - 1}" if start < end else "none"
        raise OffsetOutOfRange(
            f"offsets {offsets[0]}-{offsets[1] - 1} are not all in the partition, which holds {held}", start, end
        )
