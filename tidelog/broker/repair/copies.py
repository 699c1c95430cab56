"""Copies of damaged batches, exchanged between brokers: requests for them, and answers.

Any replica may give a copy, leader or not, in sync or not: the digest proves it. A replica that stores its batches
twice (log and journal) gives what its log has lost from the second copy. An answer that *denies* a batch counts only in
the settlement of a new leader epoch (`settlement.py`); here it is passed on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import msgspec

from tidelog.broker.repair.repair_messages import REQUESTED_MAX, Held, RecoverQuery, RecoverReply, RequestedBatch
from tidelog.broker.runtime.purgatory import Watchers
from tidelog.model.batch_header import parse_header
from tidelog.model.errors import InvalidRequest, TidelogError
from tidelog.model.holdings import Holding
from tidelog.model.ids import PartitionId, TopicId
from tidelog.storage.copies import Identity, find_copy
from tidelog.storage.partition_log import PartitionLog
from tidelog.transport.peer import Answer, Lane

REPLY_BYTES_MAX = 8 << 20
"""Bytes of copies from which on an answer takes no further batch; so it may be larger by one batch."""
ANSWER_S_MAX = 5.0


class Replica(Protocol):
    """A broker's replica of a partition, leading or following. `watchers` are woken when more is committed here."""

    topic: str
    partition_id: PartitionId
    leader_epoch: int
    log: PartitionLog
    watchers: Watchers

    @property
    def high_watermark(self) -> int: ...

    @property
    def is_readable(self) -> bool:
        """False while the log is being truncated, and after the replica's role has ended."""


class Holder(Replica, Protocol):
    """A replica on this broker whose damaged batches are repaired, and whose batches repair other replicas."""

    @property
    def aligned_epoch(self) -> int:
        """The leader epoch of whose leader's log this replica's log is known to be a prefix, or all; -1 if no such
        epoch is known."""

    def on_flushed(self) -> None: ...

    def second_copy(self, identity: Identity) -> bytes | None:
        """Returns the batch if this disk has it outside of the log, as in a Paxos journal; else None. Raises
        `Overloaded`."""


class Peers(Protocol):
    """The part of `PeerNode` (connections to other brokers) that repairs use."""

    async def request(
        self, node_id: int, message: msgspec.Struct, *, deadline_s: float, lane: Lane = Lane.CONTROL
    ) -> Answer: ...


@dataclass(frozen=True, slots=True)
class Copies:
    """Exchanges copies of damaged batches with other brokers. `holder` returns this broker's replica of a partition;
    `may_deny` whether a batch that is missing in it was never in it."""

    holder: Callable[[PartitionId], Holder | None]
    may_deny: Callable[[Holder], bool]
    broker_epoch: Callable[[], int]
    peers: Peers

    def answer(self, query: RecoverQuery) -> Answer:
        """Answers which of the requested batches this broker's replica has, with their bytes. Raises `InvalidRequest`
        if too many are requested."""
        if len(query.wanted) > REQUESTED_MAX:
            raise InvalidRequest(f"{len(query.wanted)} batches are asked for at once; at most {REQUESTED_MAX} can be")
        holder = self.holder(PartitionId(TopicId(query.topic_id), query.partition))
        if holder is None or not holder.is_readable:
            unknown = tuple(Held(Holding.UNKNOWN) for _ in query.wanted)
            return Answer(RecoverReply(-1, self.broker_epoch(), 0, unknown))
        is_aligned = query.aligned_epoch >= 0 and query.aligned_epoch == holder.aligned_epoch
        held: list[Held] = []
        payload: list[bytes] = []
        size = 0
        for batch in query.wanted:
            if size >= REPLY_BYTES_MAX:
                break
            identity = Identity(batch.offset, batch.epoch, batch.digest)
            holding, data = self._look(holder, identity, is_aligned=is_aligned)
            held.append(Held(holding, len(data)))
            payload.append(data)
            size += len(data)
        epochs = (holder.leader_epoch, self.broker_epoch())
        reply = RecoverReply(*epochs, holder.high_watermark, tuple(held), is_aligned)
        return Answer(reply, [b"".join(payload)])

    def _look(self, holder: Holder, identity: Identity, *, is_aligned: bool) -> tuple[Holding, bytes]:
        try:
            holding, data = find_copy(holder.log, identity)
            second = holder.second_copy(identity) if holding in (Holding.HAVE_FAULTY, Holding.DONT_HAVE) else None
        except TidelogError:
            return Holding.UNKNOWN, b""
        if second is not None:
            holding, data = Holding.HAVE, second
        if holding is Holding.DONT_HAVE and not self.may_deny(holder):
            return Holding.UNKNOWN, b""
        if holding is Holding.HAVE and not identity.is_known:
            belongs_there = is_aligned or parse_header(data).next_offset <= holder.high_watermark
            return (holding, data) if belongs_there else (Holding.UNKNOWN, b"")
        return holding, data

    async def ask(
        self, node_id: int, partition_id: PartitionId, identities: Sequence[Identity], *, aligned_epoch: int = -1
    ) -> tuple[RecoverReply, list[tuple[Identity, Holding, memoryview]]]:
        """Requests batches from another broker, for a replica whose log is a prefix of the log of `aligned_epoch`'s
        leader. Returns the reply, and for each answered batch: its identity, whether that broker has it, and its bytes.
        Raises the `TidelogError` that the broker answers, `PeerUnreachable` or `Overloaded` if it was not asked,
        `PeerLost` or `TimeoutError` if it has not answered."""
        named = tuple(RequestedBatch(*identity) for identity in identities[:REQUESTED_MAX])
        query = RecoverQuery(partition_id.topic_id, partition_id.partition, named, aligned_epoch)
        answer = await self.peers.request(node_id, query, deadline_s=ANSWER_S_MAX, lane=Lane.DATA)
        reply, at = answer.message, 0
        assert isinstance(reply, RecoverReply)
        batches: list[tuple[Identity, Holding, memoryview]] = []
        for identity, held in zip(identities, reply.held, strict=False):
            batches.append((identity, held.holding, answer.body[at : at + held.size]))
            at += held.size
        return reply, batches
