"""Which epoch wrote what, as a log tells it."""

from __future__ import annotations

import pytest

from tests.unit.storage.conftest import Store
from tidelog.storage.lineage import Lineage, begin_epoch, epoch_before

LINEAGE = [(2, 0), (4, 5), (7, 9)]


def test_the_epoch_before_an_offset() -> None:
    found = {offset: epoch_before(LINEAGE, offset) for offset in (0, 1, 5, 6, 9, 12)}
    assert found == {0: None, 1: 2, 5: 2, 6: 4, 9: 4, 12: 7}


@pytest.mark.parametrize(
    ("epoch", "offset", "expected"),
    [
        (7, 12, [(2, 0), (4, 5), (7, 9)]),
        (9, 12, [(2, 0), (4, 5), (7, 9), (9, 12)]),
    ],
)
def test_beginning_an_epoch(epoch: int, offset: int, expected: Lineage) -> None:
    lineage = list(LINEAGE)
    begin_epoch(lineage, epoch, offset)
    assert lineage == expected


def test_a_log_knows_its_epochs_again_after_a_cut_a_deletion_and_a_restart(store: Store) -> None:
    for epoch in (1, 3, 3, 4, 6):
        store.epoch = epoch
        store.append(b"of epoch %d" % epoch)
    assert store.log.lineage == [(1, 0), (3, 1), (4, 3), (6, 4)]
    store.log.truncate_to(4, high_watermark=0, now_ms=store.now_ms)
    assert store.log.lineage == [(1, 0), (3, 1), (4, 3)]
    store.log.roll(store.now_ms)
    store.log.flush()
    store.log.delete_records(2)
    store.log.flush()
    assert store.log.lineage == [(3, 1), (4, 3)], "the epoch in force at the start stays"
    store.kill_and_open()
    assert store.log.lineage[-1] == (4, 3)
    assert epoch_before(store.log.lineage, 3) == 3
