"""Reading a partition after its brokers have restarted: its leader, then a new record, then each replica."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Set
from typing import Final

from tidelog.broker.broker import Broker
from tidelog.broker.partitions.partition_handle import FetchedBatches, ReadHandle
from tidelog.model.batch_codec import encode_batch
from tidelog.model.batch_header import split_batches
from tidelog.model.errors import DamagedBatch, TidelogError
from tidelog.model.ids import PartitionId
from tidelog.model.records import Record
from tidelog.sim.kit.history import records_in
from tidelog.sim.sweep.cases import Case
from tidelog.sim.sweep.verdicts import Result, Verdict, compare, worst

AFTER: Final = b"after"
PRODUCE_S: Final = 5.0
BATCH_BYTES_MAX: Final = 1 << 20


async def append(broker: Broker, topic: str, number: int, value: bytes) -> int:
    """Appends a record in a batch of its own with acks=all; returns its offset. Raises a definite `TidelogError` if
    nothing was appended (such as `NotLeader`), and `TimedOutAfterAppend` or `InternalError` if the outcome is
    unknown."""
    batches = split_batches(
        bytes(encode_batch([Record(broker.face.clock.wall_ms(), None, value)])), batch_bytes_max=BATCH_BYTES_MAX
    )
    deadline_s = asyncio.get_running_loop().time() + PRODUCE_S
    receipt = await broker.partition(topic, number).produce(batches, acks=-1, deadline_s=deadline_s)
    assert receipt.base_offset is not None, "acks=-1 tells the offset"
    return receipt.base_offset


class Reader:
    """Reads the records of a partition at one broker, until each of them has been read or answered as damaged."""

    def __init__(self, expected: Mapping[int, bytes], good: Set[int], lacked: Set[int] = frozenset()) -> None:
        """Expects records by offset. `good` are the offsets of which some disk has a good copy; `lacked` are offsets
        that were never on this disk, and cannot be read here if nobody has a good copy."""
        self.problems: dict[Verdict, str] = {}
        self.answered = 0
        self.last = "not asked"
        self._expected = dict(expected)
        self._good = {*good}
        self._lacked = lacked - good
        self.left = sorted(expected)

    @property
    def is_damaged(self) -> bool:
        """True if the last read was answered `DamagedBatch`."""
        return self.last == DamagedBatch.__name__

    async def read(self, handle: ReadHandle) -> None:
        """Reads all offsets that have no verdict yet, at the same time: a read of a damaged batch waits for its
        repair."""
        await asyncio.gather(*(self._ask(handle, offset) for offset in self.left))

    async def _ask(self, handle: ReadHandle, offset: int) -> None:
        try:
            fetched = await handle.read(offset, bytes_max=1)
        except TidelogError as error:
            self.last = type(error).__name__
            if self.is_damaged and offset not in self._good and offset in self.left:
                self.answered += 1
                self.left.remove(offset)
        else:
            self._take(fetched, offset)

    def _take(self, fetched: FetchedBatches, offset: int) -> None:
        records = dict(records_in(fetched.data, offset))
        self.last = f"{len(records)} records"
        if records:
            self._compare(records, offset)
        elif offset in self._lacked:
            self.left.clear()  # a replica that was behind waits there for a copy, and shows nothing that follows

    def expect(self, offset: int, value: bytes) -> None:
        """Adds a record that has to be read."""
        self._expected[offset] = value
        self._good.add(offset)
        self.left.append(offset)

    def _compare(self, records: Mapping[int, bytes], start: int) -> None:
        offsets = sorted({*records, start})
        for verdict, problem in compare(records, offsets, self._expected, self._good, AFTER):
            self.problems.setdefault(verdict, problem)
        self.left = [offset for offset in self.left if offset not in offsets]


class Judge:
    """Judges a partition by what its leader and replicas show. `seconds` is the time until every read had a verdict."""

    def __init__(
        self,
        case: Case,
        number: int,
        partition_id: PartitionId,
        expected: Mapping[int, bytes],
        good: Set[int],
        lacked: Mapping[int, Set[int]],
    ) -> None:
        """`expected` are the values by offset, `good` the offsets that must be readable, `lacked` by node those that
        are not on its disk at all."""
        self.case = case
        self.number = number
        self.partition_id = partition_id
        self._lost = len(expected) - len(good)
        self._leader = Reader(expected, good)
        self._replicas = {node: Reader(expected, good, lacks) for node, lacks in lacked.items()}
        self._expected, self._good = expected, good
        self._produced = "not asked"
        self._after: int | None = None
        self.seconds = 0.0

    @property
    def left(self) -> int:
        """The number of reads without a verdict yet, at the leader and all replicas; one more until the new record is
        written."""
        return sum(len(reader.left) for reader in self._readers) + (self._after is None)

    @property
    def _readers(self) -> list[Reader]:
        return [self._leader, *self._replicas.values()]

    async def ask_leader(self, topic: str, broker: Broker, *, is_late: bool) -> None:
        """Reads the records without a verdict at the leader; then appends a new record. If `is_late`, it is appended
        although records are still unread."""
        try:
            handle = broker.partition(topic, self.number)
            await self._leader.read(handle)
            if self._after is None and (is_late or not self._leader.left):
                await self._write(topic, broker)
        except TidelogError as error:
            self._leader.last = type(error).__name__

    async def _write(self, topic: str, broker: Broker) -> None:
        try:
            self._after = await append(broker, topic, self.number, AFTER)
        except TidelogError as error:
            self._produced = type(error).__name__
            return
        if self._after > max(self._expected):
            for reader in self._readers:
                reader.expect(self._after, AFTER)

    async def ask_replica(self, node: int, broker: Broker) -> None:
        """Reads the replica of one broker, once the new record is appended."""
        reader = self._replicas.get(node)
        if self._after is None or reader is None or not reader.left:
            return
        copy = broker.data.local_copy(self.partition_id)
        if copy is not None:
            await reader.read(copy)

    def result(self) -> Result:
        """Returns the worst verdict on the partition, with the reason."""
        verdict, detail = worst(self._problems())
        return Result(self.case, verdict, detail, self._lost, self._leader.answered, self.seconds)

    def _problems(self) -> list[tuple[str, Verdict, str]]:
        problems = [
            (f"replica {node}", verdict, text)
            for node, reader in self._replicas.items()
            for verdict, text in reader.problems.items()
        ]
        problems += [("leader", verdict, text) for verdict, text in self._leader.problems.items()]
        if self._after is None:
            problems.append(
                ("leader", Verdict.STUCK, f"a write is answered {self._produced}, a read {self._leader.last}")
            )
        elif self._after <= max(self._expected):
            kind = Verdict.LOST if self._after in self._good else Verdict.SILENT
            problems.append(("leader", kind, f"a new record has offset {self._after}"))
        elif self._leader.left:  # it takes records, so what it does not show it does not have
            kind = Verdict.UNREPAIRED if self._leader.is_damaged else Verdict.LOST
            problems.append(("leader", kind, f"a read of {self._leader.left[0]} is answered {self._leader.last}"))
        late = {node: reader.last for node, reader in self._replicas.items() if reader.left}
        if late and self._after is not None:
            problems.append(("replicas", Verdict.UNREPAIRED, f"reads are answered {late}"))
        return problems
