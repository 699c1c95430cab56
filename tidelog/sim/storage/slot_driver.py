"""A driver of one slot store, without a replica, that checks what the store promises.

A slot store keeps the slots of one Paxos replica: ballot, payload, and the *identity* of the value, bytes that the
store does not interpret. The driver calls it as a replica does, remembers every state that it went through, and
compares after each reopening. The promises:

- The store shows one of its past states as a whole (slots, ballots, identities and floor), no older than the last flush
  that was reported. A journal loses its end, never its middle.
- A payload has the digest of its slot, and is missing only if it was never stored. A store that keeps entries with an
  intact row at its end (`BadEnd.KEEP`) may lack payloads that were not reported flushed; such a slot is still known by
  its identity.
- The metainfo is the last that was reported stored, or a newer one.
- An undamaged store never reports amnesia, never goes offline, and can be written.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from xxhash import xxh3_128_digest

from tidelog.model.errors import DiskFull, LogOffline, Overloaded
from tidelog.model.ids import PartitionId, TopicId
from tidelog.sim.kit.choices import CrashChoices
from tidelog.sim.kit.disk import SimDisk
from tidelog.storage.flush import Flush
from tidelog.storage.open_files import OpenFiles
from tidelog.storage.partition_log import LogSettings
from tidelog.storage.scan import BadEnd
from tidelog.storage.slot_store import SlotPut, SlotStore, StoredSlot, StoredSlots

IDENTITY = PartitionId(TopicId("0" * 32), 0)
DIRECTORY = "metadata"
NOW_MS = 1_700_000_000_000


class KnownSlot(NamedTuple):
    """The expected content of a slot. `has_payload` is False if the payload of its value was never stored."""

    number: int
    identity: bytes
    digest: bytes
    has_payload: bool


@dataclass(slots=True)
class State:
    """The state of the store at one moment. `end` is the end of its journal then: a flush that reaches this end makes
    the state durable."""

    end: int = 0
    floor: tuple[int, bytes] | None = None
    slots: dict[int, KnownSlot] = field(default_factory=dict)


class SlotDriver:
    """A slot store (the slots of one Paxos replica) on a simulated disk. `states` are those that a crash may bring
    back, oldest first."""

    def __init__(
        self,
        disk: SimDisk,
        *,
        segment_bytes: int = 1 << 23,
        handles_max: int = 64,
        bad_end: BadEnd = BadEnd.TRUNCATE,
        vouches: bool = False,
    ) -> None:
        self.disk = disk
        self.bad_end = bad_end
        self._vouches = vouches
        self.states = [State()]
        self.payloads: dict[bytes, bytes] = {}
        self._first_payloads: dict[int, bytes] = {}
        self.metainfo: list[bytes | None] = [None]
        """Contents of the replica's metainfo (its promises and used ballots) that may be on the disk; the first is the
        last that was reported stored."""
        self.incarnation: str | None = None
        self._settings = LogSettings(segment_bytes=segment_bytes, segment_ms=1 << 60, producers_max=1)
        self._handles_max = handles_max
        self._values = 0
        self._names: set[tuple[int, int, bytes]] = set()
        """Position, ballot and identity of all entries that were ever put."""
        self.open()

    def open(self) -> None:
        """Opens the store as a starting process does."""
        self.store: SlotStore
        self.stored: StoredSlots
        self.store, self.stored = SlotStore.open(
            OpenFiles(self.disk, self._handles_max),
            DIRECTORY,
            IDENTITY,
            self._settings,
            new_incarnation=f"incarnation {self._values}",
            now_ms=NOW_MS,
            bad_end=self.bad_end,
            vouches=self._vouches,
        )

    # -- what a shell does -------------------------------------------------------------------------------------------

    @property
    def now(self) -> State:
        return self.states[-1]

    @property
    def floor(self) -> int:
        return self.now.floor[0] if self.now.floor else 0

    def put(self, position: int, *, number: int | None = None, payload_bytes: int | None = 0) -> None:
        """Puts a slot with a unique value, without a payload if `payload_bytes` is None. Raises `DiskFull`,
        `LogOffline` or `Overloaded` if nothing was written, and `InternalError` if the outcome is unknown."""
        self._values += 1
        identity = b"identity %d" % self._values
        number = self._values if number is None else number
        if payload_bytes is None:
            self._put_all((position, KnownSlot(number, identity, b"", has_payload=False), None))
            return
        payload = (b"payload %d" % self._values).ljust(payload_bytes, b".")
        digest = xxh3_128_digest(payload)
        self.payloads[digest] = payload
        self._first_payloads.setdefault(position, payload)
        self._put_all((position, KnownSlot(number, identity, digest, has_payload=True), payload))

    def learn(self, position: int) -> None:
        """Puts a slot again as learned, without repeating its payload."""
        slot, self._values = self.now.slots[position], self._values + 1
        identity = b"learned %d" % self._values
        self._put_all((position, slot._replace(identity=identity), None))

    def revive(self, position: int) -> None:
        """Puts the first value that the position ever had, under a new ballot, as a new leader does that found the
        value elsewhere."""
        self._values += 1
        payload = self._first_payloads.get(position)
        if payload is not None:
            slot = KnownSlot(self._values, b"revived %d" % self._values, xxh3_128_digest(payload), has_payload=True)
            self._put_all((position, slot, payload))

    def put_faulty(self, position: int) -> None:
        """Puts a slot whose payload is still missing."""
        self._values += 1
        digest = xxh3_128_digest(b"missing %d" % self._values)
        self.payloads[digest] = b"missing %d" % self._values
        slot = KnownSlot(self._values, b"identity %d" % self._values, digest, has_payload=False)
        self._put_all((position, slot, None))

    def repair(self, position: int) -> None:
        """Puts a slot again with its payload, whether the payload was missing or not."""
        slot, self._values = self.now.slots[position], self._values + 1
        if slot.digest:
            identity = b"repaired %d" % self._values
            self._put_all((position, slot._replace(identity=identity, has_payload=True), self.payloads[slot.digest]))

    def learn_and_put(self, learned: int, position: int, *, payload_bytes: int) -> None:
        """Writes three entries at once: a slot again as learned, a slot with a new value at `position`, and the latter
        again as learned. Both positions may be the same."""
        self._values += 4
        number, payload = self._values, (b"payload %d" % self._values).ljust(payload_bytes, b".")
        digest = xxh3_128_digest(payload)
        self.payloads[digest] = payload
        self._first_payloads.setdefault(position, payload)
        slot = KnownSlot(number, b"identity %d" % number, digest, has_payload=True)
        again = self.now.slots[learned]._replace(identity=b"learned %d" % number)
        self._put_all(
            (learned, again, None),
            (position, slot, payload),
            (position, slot._replace(identity=b"learned too %d" % number), payload),
        )

    def _put_all(self, *puts: tuple[int, KnownSlot, bytes | None]) -> None:
        states, slots = [], self.now.slots
        for position, slot, _ in puts:
            slots = {**slots, position: slot}
            self._names.add((position, slot.number, slot.identity))
            states.append(State(0, self.now.floor, slots))
        requests = [SlotPut(at, slot.number, slot.identity, payload, slot.digest) for at, slot, payload in puts]
        self._reach(states, lambda: self.store.put_all(requests))

    def set_floor(self, position: int) -> None:
        self._values += 1
        content = b"floor %d" % self._values
        kept = {at: slot for at, slot in self.now.slots.items() if at >= position}
        self._reach([State(0, (position, content), kept)], lambda: self.store.set_floor(position, content))

    def _reach(self, states: Sequence[State], put: Callable[[], int]) -> None:
        """Calls `put` and adds the states that it leads to. A put that is refused changes nothing; after any other
        error each of the states is possible."""
        for entry, state in enumerate(states, 1):
            state.end = self.store.journal.log_end_offset + entry
        before = len(self.states)
        self.states += states
        try:
            end = put()
        except (DiskFull, LogOffline, Overloaded):
            del self.states[before:]
            raise
        assert end == self.now.end

    def delete_below(self) -> None:
        """Deletes the slots below the newest durable floor (the first position that the store still has to keep)."""
        if self.states[0].floor is not None:
            self.store.delete_below(self.states[0].floor[0])

    def store_metainfo(self) -> None:
        """Stores new metainfo. Raises `OSError`: then either the old or the new one is on the disk."""
        self._values += 1
        metainfo = (b"facts %d" % self._values).ljust(self._values * 7 % 900, b"!")
        self.metainfo.append(metainfo)
        self.store.store_metainfo(metainfo)()
        self.metainfo = [metainfo]

    def flush(self) -> bool:
        """Makes all entries durable, and lets the store record that. Returns False if there was nothing to do, or the
        disk failed."""
        is_done = self.store.is_dirty and self.finish(self.store.begin_flush())
        while is_done and self.store.is_dirty and self.store.vouch():
            is_done = self.finish(self.store.begin_flush())
        return is_done

    def finish(self, flush: Flush) -> bool:
        """Runs a flush, which may have been begun before later puts. Returns False if the disk failed."""
        try:
            flush.run()
        except OSError as error:
            self.store.end_flush(flush, error)
            return False
        self.store.end_flush(flush, None)
        if self.store.offline_reason is None:
            self.store.vouch()
        self._note_durable()
        return self.store.offline_reason is None

    def close(self) -> None:
        """Closes the store in order, which includes a flush."""
        self.store.close()
        self._note_durable()

    def _note_durable(self) -> None:
        while len(self.states) > 1 and self.states[1].end <= self.store.durable_end:
            del self.states[0]

    # -- what a machine does -----------------------------------------------------------------------------------------

    def crash(self, choices: CrashChoices | None = None) -> None:
        """Cuts the power. The next call is `open`."""
        self.disk = self.disk.crash(choices)

    def kill(self) -> None:
        """Kills the process only, not the machine. The next call is `open`."""
        self.disk = self.disk.kill()

    # -- what must be true -------------------------------------------------------------------------------------------

    def check_reopened(self) -> None:
        """Checks an undamaged store that was just opened against the promises. What it shows is then a promise, too."""
        stored, store = self.stored, self.store
        assert not stored.is_amnesiac, f"nothing was damaged: {stored.report.findings}"
        assert store.offline_reason is None, store.offline_reason
        assert stored.metainfo in self.metainfo, f"metainfo {stored.metainfo!r}, not one of {self.metainfo}"
        assert self.incarnation in (None, store.incarnation), "another incarnation, though nothing was lost"
        assert store.durable_end == store.journal.log_end_offset
        state = self._recognise()
        self.check_payloads(state)
        state.end = store.durable_end
        self.states, self.metainfo, self.incarnation = [state], [stored.metainfo], store.incarnation

    def _recognise(self) -> State:
        """Returns which of `states` the store shows after a crash. Raises `AssertionError` if it is none of them."""
        stored = self.stored
        shown = {slot.position: slot for slot in stored.slots}
        for state in self.states:
            if stored.floor == state.floor and shown.keys() == state.slots.keys():
                slots = {at: self._recognise_slot(at, slot, shown[at]) for at, slot in state.slots.items()}
                recognised = {at: slot for at, slot in slots.items() if slot is not None}
                if recognised.keys() == slots.keys():
                    return State(state.end, state.floor, recognised)
        raise AssertionError(f"{stored} was never the state, or is an old one; {self.states[0]} was durable")

    def _recognise_slot(self, position: int, slot: KnownSlot, shown: StoredSlot) -> KnownSlot | None:
        """Returns the slot in the state that the store shows, None if it contradicts the known state. In a store that
        keeps bad ends, a slot that was not durable may lack its payload."""
        is_same = (shown.number, shown.identity) == (slot.number, slot.identity)
        durable = self.states[0].slots.get(position)
        if self.bad_end == BadEnd.TRUNCATE or slot == durable:
            return slot if is_same else None
        if shown.identity is None or (position, shown.number, shown.identity) not in self._names:
            return None
        if shown.number != slot.number:
            return None
        was_durable = durable is not None and durable.digest == slot.digest and durable.has_payload
        others = (state.slots.get(position) for state in self.states)
        was_given = any(
            earlier is not None and earlier.digest == slot.digest and earlier.has_payload for earlier in others
        )
        has_payload = was_given and (was_durable or not shown.is_faulty)
        return slot._replace(identity=shown.identity, has_payload=has_payload)

    def check_payloads(self, state: State) -> None:
        """Checks that every payload that was stored can be read, and is right."""
        is_faulty = {slot.position: slot.is_faulty for slot in self.stored.slots}
        for position, slot in state.slots.items():
            if slot.digest and not is_faulty.get(position, False):
                assert self.store.payload(position) == self.payloads[slot.digest], f"wrong payload at {position}"
            assert slot.has_payload or not slot.digest or is_faulty[position], "a payload from nowhere"
            assert not (slot.has_payload and is_faulty.get(position)), f"the payload at {position} is gone"
