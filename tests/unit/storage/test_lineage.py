"""Which epoch ends where, and the table of logs that part (KIP-101, KIP-279)."""

from __future__ import annotations

import pytest

from tests.unit.storage.conftest import Store
from tidelog.storage.lineage import EpochEnd, Lineage, begin_epoch, end_offset_of, epoch_before

LINEAGE = [(2, 0), (4, 5), (7, 9)]


@pytest.mark.parametrize(
    ("epoch", "expected"),
    [
        (8, None),
        (7, EpochEnd(7, 12)),
        (6, EpochEnd(4, 9)),
        (4, EpochEnd(4, 9)),
        (3, EpochEnd(2, 5)),
        (2, EpochEnd(2, 5)),
        (1, EpochEnd(1, 0)),
    ],
)
def test_where_an_epoch_ends(epoch: int, expected: EpochEnd | None) -> None:
    assert end_offset_of(LINEAGE, epoch, 12) == expected


def test_of_a_log_that_knows_nothing_nothing_is_known() -> None:
    assert end_offset_of([], 0, 12) is None


def test_the_epoch_before_an_offset() -> None:
    found = {offset: epoch_before(LINEAGE, offset) for offset in (0, 1, 5, 6, 9, 12)}
    assert found == {0: None, 1: 2, 5: 2, 6: 4, 9: 4, 12: 7}


@pytest.mark.parametrize(
    ("epoch", "offset", "expected"),
    [
        (7, 12, [(2, 0), (4, 5), (7, 9)]),
        (9, 12, [(2, 0), (4, 5), (7, 9), (9, 12)]),
        (9, 9, [(2, 0), (4, 5), (9, 9)]),  # epoch 7 never wrote anything
        (5, 9, [(2, 0), (4, 5), (5, 9)]),
        (4, 9, [(2, 0), (4, 5)]),
    ],
)
def test_beginning_an_epoch(epoch: int, offset: int, expected: Lineage) -> None:
    lineage = list(LINEAGE)
    begin_epoch(lineage, epoch, offset)
    assert lineage == expected


# -- two logs --------------------------------------------------------------------------------------------------------


def write(store: Store, lineage: Lineage, end: int) -> None:
    starts = [start for _, start in lineage[1:]] + [end]
    for (epoch, start), stop in zip(lineage, starts, strict=True):
        store.epoch = epoch
        for _ in range(start, stop):
            store.append(b"of epoch %d" % epoch)
    store.commit()


@pytest.mark.parametrize(
    ("leader", "leader_end", "follower", "follower_end", "cuts"),
    [
        pytest.param([(1, 0), (3, 4)], 4, [(1, 0)], 2, [], id="behind, same epoch"),
        pytest.param([(1, 0), (3, 2)], 2, [(1, 0)], 4, [((1, 2), 2)], id="ahead, same epoch"),
        pytest.param([(1, 0), (3, 2)], 2, [(1, 0), (2, 2)], 4, [((1, 2), 2)], id="ahead, epoch unknown to the leader"),
        pytest.param([(1, 0), (3, 2)], 4, [(1, 0), (2, 2)], 4, [((1, 2), 2)], id="fork"),
        pytest.param([(1, 0), (3, 2)], 2, [(1, 0), (2, 1)], 3, [((1, 2), 1)], id="fork, leader longer in 1"),
        pytest.param([(1, 0), (3, 1)], 2, [(2, 0)], 2, [((1, 1), 0)], id="nothing in common"),
        pytest.param(
            [(1, 0), (3, 5), (5, 9)], 9, [(1, 0), (2, 3), (4, 6)], 8, [((3, 9), 6), ((1, 5), 3)], id="two rounds"
        ),
    ],
)
def test_a_follower_finds_where_its_log_parts_from_the_leaders(
    store: Store,
    leader: Lineage,
    leader_end: int,
    follower: Lineage,
    follower_end: int,
    cuts: list[tuple[tuple[int, int], int]],
) -> None:
    """The leader's answers, and where the follower cuts, until the leader finds nothing to object."""
    log = store.log
    write(store, follower, follower_end)
    found = []
    while log.last_epoch is not None:
        answer = end_offset_of(leader, log.last_epoch, leader_end)
        assert answer is not None
        if answer.epoch >= log.last_epoch and answer.end_offset >= log.log_end_offset:
            break
        own = log.end_offset_of(answer.epoch) or EpochEnd(answer.epoch, log.log_end_offset)
        cut = min(answer.end_offset, own.end_offset, log.log_end_offset)
        log.truncate_to(cut, high_watermark=0, now_ms=store.now_ms)
        found.append((tuple(answer), cut))
    assert found == cuts
    end = log.log_end_offset
    kept = [(epoch, start) for epoch, start in leader if start < end]
    assert log.lineage == kept
    # What is missing comes from the leader, of whatever epoch.
    for epoch, start in leader:
        for _ in range(max(start, log.log_end_offset), next((s for e, s in leader if e > epoch), leader_end)):
            store.epoch = epoch
            store.append(b"from the leader")
    store.commit()
    store.kill_and_open()
    assert store.report.findings == []
    assert store.log.log_end_offset == leader_end
    assert store.log.lineage == [(epoch, start) for epoch, start in leader if start < leader_end]


# -- an epoch that wrote nothing -------------------------------------------------------------------------------------


def test_a_leader_knows_its_epoch_at_once(store: Store) -> None:
    store.append(b"a", b"b")
    store.log.note_epoch(5)
    assert store.log.end_offset_of(5) == EpochEnd(5, 2)
    assert store.log.end_offset_of(4) == EpochEnd(1, 2)
    assert store.log.last_epoch == 1
    store.epoch = 5
    store.append(b"c")
    assert store.log.lineage == [(1, 0), (5, 2)]
    assert store.log.last_epoch == 5


def test_an_epoch_that_wrote_nothing_gives_way_to_the_next(store: Store) -> None:
    store.append(b"a")
    store.log.note_epoch(5)
    store.log.note_epoch(6)
    assert store.log.lineage == [(1, 0), (6, 1)]


def test_an_epoch_that_wrote_nothing_is_forgotten_by_a_truncation_at_the_end(store: Store) -> None:
    store.append(b"a")
    store.log.note_epoch(5)
    store.log.truncate_to(1, high_watermark=0, now_ms=0)
    assert store.log.lineage == [(1, 0)]


def test_an_epoch_that_wrote_nothing_gives_way_to_a_lower_one_that_did(store: Store) -> None:
    store.append(b"a")
    store.log.note_epoch(5)
    store.epoch = 3
    store.append(b"b")
    assert store.log.lineage == [(1, 0), (3, 1)]


@pytest.mark.parametrize("deletes", [False, True])
def test_an_epoch_that_wrote_nothing_is_not_on_the_disk(store: Store, deletes: bool) -> None:
    store.append(b"a", b"b")
    store.commit()
    store.log.note_epoch(5)
    if deletes:
        store.log.delete_prefix(2)
    store.log.roll(store.now_ms)
    store.log.commit_now()
    store.close_and_open()
    assert store.log.lineage == [(1, 0)]
    assert store.log.last_epoch == 1
