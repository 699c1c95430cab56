"""Planted bugs of accepted losses: each shows what nobody may see any more, and some story has to notice."""

from __future__ import annotations

from contextlib import AbstractContextManager

from tests.sim.planting import Mutant
from tidelog.model.errors import DamagedBatch
from tidelog.sim.kit.patching import patched
from tidelog.storage.log_reader import LogReader, PassingRead


def undo_an_accepted_loss_by_a_late_copy() -> AbstractContextManager[None]:
    """A broker with a good copy of a range that was given up shows it; only others pass the range."""
    passing = LogReader.read_passing

    def read_first(reader: LogReader, offset: int, bytes_max: int, end_offset: int) -> PassingRead:
        try:
            extent = reader.read(offset, bytes_max, end_offset)
        except DamagedBatch:
            return passing(reader, offset, bytes_max, end_offset)
        return PassingRead(extent, None) if extent.data else passing(reader, offset, bytes_max, end_offset)

    return patched(LogReader, "read_passing", read_first)


MUTANTS: tuple[Mutant, ...] = (undo_an_accepted_loss_by_a_late_copy,)
