"""Loading of a coordinator's groups: it appends a claim record, then reads the log up to the claim.

The claim is an ordinary record, appended with `acks=all`. Once it is committed, so is everything before it, and no
earlier leader can commit anything more. From then on each append of the coordinator names the expected log end
(`expected_end`), so that it fails if another broker has written meanwhile.

A damaged batch is never skipped, since the groups would be wrong without it: loading waits until it is repaired from
another replica. The log is read in pieces, between which other tasks run.

Records whose loss an operator has accepted are skipped; otherwise these groups would stay without a coordinator.
Committed offsets, groups and REST consumers are then what the rest of the log says, so some committed offsets may be
old. Members are dropped and join again, since the rest of the log cannot tell who owns a partition. Afterwards the log
is copied forward at once, without the lost part.
"""

from __future__ import annotations

import asyncio
from itertools import starmap
from typing import Final, NamedTuple

import msgspec

from tidelog.broker.groups.outbox import Entry
from tidelog.broker.partitions.led_partition import LedPartition
from tidelog.broker.partitions.proposals import ACKS_ALL
from tidelog.groups.records import MEMBER_KEYS, UnknownGroupRecord, decode
from tidelog.groups.shard import Shard
from tidelog.model.batch_codec import decode_batch, encode_batch
from tidelog.model.batch_header import RecordBatch, iter_batches, parse_header
from tidelog.model.errors import DamagedBatch, InvalidBatch
from tidelog.model.lost_ranges import LostRange, within
from tidelog.model.records import Record

CLAIM_KEY: Final = b'{"kind":"claim"}'
CLAIM_S_MAX: Final = 10.0
PIECE_BYTES: Final = 64 << 10
PIECE_RECORDS: Final = 256


class Claim(msgspec.Struct, frozen=True):
    """Value of a claim record, by which a new coordinator fences earlier ones."""

    node_id: int
    leader_epoch: int


class Loaded(NamedTuple):
    """The groups loaded from a log, and the log's end offset at that state."""

    shard: Shard
    end: int
    predecessor: int | None = None
    """Node id of the previous coordinator; None if the log does not tell."""
    lost: tuple[LostRange, ...] = ()
    """Ranges of lost records that were skipped."""


async def claim(partition: LedPartition, node_id: int, now_ms: int) -> int:
    """Appends a claim record, which fences earlier coordinators, and waits until it is committed; returns its offset.
    Raises a definite error, such as `LeaderNotAvailable` or `DiskFull`, if nothing was appended; `TimedOutAfterAppend`
    or `InternalError` if the outcome is unknown."""
    deadline_s = asyncio.get_running_loop().time() + CLAIM_S_MAX
    return await append(partition, [claim_entry(partition, node_id)], now_ms, deadline_s)


def claim_entry(partition: LedPartition, node_id: int) -> Entry:
    """Returns the key and value of a claim record, which fences earlier coordinators and changes no group. Its commit
    proves that this broker led when the append began."""
    return CLAIM_KEY, msgspec.json.encode(Claim(node_id, partition.leader_epoch))


async def append(
    partition: LedPartition,
    entries: list[Entry],
    now_ms: int,
    deadline_s: float,
    expected_end: int | None = None,
) -> int:
    """Appends one batch and waits until it is committed; returns its first offset. Raises `EndOffsetMoved` if
    the log does not end at `expected_end`, or another definite error, if nothing was appended; `TimedOutAfterAppend` or
    `InternalError` if the outcome is unknown."""
    data = encode_batch([Record(now_ms, key, value) for key, value in entries])
    batch = RecordBatch(parse_header(data), memoryview(data))
    # With all acks, for answers rest on this: a record that only the leader has may be lost with it.
    receipt = await partition.append([batch], acks=ACKS_ALL, deadline_s=deadline_s, expected_end=expected_end)
    assert receipt.base_offset is not None, "it is no repeat of anything"
    return receipt.base_offset


async def load(partition: LedPartition, claimed: int, now_ms: int) -> Loaded:
    """Returns the groups that the log describes up to this coordinator's claim record, at offset `claimed`. Raises
    `DamagedBatch`, `NotLeader` or `LeaderNotAvailable`."""
    shard, predecessor = Shard(), None
    lost: list[LostRange] = []
    offset = (await partition.extent()).log_start_offset
    while offset < claimed:
        fetched = await partition.read(offset, bytes_max=PIECE_BYTES)
        assert fetched.next_offset > offset, "all before the claim is committed"
        lost += within(starmap(LostRange, fetched.lost), offset, claimed)
        for batch in iter_batches(fetched.data):
            if batch.header.base_offset < claimed:
                # The last claim names the coordinator before. Behind a lost range no record of a member counts, for the
                # lost part may have changed what it goes on from.
                predecessor = await _replay(shard, batch, offset, has_members=not lost) or predecessor
        offset = fetched.next_offset
    if lost:
        # Members from before the loss go as well: the lost part may have given their partitions to others.
        shard.forget_members(now_ms)
    # The claim is the last record that is known. The first append expects the log to end behind it, and so finds out
    # whether anybody has written since.
    return Loaded(shard, claimed + 1, None if predecessor is None else predecessor.node_id, tuple(lost))


async def _replay(shard: Shard, batch: RecordBatch, begin: int, *, has_members: bool) -> Claim | None:
    """Applies a batch's records from offset `begin` on to `shard`, records about members only with `has_members`.
    Returns the batch's last claim record, or None. Raises `DamagedBatch` for a record that cannot be decoded."""
    newest_claim: Claim | None = None
    try:
        for count, record in enumerate(decode_batch(batch)):
            # A batch may hold thousands of records. Without pauses the broker's heartbeats would come late, and it
            # would lose what it leads.
            if count % PIECE_RECORDS == 0:
                await asyncio.sleep(0)
            if record.key == CLAIM_KEY:
                newest_claim = msgspec.json.decode(record.value or b"", type=Claim)
            # A batch is read whole, even where the log begins in its midst: what was deleted stays deleted.
            elif record.offset >= begin:
                group_record = decode(record.key or b"", record.value)
                if has_members or not isinstance(group_record.key, MEMBER_KEYS):
                    shard.apply(group_record)
    except (InvalidBatch, UnknownGroupRecord, msgspec.DecodeError) as error:
        # Never passed over: without these records it would be other groups. A record of a kind that this version does
        # not know is no better than a damaged one.
        raise DamagedBatch(f"the batch at offset {batch.header.base_offset} cannot be read: {error}") from error
    return newest_claim
