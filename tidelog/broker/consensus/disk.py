"""The disk of a replica: the engine's records go into a `SlotStore`, and `Stored` events report them as durable, in
order.

Slots become durable by the journal's flushes, the replica's metainfo by writing two copies of it. The engine numbers
its writes and relies on whole prefixes; so a write counts only when it and all earlier ones are durable, of both kinds.
Metainfo is replaced as a whole: only the newest is written.

On a full disk records wait in memory, in order, and are tried again. Any other failure is final.
"""

from __future__ import annotations

import asyncio
import errno
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple, Protocol

import msgspec

from tidelog.broker.consensus.payloads import Payloads
from tidelog.broker.consensus.stored import Identity, encode_identity
from tidelog.broker.runtime.log_writer import LogWriter
from tidelog.model.errors import DiskFull, Overloaded, TidelogError
from tidelog.model.levels import LEVEL_MAX
from tidelog.model.ports import Buffer
from tidelog.replication.paxos.events import Persist
from tidelog.replication.paxos.state import Metadata, Prefix, Slot, Value
from tidelog.storage.slot_store import SlotPut, SlotStore

RETRY_S = 0.1
END_S_MAX = 5.0
PUT_OFF_S = 0.05
"""Seconds that a record that no answer depends on may be kept in memory before it is written."""
TOGETHER_MAX = 64
"""Maximum number of records that are written to the journal at one time."""
UNWRITTEN_MAX = 1_000
"""Records that may wait for disk space; the disk counts as failed if there are more."""


class StateMachine(Protocol):
    """A state machine that keeps the applied values in a log. When more of that log is durable, `ReplicaDisk.resume`
    has to be called."""

    def payload_of(self, value: Value) -> bytes | None:
        """Returns the payload of a value that is in this log; None if it is not, or cannot be read."""

    @property
    def end_offset(self) -> int:
        """The end offset of all values that were delivered to it."""

    @property
    def durable_offset(self) -> int: ...


class _Unwritten(NamedTuple):
    """A record of the engine's step `effect` that waits to be written. `record` is None in the last entry of a step:
    once it is reached, all records of the step are written."""

    record: Metadata | Prefix | Slot | None
    payload: Buffer | None
    effect: Persist
    covers: int = 0
    """Offset up to which the state machine's log must be durable before this record is written; 0 if it need not be."""


class _Write(NamedTuple):
    sequence: int
    journal_end: int
    metainfo: int


