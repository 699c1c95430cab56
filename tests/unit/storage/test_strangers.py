"""Opening a log among whose files are other people's: they are set aside, whole, and never served."""

from __future__ import annotations

import errno

import pytest

from tests.unit.storage.conftest import ALL, DIRECTORY, IDENTITY, Store
from tests.unit.storage.torn import check_goes_on
from tidelog.model.batch_header import assign_offsets
from tidelog.model.errors import DamagedBatch
from tidelog.storage.metainfo import NAMES, Metainfo, MetainfoStore
from tidelog.storage.rows import ROW_BYTES, RowCodec, Tail


def strangers_files(store: Store, value: bytes) -> tuple[bytes, bytes]:
    """Log and catalog of another partition, with the same offsets, sizes and epoch as ours."""
    codec = RowCodec(IDENTITY._replace(partition=4))
    tail = Tail(0, 0, 1, 0, 0, -1, 0)
    rows, log = codec.checkpoint(tail, [], []), b""
    for n in range(9):
        batch = assign_offsets(store.batch(value + b" %d" % n), n, 1)
        tail = tail._replace(sequence=n + 1, durable=n)
        rows.append(codec.batch(tail, batch.header, batch.buffers))
        log += bytes(batch.data)
        tail = tail._replace(offset=n + 1, file_position=len(log))
    return log, b"".join(rows)


def test_another_partitions_catalog_is_set_aside(torn: Store) -> None:
    _, catalog = strangers_files(torn, b"alien")
    torn.overwrite(torn.catalog_path(), 0, catalog)
    torn.open()
    assert torn.is_whole
    assert torn.log.log_end_offset == ALL
    assert torn.report.findings[0] == f"{torn.catalog_path()} belongs to another log and is set aside"
    assert torn.content(f"{torn.catalog_path()}.stranger-1") == catalog
    check_goes_on(torn)


def test_another_partitions_segment_is_set_aside_whole(store: Store) -> None:
    """F50: its batches would pass for ours, offset by offset."""
    store.append(*[b"value %d" % n for n in range(ALL)])
    store.close_and_open()
    store.log.close(ALL)
    for n in (1, 2):
        log, catalog = strangers_files(store, b"alien")
        for path, content in ((store.log_path(), log), (store.catalog_path(), catalog)):
            store.files.inner.open(path, create=True).close()
            store.cut(path, 0)
            store.overwrite(path, 0, content)
        store.open()
        assert store.read_sound() == {}
        assert (store.log.log_start_offset, store.log.log_end_offset) == (0, ALL)
        with pytest.raises(DamagedBatch, match="offsets 0 to 6 "):
            store.log.read(0, 1, ALL)
        assert store.content(f"{store.log_path()}.stranger-{n}") == log
        store.log.close(ALL)


def test_a_strangers_log_whose_catalog_was_set_aside_alone_cannot_happen(store: Store) -> None:
    """Killed between the two renames: the catalog is still there to tell."""
    store.append(b"a")
    store.close_and_open()
    store.log.close(1)
    log, catalog = strangers_files(store, b"alien")
    store.overwrite(store.log_path(), 0, log)
    store.overwrite(store.catalog_path(), 0, catalog)
    renames = 0

    def fails(kind: str, path: str) -> int:
        nonlocal renames
        renames += kind == "rename"
        return errno.EIO if kind == "rename" and renames == 2 else 0

    store.files.fails = fails
    store.open()
    store.files.fails = lambda kind, path: 0
    store.kill_and_open()
    assert store.read_sound() == {}


def test_swapped_catalogs_are_made_again(store: Store) -> None:
    for n in range(6):
        if n == 3:
            store.log.roll(store.now_ms)
        store.append(b"value %d" % n)
    store.close_and_open()
    first, second = store.content(store.catalog_path(0)), store.content(store.catalog_path(3))
    store.log.close(6)
    for path, content in ((store.catalog_path(0), second), (store.catalog_path(3), first)):
        store.cut(path, 0)
        store.overwrite(path, 0, content)
    store.open()
    assert store.is_whole
    assert store.log.log_end_offset == 6


def test_a_segment_that_is_there_twice_is_there_once(store: Store) -> None:
    for n in range(6):
        if n == 3:
            store.log.roll(store.now_ms)
        store.append(b"value %d" % n)
    store.close_and_open()
    store.log.close(6)
    for source, target in ((store.log_path(0), store.log_path(3)), (store.catalog_path(0), store.catalog_path(3))):
        store.cut(target, 0)
        store.overwrite(target, 0, store.content(source))
    store.open()
    assert set(store.read_sound()) == {0, 1, 2}
    assert store.log.log_end_offset == 6
    with pytest.raises(DamagedBatch, match="offsets 3 to 5 "):
        store.log.read(3, 1, 6)


def test_a_directory_that_changed_hands_has_nothing_of_ours(store: Store) -> None:
    """A crash has taken the rows of one log, and the catalog of another: neither says any more whose it is."""
    log, catalog = strangers_files(store, b"alien")
    store.log.close(0)
    for name in NAMES:
        store.files.remove(f"{DIRECTORY}/{name}")
    for path, content in (
        (store.log_path(0), log[:100]),
        (store.catalog_path(0), catalog[:ROW_BYTES]),
        (store.log_path(1), log),
    ):
        store.files.inner.open(path, create=True).close()
        store.cut(path, 0)
        store.overwrite(path, 0, content)
    renames = 0

    def fails(kind: str, path: str) -> int:
        nonlocal renames
        renames += kind == "rename"
        return errno.EIO if kind == "rename" and renames == 3 else 0

    store.files.fails = fails
    store.open()
    assert store.read_sound() == {}, "killed before the last name was given"
    store.files.fails = lambda kind, path: 0
    store.kill_and_open()
    assert (store.read_sound(), store.log.log_end_offset) == ({}, 0)
    assert store.content(f"{store.log_path(1)}.stranger-1") == log
    store.append(b"ours")
    store.kill_and_open()
    assert set(store.read_sound()) == {0}


def test_a_directory_is_known_for_a_strangers_by_its_metainfo_alone(store: Store) -> None:
    log, _ = strangers_files(store, b"alien")
    store.log.close(0)
    MetainfoStore(store.files, DIRECTORY, IDENTITY._replace(partition=4)).store(Metainfo(incarnation="theirs"))
    store.cut(store.catalog_path(0), 0)
    store.overwrite(store.log_path(0), 0, log)
    store.open()
    assert (store.read_sound(), store.log.log_end_offset) == ({}, 0)
    assert store.content(f"{store.log_path(0)}.stranger-1") == log
