"""A slot store against a dict: any sequence of operations, restarts and power cuts."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tidelog.model.errors import DamagedBatch
from tidelog.sim.kit.disk import SimDisk
from tidelog.sim.storage.slot_driver import SlotDriver
from tidelog.storage.flush import Flush

POSITIONS = st.integers(0, 7)


class SlotStoreMachine(RuleBasedStateMachine):
    """The driver keeps the dict, and all that it was; positions here count from the floor."""

    def __init__(self) -> None:
        super().__init__()
        self.flush: Flush | None = None
        self.driver: SlotDriver

    @initialize(seed=st.integers(0, 1000), handles=st.sampled_from([2, 4, 64]), size=st.sampled_from([300, 3_000]))
    def begin(self, seed: int, handles: int, size: int) -> None:
        self.driver = SlotDriver(SimDisk(seed), segment_bytes=size, handles_max=handles)

    # -- writing -----------------------------------------------------------------------------------------------------

    @rule(position=POSITIONS, size=st.sampled_from([None, 0, 40, 1_000]), number=st.integers(0, 1 << 60))
    def put(self, position: int, size: int | None, number: int) -> None:
        self.driver.put(self.driver.floor + position, number=number, payload_bytes=size)

    @precondition(lambda self: self.driver.now.slots)
    @rule(data=st.data(), how=st.sampled_from(["learn", "repair", "put_faulty", "revive"]))
    def touch(self, data: st.DataObject, how: str) -> None:
        position = data.draw(st.sampled_from(sorted(self.driver.now.slots)))
        getattr(self.driver, how)(position)

    @rule(distance=st.integers(0, 5))
    def set_floor(self, distance: int) -> None:
        self.driver.set_floor(self.driver.floor + distance)

    @rule()
    def delete_below(self) -> None:
        self.driver.delete_below()

    @rule()
    def store_metainfo(self) -> None:
        self.driver.store_metainfo()

    @rule()
    def mark(self) -> None:
        self.driver.store.mark()

    @precondition(lambda self: self.flush is None and self.driver.store.is_dirty)
    @rule()
    def begin_flush(self) -> None:
        self.flush = self.driver.store.begin_flush()

    @precondition(lambda self: self.flush is not None)
    @rule()
    def end_flush(self) -> None:
        assert self.flush is not None
        assert self.driver.finish(self.flush)
        self.flush = None

    # -- stopping and starting ---------------------------------------------------------------------------------------

    @precondition(lambda self: self.flush is None)
    @rule()
    def restart(self) -> None:
        last = self.driver.now
        self.driver.close()
        assert self.driver.states == [last]
        self.reopen()
        assert self.driver.stored.report.findings == []

    @rule()
    def kill(self) -> None:
        """The end of the process alone loses nothing."""
        last = self.driver.now
        self.driver.kill()
        self.reopen()
        assert (self.driver.now.slots, self.driver.now.floor) == (last.slots, last.floor)

    @rule()
    def crash(self) -> None:
        self.driver.crash()
        self.reopen()

    def reopen(self) -> None:
        self.flush = None
        self.driver.open()
        self.driver.check_reopened()

    # -- what must be true -------------------------------------------------------------------------------------------

    @invariant()
    def payloads_are_those_of_the_dict(self) -> None:
        for position, slot in self.driver.now.slots.items():
            if not slot.digest:
                continue
            try:
                payload = self.driver.store.payload(position)
            except DamagedBatch:
                assert not slot.has_payload
            else:
                assert payload == self.driver.payloads[slot.digest]


SlotStoreMachine.TestCase.settings = settings(stateful_step_count=40)
TestSlotStore = SlotStoreMachine.TestCase
