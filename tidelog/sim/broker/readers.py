"""Clients that read: all records go into the history, which compares them with what was sent and read."""

from __future__ import annotations

import asyncio
import random

from tidelog.broker.broker import Broker
from tidelog.broker.partitions.partition_handle import FetchedBatches
from tidelog.checker.operations import View
from tidelog.model.errors import DamagedBatch, LeaderNotAvailable, OffsetOutOfRange, TidelogError
from tidelog.model.ids import TopicPartition
from tidelog.sim.kit.history import History, records_in
from tidelog.sim.kit.machine import ConnectionLost, Service, Unreachable
from tidelog.sim.kit.medium import Medium

FETCH_BYTES = 4_096
WAIT_S = 0.5
PAUSE_S = 0.05
REFUSALS_MAX = 1_000


class Reader:
    """Client that reads one partition from its start, and now and then again from an earlier offset."""

    def __init__(
        self,
        partition: TopicPartition,
        machine: Service,
        history: History,
        rng: random.Random,
        medium: Medium | None = None,
    ) -> None:
        """`medium` is the broker's disk, whose faults excuse damage that the reader meets."""
        self.partition = partition
        self._machine = machine
        self._medium = medium
        self._history = history
        self._rng = rng
        self._name = f"reader {partition}"
        self._offset = 0
        self._is_stopping = False

    def stop(self) -> None:
        self._is_stopping = True

    async def run(self) -> None:
        while not self._is_stopping:
            try:
                await self._fetch()
            except OffsetOutOfRange as error:
                self._go_to(error.log_start_offset)
            except DamagedBatch:
                await self._damaged()
            except (Unreachable, ConnectionLost, TidelogError):
                await asyncio.sleep(PAUSE_S)
            await asyncio.sleep(self._rng.random() * PAUSE_S)

    async def _damaged(self) -> None:
        medium = self._medium
        assert medium is not None, "nothing is damaged where nobody damages"
        is_volatile = self.partition in self._history.volatile  # shown before the fsync that then failed
        if medium.faults.read_error or (is_volatile and medium.statistics.faults["sync_error"]):
            await asyncio.sleep(PAUSE_S)
            return
        if self._offset not in self._history.rotten.get(self.partition, ()):
            self._history.violate(f"{self.partition} offset {self._offset} is called damaged, and is not")
        self._offset += 1

    async def _fetch(self) -> None:
        offset = self._offset

        async def fetch(broker: Broker) -> FetchedBatches:
            partition = broker.partition(*self.partition)
            deadline_s = asyncio.get_running_loop().time() + WAIT_S
            await partition.wait_for_data(offset, bytes_min=self._rng.choice((1, 1_000)), deadline_s=deadline_s)
            return await partition.read(offset, bytes_max=FETCH_BYTES)

        poll = self._history.recorder.invoke(self._name, "poll")
        try:
            fetched = await self._machine.call(fetch)
        except (Unreachable, ConnectionLost, TidelogError):
            self._history.recorder.complete(poll, "fail")
            raise
        self._check(fetched, offset)
        records = [*records_in(fetched.data, offset)]
        self._history.show(
            poll, self.partition, records, high_watermark=fetched.high_watermark, epoch=fetched.leader_epoch
        )
        self._offset = fetched.next_offset
        if self._rng.random() >= 0.95:
            self._go_to(self._rng.randint(0, self._offset))

    def _check(self, fetched: FetchedBatches, offset: int) -> None:
        """Checks that the fetched records have every offset from `offset` up to the offset at which the broker says to
        read on, so that a gap at the end is noticed as well."""
        for at, _ in records_in(fetched.data, offset):
            if at != offset:
                self._history.violate(f"{self.partition} skips from {offset} to {at}")
            offset = at + 1
        if offset != fetched.next_offset:
            self._history.violate(f"{self.partition} ends at {offset}, but says to read on at {fetched.next_offset}")

    def _go_to(self, offset: int) -> None:
        self._offset = offset
        self._history.recorder.tell("seek", [str(self.partition)], process=self._name)


async def read_all(machine: Service, partition: TopicPartition, history: History, *, is_sparse: bool = False) -> View:
    """Returns the content of a partition up to its high watermark; damaged offsets are listed. `is_sparse` if some
    offsets belong to no record. A refused read (`LeaderNotAvailable`, as by a leader whose lease has expired) is
    repeated a few times. Raises `TidelogError` if the broker refuses for good, `Unreachable` or `ConnectionLost`."""

    async def read(broker: Broker) -> View:
        handle = broker.partition(*partition)
        extent = await handle.extent()
        start, high_watermark = extent.log_start_offset, extent.high_watermark
        view = View(str(partition), start, high_watermark, extent.log_end_offset, [], [], is_sparse)
        offset, refusals_left = start, REFUSALS_MAX
        while offset < high_watermark:
            try:
                fetched = await handle.read(offset, bytes_max=FETCH_BYTES)
            except LeaderNotAvailable:
                refusals_left -= 1
                if not refusals_left:
                    raise
                await asyncio.sleep(PAUSE_S)
                continue
            except DamagedBatch:
                view.damaged.append(offset)
                offset += 1
                continue
            view.damaged.extend(passed for lost in fetched.lost for passed in range(*lost))
            assert fetched.next_offset > offset, f"nothing at {offset} of {partition}, below the high watermark"
            view.records.extend((at, history.text(value)) for at, value in records_in(fetched.data, offset))
            offset = fetched.next_offset
        return view

    return await machine.call(read)
