"""What a log says about a batch that another replica has lost."""

from __future__ import annotations

import pytest
from xxhash import xxh3_128_digest

from tests.unit.storage.conftest import Store
from tidelog.model.holdings import Holding
from tidelog.storage.copies import Identity, find_copy, identity_at


@pytest.fixture
def five(store: Store) -> Store:
    """Batches 0 to 4 of two records each, durable."""
    for n in range(5):
        store.append(b"value %d" % n, records=2)
    store.flush()
    return store


def identity(store: Store, base: int) -> Identity:
    return Identity(base, 1, xxh3_128_digest(store.appended[base]))


def test_a_row_names_its_batch_whatever_became_of_that(five: Store) -> None:
    five.harm_batch(4)
    assert identity_at(five.log, 4) == identity_at(five.log, 5) == identity(five, 4)
    five.harm_row(1 + 2)
    assert identity_at(five.log, 4) == Identity(4)
    assert not identity_at(five.log, 4).is_known


def test_a_whole_batch_is_given(five: Store) -> None:
    for base in (0, 4, 8):
        assert find_copy(five.log, identity(five, base)) == (Holding.HAVE, five.appended[base])
    assert find_copy(five.log, Identity(4)) == (Holding.HAVE, five.appended[4])


def test_a_damaged_batch_is_neither_given_nor_denied(five: Store) -> None:
    five.harm_batch(4)
    assert find_copy(five.log, identity(five, 4)) == (Holding.HAVE_FAULTY, b"")
    assert [damage.start for damage in five.log.damaged_ranges()] == [4], "a question finds damage, too"
    assert find_copy(five.log, identity(five, 4)._replace(epoch=2, digest=b"x" * 16)) == (Holding.DONT_HAVE, b"")


def test_where_the_row_is_lost_too_nobody_knows_which_batch_it_was(five: Store) -> None:
    five.harm_batch(4)
    five.harm_row(1 + 2)
    assert find_copy(five.log, identity(five, 4)) == (Holding.UNKNOWN, b"")
    assert [(damage.start, damage.end) for damage in five.log.damaged_ranges()] == [(4, 6)]
    for wanted in (Identity(4), Identity(5)):
        assert find_copy(five.log, wanted) == (Holding.HAVE_FAULTY, b""), "what is here at that offset is damaged"


def test_what_the_log_never_had_is_denied(five: Store) -> None:
    assert find_copy(five.log, Identity(10, 1, b"x" * 16)) == (Holding.DONT_HAVE, b"")
    of_another_epoch = identity(five, 4)._replace(epoch=2, digest=b"x" * 16)
    assert find_copy(five.log, of_another_epoch) == (Holding.DONT_HAVE, b"")


def test_two_batches_with_one_name_prove_nothing(five: Store) -> None:
    assert find_copy(five.log, identity(five, 4)._replace(digest=b"x" * 16)) == (Holding.UNKNOWN, b"")


def test_what_was_deleted_is_not_denied(five: Store) -> None:
    five.log.delete_records(4)
    assert find_copy(five.log, identity(five, 2)) == (Holding.DELETED, b"")
    assert find_copy(five.log, identity(five, 4)) == (Holding.HAVE, five.appended[4])
