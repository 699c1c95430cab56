"""A slot store driven directly, with no replica above it, and held to its promises.

The driver does what a Paxos replica's shell does with its store, remembers every state that it went through, and
compares after each reopening. The promises:

- What is there is what some moment of the past was, as a whole: slots, numbers, identities and floor, no older than the
  last flush that was reported. (A journal loses its end, never its middle.)
- Payloads are those of their digests, and missing only where none was ever given; in a store that keeps what has a
  sound row at its end, also of what was not reported flushed. Such a slot is known by its name, whatever a power cut
  tore.
- The metainfo is what was last reported stored, or newer that was asked for.
- An undamaged store is never amnesiac, never offline, and goes on.
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
    """The expected content of a slot. `has_payload` is False if its value has one that was never given."""

    number: int
    identity: bytes
    digest: bytes
    has_payload: bool


@dataclass(slots=True)
class State:
    """The store at one moment; `end` is what the put that made it so returned."""

    end: int = 0
    floor: tuple[int, bytes] | None = None
    slots: dict[int, KnownSlot] = field(default_factory=dict)


class SlotDriver:
    """A slot store on a simulated disk. `states` are those that a crash may bring back, oldest first."""

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
        """The metainfo that may be on the disk; the first is the last that was reported stored."""
        self.incarnation: str | None = None
        self._settings = LogSettings(segment_bytes=segment_bytes, segment_ms=1 << 60, producers_max=1)
        self._handles_max = handles_max
        self._values = 0
        self._names: set[tuple[int, int, bytes]] = set()
        """Position, number and identity of all that was ever put."""
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
        """Stores a value unlike any other; without payload if `payload_bytes` is None. Raises as `SlotStore.put`."""
        self._values += 1
        identity = b"identity %d" % self._values
        number = self._values if number is None else number
        if payload_bytes is None:
            self._put(position, KnownSlot(number, identity, b"", has_payload=False), None)
            return
        payload = (b"payload %d" % self._values).ljust(payload_bytes, b".")
        digest = xxh3_128_digest(payload)
        self.payloads[digest] = payload
        self._first_payloads.setdefault(position, payload)
        self._put(position, KnownSlot(number, identity, digest, has_payload=True), payload)

    def learn(self, position: int) -> None:
        """Puts the slot again, as one that is chosen; the payload is not given again."""
        slot, self._values = self.now.slots[position], self._values + 1
        identity = b"learned %d" % self._values
        self._put(position, slot._replace(identity=identity), None)

    def revive(self, position: int) -> None:
        """Puts the first value again that the position ever held, as a new leader may that found it elsewhere."""
        self._values += 1
        payload = self._first_payloads.get(position)
        if payload is not None:
            slot = KnownSlot(self._values, b"revived %d" % self._values, xxh3_128_digest(payload), has_payload=True)
            self._put(position, slot, payload)

    def put_faulty(self, position: int) -> None:
        """Puts a value whose payload is still to come."""
        self._values += 1
        digest = xxh3_128_digest(b"missing %d" % self._values)
        self.payloads[digest] = b"missing %d" % self._values
        slot = KnownSlot(self._values, b"identity %d" % self._values, digest, has_payload=False)
        self._put(position, slot, None)

    def repair(self, position: int) -> None:
        """Gives the slot's payload, whether it was there or not."""
        slot, self._values = self.now.slots[position], self._values + 1
        if slot.digest:
            identity = b"repaired %d" % self._values
            self._put(position, slot._replace(identity=identity, has_payload=True), self.payloads[slot.digest])

    def learn_and_put(self, learned: int, position: int, *, payload_bytes: int) -> None:
        """A slot that is chosen and a value for another position, or for the same, in one write; and once more."""
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

    def _put(self, position: int, slot: KnownSlot, payload: bytes | None) -> None:
        self._put_all((position, slot, payload))

    def _put_all(self, *puts: tuple[int, KnownSlot, bytes | None]) -> None:
        states, slots = [], self.now.slots
        for position, slot, _ in puts:
            slots = {**slots, position: slot}
            self._names.add((position, slot.number, slot.identity))
            states.append(State(0, self.now.floor, slots))
        asked = [SlotPut(at, slot.number, slot.identity, payload, slot.digest) for at, slot, payload in puts]
        self._reach(states, lambda: self.store.put_all(asked))

    def set_floor(self, position: int) -> None:
        self._values += 1
        content = b"floor %d" % self._values
        kept = {at: slot for at, slot in self.now.slots.items() if at >= position}
        self._reach([State(0, (position, content), kept)], lambda: self.store.set_floor(position, content))

    def _reach(self, states: Sequence[State], put: Callable[[], int]) -> None:
        """A put that is refused leaves everything as it was; of one that fails otherwise nobody knows."""
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
        """Deletes what the newest floor that is durable allows."""
        if self.states[0].floor is not None:
            self.store.delete_below(self.states[0].floor[0])

    def store_metainfo(self) -> None:
        """Raises as what `SlotStore.store_metainfo` returns."""
        self._values += 1
        metainfo = (b"facts %d" % self._values).ljust(self._values * 7 % 900, b"!")
        self.metainfo.append(metainfo)
        self.store.store_metainfo(metainfo)()
        self.metainfo = [metainfo]

    def flush(self) -> bool:
        """Makes everything durable, and has it vouched for. False if there was nothing to do, or the disk failed."""
        is_done = self.store.is_dirty and self.finish(self.store.begin_flush())
        while is_done and self.store.is_dirty and self.store.vouch():
            is_done = self.finish(self.store.begin_flush())
        return is_done

    def finish(self, flush: Flush) -> bool:
        """Runs a flush, which may have been begun before later puts."""
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
        """Stops cleanly, which is a flush too."""
        self.store.close()
        self._note_durable()

    def _note_durable(self) -> None:
        while len(self.states) > 1 and self.states[1].end <= self.store.durable_end:
            del self.states[0]

    # -- what a machine does -----------------------------------------------------------------------------------------

    def crash(self, choices: CrashChoices | None = None) -> None:
        """Cuts the power. `open` comes next."""
        self.disk = self.disk.crash(choices)

    def kill(self) -> None:
        """Ends the process alone. `open` comes next."""
        self.disk = self.disk.kill()

    # -- what must be true -------------------------------------------------------------------------------------------

    def check_reopened(self) -> None:
        """Holds an undamaged store that was just opened to what was promised; what it shows is then a promise."""
        stored, store = self.stored, self.store
        assert not stored.is_amnesiac, f"nothing was damaged: {stored.report.findings}"
        assert store.offline_reason is None, store.offline_reason
        assert stored.metainfo in self.metainfo, f"metainfo {stored.metainfo!r}, not one of {self.metainfo}"
        assert self.incarnation in (None, store.incarnation), "another incarnation, though nothing was lost"
        assert store.durable_end == store.journal.log_end_offset
        found = self._recognise()
        self.check_payloads(found)
        found.end = store.durable_end
        self.states, self.metainfo, self.incarnation = [found], [stored.metainfo], store.incarnation

    def _recognise(self) -> State:
        """Returns which of `states` the store shows after a crash. Raises `AssertionError` if it is none of them."""
        stored = self.stored
        shown = {slot.position: slot for slot in stored.slots}
        for state in self.states:
            if stored.floor == state.floor and shown.keys() == state.slots.keys():
                slots = {at: self._recognise_slot(at, slot, shown[at]) for at, slot in state.slots.items()}
                found = {at: slot for at, slot in slots.items() if slot is not None}
                if found.keys() == slots.keys():
                    return State(state.end, state.floor, found)
        raise AssertionError(f"{stored} was never the state, or is an old one; {self.states[0]} was durable")

    def _recognise_slot(self, position: int, known: KnownSlot, shown: StoredSlot) -> KnownSlot | None:
        """Returns what a slot of that moment is now: what was not durable may have become faulty, if ends are kept."""
        is_same = (shown.number, shown.identity) == (known.number, known.identity)
        durable = self.states[0].slots.get(position)
        if self.bad_end == BadEnd.TRUNCATE or known == durable:
            return known if is_same else None
        if shown.identity is None or (position, shown.number, shown.identity) not in self._names:
            return None
        if shown.number != known.number:
            return None
        was_durable = durable is not None and durable.digest == known.digest and durable.has_payload
        others = (state.slots.get(position) for state in self.states)
        was_given = any(other is not None and other.digest == known.digest and other.has_payload for other in others)
        has_payload = was_given and (was_durable or not shown.is_faulty)
        return known._replace(identity=shown.identity, has_payload=has_payload)

    def check_payloads(self, state: State) -> None:
        """Every payload that was given can be read, and is right."""
        is_faulty = {slot.position: slot.is_faulty for slot in self.stored.slots}
        for position, slot in state.slots.items():
            if slot.digest and not is_faulty.get(position, False):
                assert self.store.payload(position) == self.payloads[slot.digest], f"wrong payload at {position}"
            assert slot.has_payload or not slot.digest or is_faulty[position], "a payload from nowhere"
            assert not (slot.has_payload and is_faulty.get(position)), f"the payload at {position} is gone"
