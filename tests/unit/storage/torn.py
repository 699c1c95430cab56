"""A log whose process died with some batches below the durable mark and some beyond: what is done to it, and checked.

The log itself is the fixture `torn`.
"""

from __future__ import annotations

from tests.unit.storage.conftest import Store


def slot_of(offset: int) -> int:
    return 1 + offset


def position_of(store: Store, offset: int) -> int:
    return sum(len(store.appended[n]) for n in range(offset))


def harm(store: Store, offset: int, *, batch: bool, row: bool) -> None:
    if batch:
        store.overwrite(store.log_path(), position_of(store, offset) + 65, b"\xff\x00\xff")
    if row:
        store.harm_row(slot_of(offset))


def check_goes_on(store: Store) -> None:
    """Whatever was found: the log can be written, and says the same when it is opened again."""
    before, end = store.read_sound(), store.log.log_end_offset
    store.append(b"goes on")
    before[end] = store.appended[end]
    store.kill_and_open()
    assert store.read_sound() == before
    assert store.log.log_end_offset == end + 1
    store.flush()
    store.close_and_open()
    assert store.read_sound() == before
    assert store.report.findings == []
