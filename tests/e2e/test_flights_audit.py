"""The audit of the flights finds each thing that can be wrong."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from flights_audit import Accounts

from tidelog.consumer import ConsumerRecord
from tidelog.model.ids import TopicPartition
from tidelog.producer import RecordMetadata

PARTITION = TopicPartition("t", 0)
COUNT = 300


def record(accounts: Accounts, number: int, offset: int) -> ConsumerRecord:
    return ConsumerRecord("t", 0, offset, 0, 0, accounts.keys[number], accounts.value(number), ())


def acknowledged() -> tuple[Accounts, list[ConsumerRecord]]:
    """All are, each read by itself while it went on."""
    accounts = Accounts([b"row", b"another"])
    accounts.history.tell("fault", ["none"])
    found = []
    for number in range(COUNT):
        begun = accounts.send(b"key", PARTITION)
        accounts.acknowledge(number, begun, RecordMetadata("t", 0, number, 0, 1, (1, 2), "fsynced"))
        found.append(record(accounts, number, number))
        accounts.polled("reader", {PARTITION: found[-1:]})
    return accounts, found


def test_all_is_well() -> None:
    accounts, found = acknowledged()
    audit = accounts.audit(found)
    assert audit.is_good
    assert (audit.found, accounts.sent, accounts.unknown) == (COUNT, COUNT, 0)


def lose(accounts: Accounts, found: list[ConsumerRecord]) -> None:
    del found[7]


def repeat(accounts: Accounts, found: list[ConsumerRecord]) -> None:
    found.append(found[7]._replace(offset=COUNT))


def swap(accounts: Accounts, found: list[ConsumerRecord]) -> None:
    found[7:9] = [found[8]._replace(offset=7), found[7]._replace(offset=8)]


def alter(accounts: Accounts, found: list[ConsumerRecord]) -> None:
    found[7] = found[7]._replace(value=b"7,rot")


def rename(accounts: Accounts, found: list[ConsumerRecord]) -> None:
    found[7] = found[7]._replace(key=b"other")


def keep_refused(accounts: Accounts, found: list[ConsumerRecord]) -> None:
    accounts.fail(COUNT, accounts.send(b"key", PARTITION), is_definite=True)
    found.append(record(accounts, COUNT, COUNT))


@pytest.mark.parametrize(
    ("spoil", "wrong"),
    [
        (lose, {"missing": 1}),
        (repeat, {"twice": 1, "misplaced": 1, "out_of_order": 1}),
        (swap, {"misplaced": 2, "out_of_order": 1}),
        (alter, {"missing": 1, "strange": 1}),
        (rename, {"missing": 1, "strange": 1}),
        (keep_refused, {"refused_found": 1}),
    ],
)
def test_what_is_wrong_is_counted(
    spoil: Callable[[Accounts, list[ConsumerRecord]], None], wrong: dict[str, int]
) -> None:
    accounts, found = acknowledged()
    spoil(accounts, found)
    audit = accounts.audit(found)
    names = ("missing", "twice", "misplaced", "out_of_order", "refused_found", "strange")
    assert {name: getattr(audit, name) for name in names if getattr(audit, name)} == wrong
    assert not audit.is_good


def test_what_nobody_knows_of_may_be_there_or_not() -> None:
    for is_there in (True, False):
        accounts, found = acknowledged()
        accounts.fail(COUNT, accounts.send(b"key", PARTITION), is_definite=False)
        if is_there:
            found.append(record(accounts, COUNT, COUNT))
        audit = accounts.audit(found)
        assert audit.is_good and accounts.unknown == 1


def test_a_run_in_which_nothing_happened_is_no_good() -> None:
    accounts, found = Accounts([b"row"]), list[ConsumerRecord]()
    audit = accounts.audit(found)
    assert not audit.is_good
    assert audit.verdict.word == "void"


def test_what_readers_saw_meanwhile_counts() -> None:
    accounts, found = acknowledged()
    accounts.polled("reader", {PARTITION: [found[3], found[4]._replace(offset=9)]})
    audit = accounts.audit(found)
    assert audit.verdict.word == "invalid" and not audit.is_good


def test_the_table_says_it_all() -> None:
    accounts, found = acknowledged()
    table = accounts.audit(found).table({"killed": 2}, 1.5)
    names, values = ([str(cell) for cell in column.cells] for column in table.columns)
    shown = dict(zip(names, values, strict=True))
    assert shown["brokers killed"] == "2"
    assert (shown["records sent"], shown["acknowledged and missing"]) == ("300", "0")
    assert "yes" in shown["every acknowledged record once and in order"]
