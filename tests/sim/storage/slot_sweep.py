"""Tests every damage to a complete slot store, one at a time, and some in pairs.

A slot store keeps the slots of one Paxos replica: ballot, payload, and the *identity* of the value, bytes that the
store does not interpret. A store with slots of all kinds, some replaced, some learned, a floor and metainfo is written
and ended in one of three ways (`End`). Its files are kept. A case puts these files on a fresh disk, damages them, opens
the store and reads everything. Since all of it was durable:

- only the newest payload, identity, floor and metainfo are shown; instead of a damaged identity an earlier one of the
  same ballot may be;
- no slot is missing, unless the store reports amnesia, at this opening and at every later one;
- a catalog or one metainfo copy may be damaged in any way: that costs nothing at all;
- any damage to a `.log` file costs at most the payloads of its slots and the fact that they are learned, but no
  identities; only a damaged floor makes the store amnesiac; an identity whose own bytes are intact is shown;
- a store that is not amnesiac can be written, and the next opening shows the same slots and the new ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import Enum

from tests.sim.storage.sweep import Case, DamageSweep
from tidelog.model.batch_header import HEADER_BYTES
from tidelog.model.errors import DamagedBatch, LogOffline
from tidelog.sim.kit.disk import SimDisk
from tidelog.sim.kit.medium import Medium
from tidelog.sim.storage.slot_driver import IDENTITY, SlotDriver
from tidelog.storage.rows import ROW_BYTES, Kind, Row, RowCodec
from tidelog.storage.segment import SECTOR_BYTES
from tidelog.storage.slot_entries import FLOOR_NUMBER, Head, decode_entry

POSITIONS = 24
FLOOR = 5


class Loss(Enum):
    """The most that a damage may cost."""

    NOTHING = 0
    CONTENT = 1
    """Payloads and identities may be lost; or the floor, and then the store reports amnesia."""
    ANYTHING = 2
    """Anything may be lost, if the store reports it."""
    IDENTITY = 3
    """The store has to report amnesia."""


class End(Enum):
    """The way in which the process that wrote the store ended."""

    CLOSED = "closed"
    """The store was closed in order."""
    IDLE = "idle"
    """The process was killed while idle, after a mark was written."""
    REPORTED = "reported"
    """The process was killed as soon as the last put was reported durable; the store had recorded how far it was
    durable."""


class SlotSweep(DamageSweep):
    """An intact slot store as files, and the checks of what is left after a damage."""

    def __init__(self, segment_bytes: int, end: End) -> None:
        self._segment_bytes = segment_bytes
        self.end = end
        disk = SimDisk(0)
        driver = SlotDriver(disk, segment_bytes=segment_bytes, vouches=end is End.REPORTED)
        _write(driver)
        if end is End.CLOSED:
            driver.close()
        elif end is End.IDLE:
            driver.store.mark()
        else:  # the metainfo has noted how far the store was durable: once more without it
            driver.put(POSITIONS, payload_bytes=40)
            driver.flush()
        super().__init__(disk)
        self.expected = driver.now
        self.payloads = driver.payloads
        self.metainfo = driver.metainfo[0]
        self.faulty = 0
        self._heads = dict(self._find_heads())
        self._identities = list(self._find_identities())

    def entries(self) -> Iterator[tuple[str, int, Row]]:
        """Yields the row of each entry with the path of its catalog and its position there."""
        for path, content in self.content.items():
            if path.endswith(".catalog"):
                rows = RowCodec(IDENTITY).bodies(content)
                yield from (
                    (path, slot * ROW_BYTES, row)
                    for slot, row in enumerate(rows)
                    if row is not None and row.kind == Kind.BATCH
                )

    def _find_heads(self) -> Iterator[tuple[int, tuple[str, int, int]]]:
        """Yields for each position the file and the range of bytes that hold the identity of its newest entry's
        value."""
        for catalog, _, row in self.entries():
            path = catalog.replace(".catalog", ".log")
            key = self._head(path, row).pack()
            start = self.content[path].index(key, row.file_position)
            if row.number != FLOOR_NUMBER:
                yield row.position, (path, row.file_position + HEADER_BYTES, start + len(key))

    def _find_identities(self) -> Iterator[tuple[int, int, bytes]]:
        """Yields the position, the ballot and the value's identity of each entry."""
        for catalog, _, row in self.entries():
            yield row.position, row.number, self._head(catalog.replace(".catalog", ".log"), row).content

    def _head(self, path: str, row: Row) -> Head:
        entry = decode_entry(self.content[path][row.file_position : row.end_position])
        assert entry is not None
        return entry[0]

    def check_case(self, case: Case) -> None:
        """Checks the damage of one file."""
        loss = Loss.CONTENT if case.path.endswith(".log") else Loss.NOTHING
        self.check(lambda medium: case.fault.does(medium, case.path, case.start, case.end), loss)

    def check(self, damage: Callable[[Medium], None], loss: Loss) -> None:
        """Damages a fresh copy of the store, opens it and checks all promises. Raises `AssertionError` if one is
        broken, or the store's own error."""
        driver = SlotDriver(self.damaged(damage), segment_bytes=self._segment_bytes)
        driver.payloads = self.payloads
        self._check(driver, loss)
        self._check_heads(driver)
        if driver.stored.is_amnesiac:
            self._check_stays_amnesiac(driver)
            return
        assert loss is not Loss.IDENTITY, "what this replica has forgotten is not noticed"
        position = POSITIONS + 1
        driver.put(position)
        assert driver.flush(), driver.store.offline_reason
        for restart in (driver.kill, driver.crash):
            restart()
            driver.open()
            self._check(driver, loss)
            assert not driver.stored.is_amnesiac, "amnesiac only at the second opening"
            assert driver.stored.slots[-1].position == position, "what was put after the damage is gone"

    def _check_stays_amnesiac(self, driver: SlotDriver) -> None:
        for restart in (driver.kill, driver.crash):
            try:
                driver.put(POSITIONS + 1)
            except LogOffline:
                pass
            else:
                raise AssertionError("an amnesiac store takes a put")
            restart()
            driver.open()
            assert driver.stored.is_amnesiac, "amnesia is forgotten"

    def _check(self, driver: SlotDriver, loss: Loss) -> None:
        stored, expected = driver.stored, self.expected
        may_forget = stored.is_amnesiac
        assert not may_forget or loss is not Loss.NOTHING, stored.report.findings
        assert stored.metainfo == self.metainfo or may_forget
        assert stored.floor == expected.floor or may_forget
        if may_forget:
            return
        found = {slot.position: slot for slot in stored.slots if slot.position <= POSITIONS}
        assert found.keys() == expected.slots.keys(), f"slots {sorted(found)}, not {sorted(expected.slots)}"
        for position, known in expected.slots.items():
            slot = found[position]
            assert slot.number == known.number, f"number of {position}"
            is_known = slot.identity is None or (position, slot.number, slot.identity) in self._identities
            assert is_known, f"identity of {position}"
            assert slot.identity == known.identity or loss is not Loss.NOTHING, f"{slot} is damaged"
            assert slot.identity is not None or slot.is_faulty
            assert slot.identity is not None or loss is Loss.ANYTHING, f"{slot} has lost its name to one fault"
            self.faulty += slot.is_faulty
            is_as_written = slot.identity is not None and slot.is_faulty == (
                not known.has_payload and known.digest != b""
            )
            assert is_as_written or loss is not Loss.NOTHING, f"{slot} is damaged"
            if slot.identity is not None and known.digest:
                self._check_payload(driver, position, is_faulty=slot.is_faulty)

    def _check_heads(self, driver: SlotDriver) -> None:
        """Checks that the identity of a slot's value is shown if its bytes are intact and their sectors readable."""
        files = driver.disk.medium.walk()
        for slot in driver.stored.slots:
            path, start, end = self._heads.get(slot.position, ("", 0, 0))
            if slot.identity is None and path in files:
                is_readable = not files[path].is_unreadable(start - SECTOR_BYTES, end - start + 2 * SECTOR_BYTES)
                is_intact = files[path].data[start:end] == self.content[path][start:end]
                assert not (is_readable and is_intact), f"the identity of {slot.position} is not damaged"

    def _check_payload(self, driver: SlotDriver, position: int, *, is_faulty: bool) -> None:
        try:
            payload = driver.store.payload(position)
        except DamagedBatch:
            assert is_faulty, f"the payload of {position} cannot be read, and opening did not say so"
        else:
            assert payload == self.payloads[self.expected.slots[position].digest], f"wrong payload at {position}"


def _write(driver: SlotDriver) -> None:
    """Writes slots with and without payload, replaced, learned, faulty and repaired ones, and a floor that was raised
    once."""
    for position in range(POSITIONS):
        driver.put(position, payload_bytes=None if position % 4 == 3 else position * 9)
        if position >= 3:
            driver.learn(position - 3)
        if position % 5 == 4:
            driver.flush()
    driver.set_floor(2)
    driver.flush()
    driver.store_metainfo()
    driver.put(10, payload_bytes=50)
    driver.put_faulty(11)
    driver.put_faulty(12)
    driver.repair(12)
    driver.set_floor(FLOOR)
    driver.flush()
    driver.delete_below()
    driver.put(POSITIONS, payload_bytes=30)
    driver.flush()
    driver.store_metainfo()
