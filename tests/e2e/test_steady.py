"""The parts of the long run under full load: disks that stall, and the books. `make steady` is the run."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import pytest

from tests.e2e.clusters import skipped_without_disks
from tests.e2e.steady.disks import hanging, mounted
from tests.e2e.steady.load import CHUNK, Book

NODE = 1
HANG_S = 30.0
STILL_S = 0.2


@pytest.mark.process
def test_a_disk_that_hangs_keeps_writes_waiting_and_reads_not(tmp_path: Path) -> None:
    with skipped_without_disks(), mounted(tmp_path, [NODE]) as disks:
        path = tmp_path / f"broker-{NODE}" / "data" / "file"
        path.write_bytes(b"before")
        written = threading.Event()

        def write() -> None:
            path.write_bytes(b"after")
            written.set()

        with hanging(disks, HANG_S, NODE):
            thread = threading.Thread(target=write)
            thread.start()
            assert not written.wait(STILL_S)
            assert path.parent.is_dir() and os.listdir(path.parent) == ["file"]
        begun_s = time.monotonic()
        thread.join(HANG_S)
        assert written.is_set() and time.monotonic() - begun_s < HANG_S
        assert path.read_bytes() == b"after"
        assert (tmp_path / f"broker-{NODE}" / "backing" / "file").read_bytes() == b"after"


def test_a_book_knows_what_is_lost_elsewhere_or_twice() -> None:
    book = Book("isr", 0)
    first, _ = book.take()
    book.acknowledge(first, range(CHUNK))
    unanswered, _ = book.take()
    for number in range(CHUNK - 2):
        book.see(number, number)
    book.see(CHUNK, CHUNK - 2)  # it was told to be one offset before
    assert (book.lost, book.twice) == (2, 0)
    book.see(CHUNK + 1, unanswered)  # one that was not answered may be there, once
    assert (book.lost, book.twice) == (2, 0)
    book.see(CHUNK + 2, unanswered)
    assert (book.lost, book.twice) == (2, 1)