class ReplicaDisk:
    """Stores the records that one engine persists. `run` is its task; the engine sets `on_stored` and `on_failed`."""

    def __init__(
        self,
        store: SlotStore,
        log_writer: LogWriter,
        metainfo: Callable[[Metadata], bytes],
        *,
        floor: Callable[[Prefix], bytes] = msgspec.msgpack.encode,
        state_machine: StateMachine | None = None,
        level: Callable[[], int] = lambda: LEVEL_MAX,
    ) -> None:
        """`metainfo` and `floor` encode the engine's metadata and floor, with what their owner keeps beside them; an
        encoded floor must be readable as a `Prefix`. `level` returns the feature level to write at."""
        self.on_stored: Callable[[int], None]
        self.on_failed: Callable[[], None]
        self._store = store
        self._log_writer = log_writer
        self._encode_metainfo = metainfo
        self._encode_floor = floor
        self._state_machine = state_machine
        self._level = level
        self._writes: deque[_Write] = deque()
        self._newest: bytes | None = None
        self._metainfo_requested = 0
        self._metainfo_stored = 0
        self._has_metainfo = asyncio.Event()
        self._metainfo_written = asyncio.Event()
        self._flushed = asyncio.Event()
        """Set by each flush, and when the disk fails."""
        self._has_failed = False
        self._unwritten: deque[_Unwritten] = deque()
        self._retry: asyncio.TimerHandle | None = None
        self._put_off: asyncio.TimerHandle | None = None
        self._vouching: asyncio.TimerHandle | None = None
        self._end = store.durable_end
        """The position of the journal's end after the last write."""

    @property
    def log(self) -> SlotStore:
        """The slot store, which the log writer flushes."""
        return self._store

    # -- writing -----------------------------------------------------------------------------------------------------

    def persist(self, effect: Persist, payloads: Payloads) -> None:
        """Writes the records of one engine step, at once if it is urgent; `on_stored` reports when they are durable."""
        for record in effect.records:
            # A faulty slot is written without: its identity must be on disk so that it is never denied.
            needs_payload = isinstance(record, Slot) and record.value.digest and not record.faulty
            payload = payloads.get(record.value.digest) if isinstance(record, Slot) and needs_payload else None
            covers = 0
            # Where a log of its own holds what is applied, a floor waits until that is durable as far as it has come.
            # Else the floor might outlive what it stands for: power would take the journal's slots and the log's tail.
            if isinstance(record, Prefix) and self._state_machine is not None:
                covers = self._state_machine.end_offset
            self._unwritten.append(_Unwritten(record, payload, effect, covers))
        self._unwritten.append(_Unwritten(None, None, effect))
        # What nobody waits for costs no fsync of its own: it is written with the next record that somebody does wait
        # for, in one go, or a moment later. Most of it says that a position is chosen, and the leader's next value is
        # not far.
        if effect.is_urgent or effect.is_soon or len(self._unwritten) >= TOGETHER_MAX:
            self.resume()
        elif self._put_off is None:
            self._put_off = asyncio.get_running_loop().call_later(PUT_OFF_S, self.resume)

    def resume(self) -> None:
        """Writes the records that were put off, unless records wait for disk space."""
        if self._put_off is not None:
            self._put_off.cancel()
            self._put_off = None
        # While a record waits for room its timer tries again, and nothing may overtake it.
        if self._retry is None:
            self._write()

    @property
    def is_out_of_room(self) -> bool:
        """True while a record waits because the disk is full."""
        return self._retry is not None

    def _write(self) -> None:
        """Writes the waiting records in order, as far as there is disk space."""
        self._retry = None
        try:
            # In order: the engine believes in whole prefixes, so nothing may overtake a record that waits.
            while self._unwritten and self._is_covered(self._unwritten[0]):
                run = self._first_run()
                self._write_run(run)
                for _ in run:
                    self._unwritten.popleft()
        except (DiskFull, Overloaded) as error:
            if len(self._unwritten) > UNWRITTEN_MAX:
                self.fail(str(error))
            elif not self._has_failed:
                self._retry = asyncio.get_running_loop().call_later(RETRY_S, self._write)
        except (TidelogError, OSError) as error:
            self.fail(str(error))

    def _is_covered(self, unwritten: _Unwritten) -> bool:
        machine = self._state_machine
        if machine is None or not unwritten.covers:
            return True
        # The log may have been truncated since; then its end is all there is to wait for.
        return machine.durable_offset >= min(unwritten.covers, machine.end_offset)

    def _first_run(self) -> list[_Unwritten]:
        """Returns the records to be written next at one time: consecutive slots, or one record of another kind."""
        run: list[_Unwritten] = []
        for unwritten in self._unwritten:
            # Metainfo and floors go by other ways than slots, and must not change places with them.
            if len(run) == TOGETHER_MAX or isinstance(unwritten.record, Metadata | Prefix):
                break
            run.append(unwritten)
        return run or [self._unwritten[0]]

    def _write_run(self, run: list[_Unwritten]) -> None:
        """Writes consecutive slots, or one record of another kind, all or none, and notes which engine steps end with
        them."""
        self._put(run)
        for record, _, effect, _ in run:
            # The step is durable when the journal has reached this end, and the metainfo asked for so far is stored.
            if record is None:
                self._writes.append(_Write(effect.sequence, self._end, self._metainfo_requested))
                if effect.is_urgent or effect.is_soon:
                    self._log_writer.submit(self, is_awaited=effect.is_urgent)

    def close(self) -> None:
        """Writes the records that were put off, and cancels the retries of those that wait for disk space."""
        self.resume()
        for timer in (self._retry, self._vouching):
            if timer is not None:
                timer.cancel()

    def refresh(self, metadata: Metadata) -> None:
        """Writes the metainfo (promises and ids of the replica) again, since the part that its owner adds has changed.
        Does not wait."""
        self._newest = self._encode_metainfo(metadata)
        self._metainfo_requested += 1
        self._has_metainfo.set()

    async def flush(self) -> bool:
        """Writes what was put off, and waits until everything persisted so far is durable. Returns False if it cannot
        become durable: there is no disk space, or the disk has failed."""
        self.resume()
        # What waits for room is not written yet, so no flush can make it durable.
        if self._unwritten:
            return False
        end = self._end
        # A flush that is under way may have begun before the last put, so one report is not always enough.
        while self._store.durable_end < end and not self._has_failed:
            self._flushed.clear()
            self._log_writer.submit(self)
            await self._flushed.wait()
        return not self._has_failed

    async def end(self, metadata: Metadata) -> None:
        """Writes the waiting records, and then this metainfo (promises and ids), which records a clean stop. The
        metainfo is left out if that fails, or takes more than `END_S_MAX` seconds."""
        self.resume()
        self._log_writer.submit(self)
        await self._log_writer.at_rest(self._store)
        # Metainfo that tells of an end in good order must not outlive records that are not there.
        if self._unwritten or self._has_failed or self._store.durable_end < self._end:
            return
        self.refresh(metadata)
        with suppress(TimeoutError):
            async with asyncio.timeout(END_S_MAX):
                while self._metainfo_stored < self._metainfo_requested:
                    self._metainfo_written.clear()
                    await self._metainfo_written.wait()

    def _put(self, run: list[_Unwritten]) -> None:
        puts: list[SlotPut] = []
        level = self._level()
        for record, payload, _, _ in run:
            match record:
                case Slot(position, number, value, learned):
                    identity = encode_identity(Identity(value, learned), level)
                    puts.append(SlotPut(position, number, identity, payload, value.digest))
                case Metadata():
                    self.refresh(record)
                case Prefix():
                    self._end = self._store.set_floor(record.position, self._encode_floor(record))
        if puts:
            self._end = self._store.put_all(puts)

    def rewrite(self, slot: Slot) -> None:
        """Writes a slot again, since its journal entry is damaged. Its payload is stored already, or missing. Does not
        wait."""
        if not self._has_failed:
            self._unwritten.append(_Unwritten(slot, None, Persist(0, (slot,), is_urgent=False)))
            self.resume()
            self._log_writer.submit(self, is_awaited=False)

    def rewrite_floor(self, floor: Prefix) -> None:
        """Writes the floor again, since the part that its owner adds has changed. Does not wait; without disk space the
        old one stays. A floor that waits to be written is encoded later, and needs no rewriting."""
        if any(isinstance(unwritten.record, Prefix) for unwritten in self._unwritten):
            return
        with suppress(DiskFull, Overloaded):
            self._end = self._store.set_floor(floor.position, self._encode_floor(floor))
            self._log_writer.submit(self, is_awaited=False)

    def delete_below(self, position: int) -> None:
        """Deletes the journal's segments below a position, up to which a floor is durable."""
        try:
            self._store.delete_below(position)
        except (TidelogError, OSError) as error:
            self.fail(str(error))
            return
        self._log_writer.submit(self)

    def read(self, position: int, value: Value) -> Buffer:
        """Returns the payload of this value at its position. Raises `DamagedBatch` if neither memory nor journal has a
        readable copy."""
        for record, payload, _, _ in self._unwritten:
            # A record that waits for room is not in the store yet, and may be asked for.
            if isinstance(record, Slot) and record.value.digest == value.digest and payload is not None:
                return payload
        return self._store.payload(position, value.digest)

    def applied_copy(self, value: Value) -> bytes | None:
        """Returns the payload of a value from the state machine's log; None if it is not there, or cannot be read."""
        return None if self._state_machine is None else self._state_machine.payload_of(value)

    # -- becoming durable --------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Writes the newest metainfo (promises and ids of the replica) whenever it has changed, until cancelled."""
        while True:
            await self._has_metainfo.wait()
            self._has_metainfo.clear()
            if self._newest is None or self._has_failed:
                continue
            metainfo, requested = self._newest, self._metainfo_requested
            # Taken out before the write: newer metainfo that comes meanwhile is written next.
            self._newest = None
            try:
                await self._log_writer.perform(self._store.store_metainfo(metainfo))
            except OSError as error:
                # After a failed fsync the page may count as clean: nothing that was not reported can be relied on, so
                # no retry.
                if error.errno != errno.ENOSPC:
                    self.fail(str(error))
                    continue
                # A full disk is a slow disk: the metainfo is written when there is room, unless newer has come.
                await asyncio.sleep(RETRY_S)
                self._try_again(metainfo)
                continue
            self._metainfo_stored = requested
            self._metainfo_written.set()
            self._report()

    def _try_again(self, metainfo: bytes) -> None:
        """Schedules writing this metainfo (promises and ids of the replica) again, unless newer metainfo waits."""
        if self._newest is None:
            self._newest = metainfo
        self._has_metainfo.set()

    def on_flushed(self) -> None:
        """Handles the log writer's report that a flush has ended, or failed."""
        self._flushed.set()
        if self._store.offline_reason is not None:
            self.fail(self._store.offline_reason)
        else:
            self._vouch()
            self._report()

    def _vouch(self) -> None:
        """Requests another flush, by which a mark of how far the journal is durable gets on disk, if the store has to
        vouch for its entries (`SlotStore.vouch`)."""
        try:
            if self._store.vouch():
                self._log_writer.submit(self)
        except (DiskFull, Overloaded):
            self._vouching = asyncio.get_running_loop().call_later(RETRY_S, self._log_writer.submit, self)
        except TidelogError as error:
            self.fail(str(error))

    def _report(self) -> None:
        stored = 0
        while self._writes and self._is_durable(self._writes[0]):
            stored = self._writes.popleft().sequence
        # One report stands for all before it.
        if stored and not self._has_failed:
            self.on_stored(stored)

    def _is_durable(self, write: _Write) -> bool:
        # Both ways have to have come so far: a promise in the metainfo counts only with the slots that it told of.
        return write.journal_end <= self._store.durable_end and write.metainfo <= self._metainfo_stored

    def fail(self, reason: str) -> None:
        """Takes the journal offline for good: records that were not reported as durable cannot be relied on."""
        if not self._has_failed:
            self._has_failed = True
            self._flushed.set()
            self._writes.clear()
            self._unwritten.clear()
            # Nothing more is written: a later success behind a failed write would leave a gap that looks durable.
            self._store.journal.take_offline(reason)
            self.on_failed()
