"""Kafka's clients under faults: the books, and a short run. `make kafka-faults` is the long one."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.e2e.kafka_faults.__main__ import parse, play
from tests.e2e.kafka_faults.books import UNKNOWN, At, Book, Group

JARS = Path(__file__).parents[2] / ".kafka" / "lib"
AT = At("t", 0)


def book_of(*offsets: int) -> Book:
    book = Book(AT)
    for number, offset in enumerate(offsets):
        book.acknowledge(number, offset)
    return book


def test_a_book_knows_what_is_lost_elsewhere_twice_or_out_of_order() -> None:
    book = book_of(0, 1, UNKNOWN)
    book.fail(3, "unknown")
    assert book.faults([(0, 0), (1, 1), (2, 2), (3, 3)]) == []
    assert book.faults([(0, 0), (1, 1), (4, 2)]) == []
    assert "is lost" in book.faults([(0, 0), (2, 2)])[0]
    assert "is at 2" in book.faults([(0, 0), (2, 1), (3, 2)])[0]
    assert "twice" in book.faults([(0, 0), (1, 1), (2, 2), (3, 2)])[0]
    assert "comes after" in book.faults([(0, 0), (1, 1), (2, 3), (3, 2)])[0]


def test_a_group_knows_what_is_unread_and_who_owns_what() -> None:
    group, book = Group("g"), book_of(0, 1)
    group.claim("a", 1, [AT])
    group.claim("b", 2, [AT])
    group.see(AT, 0)
    assert group.unread([book]) == [(book, 1)]
    group.see(AT, 1)
    assert group.faults([book]) == []
    assert group.has_passed({AT: 0}) and not group.has_passed({AT: 1})
    group.claim("c", 2, [AT])
    assert group.faults([book]) == [], "one after the other"
    group.claim("b", 2, [AT])
    assert "both own" in group.faults([book])[0]


@pytest.mark.slow
@pytest.mark.process
@pytest.mark.timeout(400)
@pytest.mark.parametrize("has_java", [False, True], ids=["librdkafka", "with Java"])
def test_kafkas_clients_keep_their_records_while_leaders_are_broken(has_java: bool) -> None:
    if has_java and not (JARS.is_dir() and shutil.which("java")):
        pytest.skip("Kafka's jars are not here: make kafka-jars")
    run = play(parse(["--minutes", "0.5", *(["--java", f"{JARS}/*"] if has_java else [])]))
    assert run.blows
    assert not run.wrong
    assert run.is_good, "all have gone on"
