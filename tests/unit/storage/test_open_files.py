"""The handle cache is bounded, and never closes a handle that somebody is about to use."""

from __future__ import annotations

from tidelog.model.ports import Files
from tidelog.storage.open_files import OpenFiles


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
