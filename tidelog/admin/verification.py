"""Comparison of a partition's replicas while they serve: does each one have all committed records, undamaged?

The replicas are compared range by range, up to the lowest of their high watermarks. Each broker reads and checks its
own batches and responds with a checksum over its catalog's entries, so only a few bytes per range cross the network.
Where checksums differ, the batches of the range are listed and the first different one is found. Brokers repair damage
themselves; after the comparison each damaged batch is checked again until it is repaired or time is up.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass, field

from tidelog.model.errors import TidelogError
from tidelog.transport.verification import BrokerVerification, CheckedFiles, DamagedOffsets, ReplicaVerification

REPAIR_S_MAX = 10.0
POLL_S = 0.25


Ask = Callable[..., Awaitable[ReplicaVerification]]
"""A function that verifies one replica: `AdminClient.verify_replica`."""


@dataclass(slots=True)
class ReplicaCheck:
    """The result of verifying one replica of a partition, on one broker."""

    broker_id: int
    damaged: list[DamagedOffsets] = field(default_factory=list)
    """Damaged offsets that were not repaired in time."""
    repaired: list[DamagedOffsets] = field(default_factory=list)
    """Offsets that were damaged at first and are repaired."""
    differs_at: int | None = None
    """The first offset with a different batch than the reference replica; None if all are the same."""
    error: str | None = None
    """The reason why the replica could not be verified; None if it was."""

    @property
    def is_whole(self) -> bool:
        """Returns True if the replica has all committed records, undamaged."""
        return not self.damaged and self.differs_at is None and self.error is None


@dataclass(frozen=True, slots=True)
class GoodCopies:
    """The number of replicas with an undamaged copy of the offsets [start_offset, end_offset), as far as known."""

    start_offset: int
    end_offset: int
    copies: int


@dataclass(slots=True)
class PartitionCheck:
    """The comparison of one partition's replicas over the offsets [start_offset, end_offset)."""

    topic: str
    partition: int
    replicas: list[ReplicaCheck]
    start_offset: int = 0
    end_offset: int = 0
    bytes: int = 0
    """Bytes read by one replica."""
    has_leader: bool = True
    """False if there is no leader to state the high watermark: equal replicas may all lack committed records."""

    @property
    def is_whole(self) -> bool:
        """Returns True if there is a leader and all replicas have all committed records, undamaged."""
        return self.has_leader and all(replica.is_whole for replica in self.replicas)

    def good_copies(self) -> list[GoodCopies]:
        """Returns the number of undamaged copies of each range, in order of offsets. A replica that could not be
        verified counts as none; one that differs counts up to the difference."""
        start, end = self.start_offset, self.end_offset
        bad = {
            replica.broker_id: [
                *([(start, end)] if replica.error is not None else []),
                *([(replica.differs_at, end)] if replica.differs_at is not None else []),
                *((damage.start_offset, damage.end_offset) for damage in replica.damaged),
            ]
            for replica in self.replicas
        }
        edges = {max(start, min(edge, end)) for ranges in bad.values() for pair in ranges for edge in pair}
        spans: list[GoodCopies] = []
        for begin, stop in itertools.pairwise(sorted({start, end, *edges})):
            copies = sum(not any(a <= begin < b for a, b in ranges) for ranges in bad.values())
            is_as_before = bool(spans) and spans[-1].copies == copies
            spans.append(GoodCopies(spans.pop().start_offset if is_as_before else begin, stop, copies))
        return spans

    def scarce(self) -> list[GoodCopies]:
        """Returns the ranges with one undamaged copy or none, in a partition with more replicas."""
        return [span for span in self.good_copies() if span.copies <= 1 and span.copies < len(self.replicas)]


