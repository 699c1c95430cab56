import pytest

from tidelog.replication.paxos.events import Persist
from tidelog.replication.paxos.journal import Journal
from tidelog.replication.paxos.state import ORIGIN


def test_writes_are_numbered() -> None:
    journal: Journal[str] = Journal()
    assert journal.persist(ORIGIN) == Persist(1, (ORIGIN,))
    assert journal.persist(is_urgent=False) == Persist(2, (), False)


def test_what_depends_on_nothing_need_not_wait() -> None:
    journal: Journal[str] = Journal()
    journal.persist(is_urgent=False)
    assert journal.when_durable("now") == ["now"]


def test_what_depends_on_a_write_waits_for_it_and_for_all_before() -> None:
    journal: Journal[str] = Journal()
    journal.persist()
    assert journal.when_durable("first") == []
    journal.persist()
    assert journal.when_durable("second") == []
    assert journal.stored(1) == ["first"]
    assert journal.stored(2) == ["second"]
    assert journal.when_durable("third") == ["third"]


def test_a_late_report_of_an_earlier_write_changes_nothing() -> None:
    journal: Journal[str] = Journal()
    journal.persist()
    journal.when_durable("first")
    journal.persist()
    assert journal.stored(2) == ["first"]
    assert journal.stored(1) == []
    assert journal.when_durable("second") == ["second"]


def test_a_disk_reports_only_what_it_was_given() -> None:
    with pytest.raises(AssertionError):
        Journal[str]().stored(1)


def test_after_a_failure_nothing_is_released() -> None:
    journal: Journal[str] = Journal()
    journal.persist()
    journal.when_durable("never")
    journal.drop()
    assert journal.stored(1) == []
