"""A partition that this broker is to lead, and whose log has a damaged end: settled before the leader epoch begins.

The rules are those of the state machine (`tidelog.replication.isr.settlement`); here the other replicas are asked,
repeatedly, and the state machine's effects are carried out. Until the end is settled the partition has no leader:
nothing is appended, and nothing is committed. So the log's end is verified before a broker leads, wherever other
replicas can prove something: the part at or above the high watermark is small, except after a crash of all.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

import structlog

from tidelog.broker.repair.copies import Copies
from tidelog.broker.repair.repair_messages import REQUESTED_MAX, RecoverReply
from tidelog.broker.repair.repairer import Repairer
from tidelog.broker.runtime.log_writer import LogWriter
from tidelog.broker.runtime.purgatory import Watchers
from tidelog.model.errors import TidelogError
from tidelog.model.holdings import Holding
from tidelog.model.ids import PartitionId
from tidelog.model.ports import Clock
from tidelog.replication.isr import settlement
from tidelog.storage.copies import Identity, identity_at
from tidelog.storage.partition_log import PartitionLog
from tidelog.storage.scrub import Scrubber

PIECE_BYTES = 64 << 10
PAUSE_S = 0.1
PAUSE_S_MAX = 0.4
"""The longest pause, in seconds, before the members are asked again. After a power cut of all brokers everything waits
for the last member to be back, so it is asked soon."""

logger = structlog.get_logger("tidelog.repair")


async def verify_end(log: PartitionLog, high_watermark: int, log_writer: LogWriter) -> None:
    """Reads the batches at or above the high watermark, so that the log knows their damage. A small part is read at
    once, so that a broker that takes over many partitions does not wait for the disk thread with each. Raises
    `OSError`, `Overloaded`."""
    # From the high watermark on: everything below is committed, and the ordinary scrubber finds its damage later.
    scrubber = Scrubber(log, log.reader, high_watermark, with_rows=False)
    is_first = True
    while (piece := scrubber.begin(PIECE_BYTES)) is not None:
        try:
            if is_first:
                piece.run()
            else:
                await log_writer.perform(piece.run)
        finally:
            scrubber.end(piece)
        is_first = False


class LogIdentity(NamedTuple):
    """The identity of a broker's log of a partition: its disk, and the metadata position at which the replica was
    assigned."""

    storage: str
    since: int


@dataclass(eq=False)
class Settling:
    """A partition whose leader epoch has not begun yet, because the end of its log is damaged. Its log still gives
    copies of batches to other replicas (implements `Holder`)."""

    topic: str
    partition_id: PartitionId
    leader_epoch: int
    log: PartitionLog
    high_watermark: int
    core: settlement.Settlement
    begun_s: float
    identities: Mapping[int, LogIdentity]
    """The identities of the other members' logs, by node id."""
    watchers: Watchers = field(default_factory=Watchers)
    is_readable: bool = True

    def look(self, identities: Mapping[int, LogIdentity]) -> None:
        """Compares `identities`, from newer metadata, with those from the start of this settlement. A member whose log
        has another identity now (another disk, or begun anew) counts as having lost its log."""
        # A log on another disk, or begun anew, says nothing of what the member of this epoch's metadata had.
        lost = frozenset(node for node, identity in self.identities.items() if identities.get(node) != identity)
        self.core.step(settlement.MembersLost(lost))

    @property
    def aligned_epoch(self) -> int:
        """Returns -1, as no leader's log is known to begin with this log (`Holder.aligned_epoch`): its end is still
        compared with other replicas."""
        return -1

    def on_flushed(self) -> None:
        """Does nothing: no settlement waits for a flush."""

    def second_copy(self, identity: Identity) -> None:
        """Returns None: this replica has no second copy of a batch beside its log."""


