"""A log with damage in it: the offsets that it shows, and those where it ends."""

from __future__ import annotations

import pytest

from tests.unit.storage.conftest import Store, WatchedFiles
from tidelog.sim.cluster.shadows import ends_at, read_batches
from tidelog.sim.kit.disk import SimDisk


@pytest.mark.parametrize(
    ("torn", "shown", "end"),
    [
        pytest.param((), [0, 1, 2], 3, id="damage ends what is read"),
        pytest.param(range(3, 6), [0, 1, 2], 6, id="one offset of the damage is not torn"),
        pytest.param(range(3, 7), [0, 1, 2, 7], 8, id="torn offsets are passed"),
        pytest.param((*range(3, 7), 8, 9), [0, 1, 2, 7], 10, id="torn offsets at the end are passed"),
        pytest.param(range(1, 7), [0, 1, 2, 7], 8, id="what is sound is shown"),
    ],
)
def test_only_torn_offsets_are_passed(torn: tuple[int, ...], shown: list[int], end: int) -> None:
    disk = SimDisk(7)
    disk.make_dirs("")
    store = Store(WatchedFiles(disk))
    store.append(b"0", b"1", b"2")
    store.log.append_lost(3, 7, 1, store.now_ms)
    store.append(b"7")
    store.log.append_lost(8, 10, 1, store.now_ms)
    assert [batch.base for batch in read_batches(store.log, torn=torn)] == shown
    assert ends_at(store.log, torn) == end