class PartitionVerifier:
    """Verifies one partition. `advance` is called with the number of newly compared offsets."""

    def __init__(
        self,
        ask: Ask,
        topic: str,
        partition: int,
        replicas: Sequence[int],
        advance: Callable[[int], object],
        down: Collection[int] = (),
        *,
        has_leader: bool = True,
    ) -> None:
        """`replicas[0]` is the reference for the others; brokers in `down` are not asked."""
        self._verify = ask
        self._advance = advance
        checks = [
            ReplicaCheck(broker_id, error=f"broker {broker_id} is down" if broker_id in down else None)
            for broker_id in replicas
        ]
        self._check = PartitionCheck(topic, partition, checks, has_leader=has_leader)

    async def verify(self) -> PartitionCheck:
        """Compares the replicas, and waits for repairs. Errors of replicas are in the result."""
        check = await self.compare()
        await await_repairs([self])
        return check

    async def compare(self) -> PartitionCheck:
        """Compares the replicas, without waiting for repairs. Errors of replicas are in the result."""
        check = self._check
        extents = [await self._ask(replica, 0, 0) for replica in check.replicas]
        answers = [extent for extent in extents if extent is not None]
        if answers:
            check.start_offset = max(extent.log_start_offset for extent in answers)
            check.end_offset = max(check.start_offset, min(extent.high_watermark for extent in answers))
        offset = check.start_offset
        while offset < check.end_offset:
            end = await self._compare(offset)
            if end is None:
                break
            self._advance(end - offset)
            offset = end
        return check

    async def _compare(self, offset: int) -> int | None:
        """Compares one range of offsets; returns its end, or None if no replica can be asked any more."""
        end = self._check.end_offset
        first: ReplicaVerification | None = None
        for replica in self._check.replicas:
            answer = await self._ask(replica, offset, end if first is None else first.next_offset)
            if answer is None:
                continue
            replica.damaged += [damage for damage in answer.damaged if damage not in replica.damaged]
            if first is None:
                first = answer
                self._check.bytes += answer.bytes
            elif replica.differs_at is None and not _are_alike(answer, first):
                replica.differs_at = await self._first_difference(replica, first.broker_id, offset, first.next_offset)
        return None if first is None else min(max(first.next_offset, offset + 1), end)

    async def _first_difference(self, replica: ReplicaCheck, broker_id: int, offset: int, to: int) -> int | None:
        """Returns the first offset in [offset, to) where the batches of a replica and of broker `broker_id` differ.
        None if they are the same as far as both were read, or if one of the two could not be asked."""
        mine = await self._ask(replica, offset, to, names_batches=True)
        theirs = await self._ask(ReplicaCheck(broker_id), offset, to, names_batches=True)
        if mine is None or theirs is None:
            return None
        pairs = zip(mine.batches or (), theirs.batches or (), strict=False)
        different = next((min(a.base_offset, b.base_offset) for a, b in pairs if a != b), None)
        if different is not None or mine.next_offset == theirs.next_offset:
            return different
        return await self._first_difference(replica, broker_id, min(mine.next_offset, theirs.next_offset), to)

    async def _ask(
        self, replica: ReplicaCheck, offset: int, to: int, *, names_batches: bool = False
    ) -> ReplicaVerification | None:
        if replica.error is not None:
            return None
        try:
            return await self._verify(
                self._check.topic,
                self._check.partition,
                replica.broker_id,
                offset=offset,
                to=to,
                names_batches=names_batches,
            )
        except TidelogError as error:
            replica.error = error.message
            return None

    async def look_again(self) -> bool:
        """Checks the damaged offsets again; returns True if all are repaired."""
        for replica in self._check.replicas:
            for damaged in list(replica.damaged):
                again = await self._ask(replica, damaged.start_offset, damaged.end_offset)
                if again is not None and not again.damaged:
                    replica.damaged.remove(damaged)
                    replica.repaired.append(damaged)
        return not any(replica.damaged for replica in self._check.replicas)


async def await_repairs(verifiers: Sequence[PartitionVerifier]) -> None:
    """Waits until the brokers have repaired the damage of all partitions, or time is up. The partitions share one wait,
    so that irreparable ones do not delay each other."""
    loop = asyncio.get_running_loop()
    give_up_s = loop.time() + REPAIR_S_MAX
    waiting = list(verifiers)
    while waiting := [verifier for verifier in waiting if not await verifier.look_again()]:
        if loop.time() >= give_up_s:
            return
        await asyncio.sleep(POLL_S)


def _are_alike(answer: ReplicaVerification, reference: ReplicaVerification) -> bool:
    """Returns True if two replicas' checks of the same range agree. Results with different start offsets cannot be
    compared, since records were deleted meanwhile, and count as equal."""
    alike = (answer.checksum, answer.next_offset) == (reference.checksum, reference.next_offset)
    return alike or answer.offset != reference.offset


@dataclass(slots=True)
class BrokerCheck:
    """The result for a broker's files other than logs: journals, the metadata log, snapshots, and small files kept in
    two copies."""

    broker_id: int
    checked: list[CheckedFiles] = field(default_factory=list)
    error: str | None = None
    """The reason why the files could not be verified completely; None if they were."""

    @property
    def is_whole(self) -> bool:
        """True if nothing is damaged now."""
        return self.error is None and not any(files.left or files.error for files in self.checked)


async def verify_broker(ask: Callable[..., Awaitable[BrokerVerification]], broker_id: int) -> BrokerCheck:
    """Verifies one broker's files; errors are in the result. `ask` is `AdminClient.verify_broker`."""
    check = BrokerCheck(broker_id)
    is_last, after = False, ""
    try:
        while not is_last:
            answer = await ask(broker_id, after=after)
            check.checked += answer.checked
            is_last, after = answer.is_last, answer.checked[-1].name if answer.checked else after
    except TidelogError as error:
        check.error = error.message
    return check
