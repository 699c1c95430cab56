"""The handle cache is bounded, and never closes a handle that somebody is about to use."""

from __future__ import annotations

from itertools import count

from tests.unit.storage.conftest import WatchedFiles
from tidelog.model.batch_codec import encode_batch
from tidelog.model.batch_header import assign_offsets, split_batches
from tidelog.model.ids import PartitionId, TopicId
from tidelog.model.ports import Files
from tidelog.storage.log_manager import LogManager
from tidelog.storage.open_files import OpenFiles
from tidelog.storage.partition_log import LogSettings


def test_the_least_recently_used_handle_goes(files: Files) -> None:
    opened = OpenFiles(files, 2)
    first = opened.get("a", create=True)
    opened.get("b", create=True)
    assert opened.get("a") is first
    opened.get("c", create=True)  # "b" goes
    assert len(opened) == 2
    assert opened.get("a") is first


def test_pinned_files_and_the_one_asked_for_may_exceed_the_bound(files: Files) -> None:
    opened = OpenFiles(files, 2)
    for name in "ab":
        opened.get(name, create=True)
        opened.pin(name)
    opened.get("c", create=True).pwritev([b"x"], 0)
    assert len(opened) == 3
    opened.get("d", create=True).pwritev([b"x"], 0)
    assert len(opened) == 3
    opened.unpin("a")
    opened.get("d")
    opened.get("e", create=True)
    assert len(opened) == 2


def test_a_file_pinned_twice_stays_until_both_are_done(files: Files) -> None:
    opened = OpenFiles(files, 1)
    opened.get("a", create=True)
    pinned = opened.pin("a")
    assert opened.pin("a") is pinned
    opened.unpin("a")
    opened.get("b", create=True)
    assert opened.get("a") is pinned
    opened.unpin("a")
    opened.get("b")
    opened.get("c", create=True)
    assert opened.get("a") is not pinned


def test_an_append_beyond_the_bound_opens_its_two_files_and_no_other(files: Files) -> None:
    watched = WatchedFiles(files)
    numbers = count()
    manager = LogManager(watched, open_max=4, new_incarnation=lambda: f"start-{next(numbers)}")
    settings = LogSettings(segment_bytes=1 << 20, segment_ms=1 << 40)
    logs = [manager.open_log(PartitionId(TopicId("a" * 32), number), settings, 0)[0] for number in range(10)]
    for offset in range(3):
        watched.forget()
        for log in logs:
            (batch,) = split_batches(encode_batch([(1, b"k", b"v")]), batch_bytes_max=1 << 20)
            log.append([assign_offsets(batch, offset, 1)], 0)
            log.flush()
        assert watched.counts["open"] == 2 * len(logs)
    watched.forget()
    logs[-1].mark()
    assert watched.counts["open"] == 0
    manager.close({})