def begin_settling(
    topic: str,
    partition_id: PartitionId,
    leader_epoch: int,
    log: PartitionLog,
    high_watermark: int,
    members: Mapping[int, int],
    identities: Mapping[int, LogIdentity],
    now_s: float,
) -> Settling:
    """Returns the settlement of a log's damaged end; it is settled at once if no batch there is damaged."""
    damaged: dict[int, int] = {}
    for damage in log.damaged_ranges():
        # Below the high watermark everything is committed: it is repaired, never given up, and holds no epoch up.
        if damage.end > high_watermark:
            start = max(damage.start, high_watermark)
            # What has lost its row, too, may be several batches, of which others may have only the first.
            damaged[start] = damage.end if damage.epoch is not None else start + 1
    core = settlement.Settlement(leader_epoch, members, high_watermark, damaged)
    return Settling(topic, partition_id, leader_epoch, log, high_watermark, core, now_s, identities)


@dataclass(eq=False)
class Settler:
    """Settles the damaged log ends of one broker: asks the other replicas, and carries out the decisions."""

    _copies: Copies
    _repairer: Repairer
    _log_writer: LogWriter
    _clock: Clock

    async def settle(self, settling: Settling) -> None:
        """Returns when the leader epoch may begin. Raises `OSError` or `TidelogError` if the log could not be
        truncated."""
        logger.warning(
            "the end of a log is damaged, and others are asked whether it was committed",
            partition=str(settling.partition_id),
            offsets=settling.core.open[:REQUESTED_MAX],
        )
        pause_s = PAUSE_S
        awaited: frozenset[int] = frozenset()
        while True:
            # All replicas are asked, not the members alone: a whole copy repairs, whoever has it. Only a denial has to
            # be a member's.
            for node_id in self._repairer.others(settling.partition_id):
                if not settling.core.is_settled:
                    await self._ask(settling, node_id)
            if settling.core.is_settled:
                logger.info(
                    "settled",
                    partition=str(settling.partition_id),
                    log_end_offset=settling.log.log_end_offset,
                    committed_end=settling.core.committed_end,
                )
                return
            if settling.core.awaited != awaited:
                awaited = settling.core.awaited
                logger.warning(
                    "nobody leads before these have said what they have of the end of the log",
                    partition=str(settling.partition_id),
                    brokers=sorted(awaited),
                )
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, PAUSE_S_MAX)

    async def _ask(self, settling: Settling, node_id: int) -> None:
        identities = {offset: identity_at(settling.log, offset) for offset in settling.core.open[:REQUESTED_MAX]}
        try:
            reply, answers = await self._copies.ask(node_id, settling.partition_id, list(identities.values()))
        except (TidelogError, TimeoutError) as error:
            logger.info("not answered", partition=str(settling.partition_id), broker=node_id, reason=str(error))
            return
        for offset, (identity, holding, data) in zip(identities, answers, strict=False):
            await self._take(settling, node_id, reply, offset, identity, holding, data)

    async def _take(
        self,
        settling: Settling,
        node_id: int,
        reply: RecoverReply,
        offset: int,
        identity: Identity,
        holding: Holding,
        data: memoryview,
    ) -> None:
        # With the life and the epoch in which it was said: a denial of an earlier life, or from before this leader
        # epoch, proves nothing.
        answer = settlement.Answered(
            node_id,
            reply.broker_epoch,
            reply.leader_epoch,
            reply.high_watermark,
            offset,
            holding,
            is_named=identity.is_known,
        )
        for effect in settling.core.step(answer):
            match effect:
                case settlement.PutBack():
                    # Settled only if the copy is on the disk.
                    if await self._repairer.put_back(settling, settling.partition_id, identity, data, node_id):
                        settling.core.step(settlement.Repaired(offset))
                case settlement.TruncateAt(at):
                    # Before the epoch begins. Truncated within it, the same epoch and offset would come to name two
                    # batches, and no comparison of epochs would notice.
                    await self._truncate(settling, at, node_id)

    async def _truncate(self, settling: Settling, offset: int, node_id: int) -> None:
        log = settling.log
        truncate = partial(
            log.truncate_to, offset, high_watermark=settling.high_watermark, now_ms=self._clock.wall_ms()
        )
        # The disk thread changes the log.
        settling.is_readable = False
        try:
            await self._log_writer.exclusively(settling, truncate)
        finally:
            settling.is_readable = True
        logger.warning(
            "what was damaged was never committed, and is truncated before the new epoch begins",
            partition=str(settling.partition_id),
            from_offset=offset,
            said_by=node_id,
        )
        settling.core.step(settlement.TruncatedAt(log.log_end_offset))
