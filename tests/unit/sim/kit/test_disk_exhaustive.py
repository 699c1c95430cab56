"""The disk model against a dumb one: every short sequence of operations, every crash after it.

The dumb model knows no inodes, no pending lists, no masks: it goes through all subsets of (operation, sector) pairs and
plays the survivors in order.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product

import pytest

from tests.every_crash import enumerate_crashes
from tidelog.sim.kit.disk import SimDisk

SECTOR = 512
Operation = tuple[str, int, int]
"""(kind, position in half sectors, length in half sectors); byte values are the operation's number."""

FILE_OPERATIONS: list[Operation] = [
    ("write", 0, 1),
    ("write", 1, 2),
    ("write", 2, 2),
    ("write", 4, 1),
    ("truncate", 1, 0),
    ("truncate", 5, 0),
    ("sync", 0, 0),
]

HALF = SECTOR // 2


def run_on_disk(operations: Iterable[Operation]) -> set[bytes]:
    found = set()
    for choices in enumerate_crashes():
        disk = SimDisk(0)
        file = disk.open("f", create=True)
        disk.sync_dir("")
        for number, (kind, position, length) in enumerate(operations, 1):
            if kind == "write":
                file.pwritev([bytes([number]) * (length * HALF)], position * HALF)
            elif kind == "truncate":
                file.truncate(position * HALF)
            else:
                file.sync()
        found.add(bytes(disk.crash(choices).medium.walk()["f"].data))
    return found


def run_dumb(operations: list[Operation]) -> set[bytes]:
    synced = max((n for n, operation in enumerate(operations) if operation[0] == "sync"), default=0)
    durable: list[int] = []  # a value per half sector
    for number, operation in enumerate(operations[:synced], 1):
        play(durable, number, operation)
    seen = list(durable)
    pieces: list[tuple[int, Operation]] = []
    for number, (kind, position, length) in list(enumerate(operations, 1))[synced:]:
        play(seen, number, (kind, position, length))
        if kind == "write":
            halves = range(position, position + length)
            for sector in sorted({half // 2 for half in halves}):
                mine = [half for half in halves if half // 2 == sector]
                pieces.append((number, ("write", mine[0], len(mine))))
        elif kind == "truncate":
            pieces.append((number, (kind, position, length)))
    found = set()
    for kept in product((False, True), repeat=len(pieces)):
        image = list(durable)
        for keep, (number, operation) in zip(kept, pieces, strict=True):
            if keep:
                play(image, number, operation)
        found.add(to_bytes(image))
        found.add(to_bytes(image + [0] * (len(seen) - len(image))))
    return found


def play(image: list[int], number: int, operation: Operation) -> None:
    kind, position, length = operation
    if kind == "truncate":
        image[:] = (image + [0] * position)[:position]
    for half in range(position, position + length):
        image.extend([0] * (half + 1 - len(image)))
        image[half] = number


def to_bytes(image: list[int]) -> bytes:
    return b"".join(bytes([value]) * HALF for value in image)


@pytest.mark.parametrize("length", [1, 2, 3])
def test_bytes_after_every_crash_are_those_of_the_dumb_model(length: int) -> None:
    for operations in product(FILE_OPERATIONS, repeat=length):
        assert run_on_disk(operations) == run_dumb(list(operations)), operations


NAME_OPERATIONS = ["create a", "create b", "remove a", "rename a b", "rename b a", "sync"]


@pytest.mark.parametrize("length", [1, 2, 3, 4])
def test_names_after_every_crash_are_those_of_the_dumb_model(length: int) -> None:
    for operations in product(NAME_OPERATIONS, repeat=length):
        if is_possible(operations):
            assert names_on_disk(operations) == names_dumb(operations), operations


def is_possible(operations: Iterable[str]) -> bool:
    names: dict[str, int] = {}
    for number, operation in enumerate(operations):
        verb, *which = operation.split()
        if verb != "create" and which and which[0] not in names:
            return False
        play_name(names, number, operation)
    return True


def play_name(names: dict[str, int], number: int, operation: str) -> None:
    """Files are told apart by the number of the operation that made them."""
    verb, *which = operation.split()
    if verb == "create":
        names.setdefault(which[0], number)
    elif verb == "remove":
        names.pop(which[0], None)
    elif verb == "rename":
        names[which[1]] = names.pop(which[0])


def names_on_disk(operations: Iterable[str]) -> set[tuple[tuple[str, int], ...]]:
    found = set()
    for choices in enumerate_crashes():
        disk = SimDisk(0)
        for number, operation in enumerate(operations):
            verb, *which = operation.split()
            if verb == "create" and not disk.exists(which[0]):
                file = disk.open(which[0], create=True)
                file.pwritev([bytes([number])], 0)
                file.sync()
            elif verb == "remove":
                disk.remove(which[0])
            elif verb == "rename":
                disk.rename(which[0], which[1])
            elif verb == "sync":
                disk.sync_dir("")
        after = disk.crash(choices).medium.walk()
        found.add(tuple((name, node.data[0]) for name, node in after.items()))
    return found


def names_dumb(operations: tuple[str, ...]) -> set[tuple[tuple[str, int], ...]]:
    """Turns operations into atomic assignments, then plays every subset of those after the last sync."""
    synced = max((n for n, operation in enumerate(operations) if operation == "sync"), default=0)
    seen: dict[str, int] = {}
    for number, operation in enumerate(operations[:synced]):
        play_name(seen, number, operation)
    durable = dict(seen)
    assignments: list[dict[str, int | None]] = []
    for number, operation in list(enumerate(operations))[synced:]:
        before = dict(seen)
        play_name(seen, number, operation)
        changed = {name: seen.get(name) for name in ("a", "b") if before.get(name) != seen.get(name)}
        if changed:
            assignments.append(changed)
    found = set()
    for kept in product((False, True), repeat=len(assignments)):
        image: dict[str, int | None] = dict(durable)
        for keep, changed in zip(kept, assignments, strict=True):
            image.update(changed if keep else {})
        found.add(tuple((name, number) for name, number in sorted(image.items()) if number is not None))
    return found
