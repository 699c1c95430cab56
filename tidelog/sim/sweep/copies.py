"""The copies of entries on the disks of replicas that do not run: where they lie, and how they are damaged.

What must be readable afterwards is not reckoned from the pattern but seen on the disks: an entry of which a whole copy
is left, in whatever log or journal, must come back.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from tidelog.model.batch_header import iter_batches
from tidelog.model.errors import TidelogError
from tidelog.sim.kit import rot
from tidelog.sim.kit.medium import Medium
from tidelog.sim.sweep.cases import ENTRIES, Case, Damage, Where
from tidelog.storage.rows import RowCodec
from tidelog.storage.slot_entries import EntryKind, decode_entry

STRANGER: Final = -1
"""Stands for the entry of a batch that is none of the four: no pattern hits it, and no file is cut before it."""
Content = Mapping[str, bytes]
"""The files of a disk, by path."""


class Copy(NamedTuple):
    """A batch that holds an entry, or an entry of a journal that holds that batch."""

    node: int
    entry: int
    path: str
    position: int
    size: int
    is_in_journal: bool = False
    has_row: bool = True
    """A power cut may leave a batch and not the row that names it."""


def with_rows(copies: Iterable[Copy], content: Content, codec: RowCodec) -> Iterator[Copy]:
    """Yields them with what the catalogs beside their files say of them."""
    for copy in copies:
        rows = codec.bodies(content.get(f"{copy.path.removesuffix('.log')}.catalog", b""))
        positions = [row.file_position for row in rows if row is not None]
        yield copy._replace(has_row=copy.position in positions)


def spare(copies: Iterable[Copy]) -> list[Copy]:
    """Returns them, with entries of journals that have no row as strangers, which no pattern hits."""
    return [copy._replace(entry=STRANGER) if copy.is_in_journal and not copy.has_row else copy for copy in copies]


def find_copies(node: int, content: Content, directory: str, values: Sequence[bytes], journal: str) -> Iterator[Copy]:
    """Yields all sound copies in the files of a directory; those below a directory named `journal` are a journal's."""
    for path, data in content.items():
        if path.startswith(directory) and path.endswith(".log"):
            for position, batch in _batches(data):
                for entry, value in enumerate(values):
                    if value in batch:
                        yield Copy(node, entry, path, position, len(batch), f"/{journal}/" in path)
                if not any(value in batch for value in values) and _says_more(batch):
                    yield Copy(node, STRANGER, path, position, len(batch), f"/{journal}/" in path)


def _says_more(batch: bytes) -> bool:
    """True of records, and of an entry of a journal that does more than to say that a value is learned."""
    head, _ = decode_entry(batch) or (None, None)
    return head is None or head.kind is not EntryKind.REFERENCE


def _batches(content: bytes) -> Iterator[tuple[int, bytes]]:
    position = 0
    try:
        for batch in iter_batches(content):
            yield position, bytes(batch.data)
            position += len(batch.data)
    except TidelogError:
        pass  # behind the last batch there may be room that was reserved, or what a power cut left


def check_majority(copies: Iterable[Copy], replicas: int) -> None:
    """Raises `AssertionError` if an acknowledged entry is not on the disks of a majority before any damage."""
    held = {(copy.entry, copy.node) for copy in copies}
    for entry in range(ENTRIES):
        nodes = sorted(node for known, node in held if known == entry)
        assert 2 * len(nodes) > replicas, f"entry {entry} is acknowledged, and on the disks of {nodes} only"


def chosen(case: Case, copies: Iterable[Copy], replicas: int) -> list[Copy]:
    """Returns those that the case damages."""
    return [
        copy
        for copy in copies
        if copy.entry != STRANGER
        and case.hits(copy.entry, copy.node, replicas)
        and (case.where is Where.BOTH or copy.is_in_journal == (case.where is Where.JOURNAL))
    ]


def damage_copies(
    case: Case, copies: Sequence[Copy], media: Mapping[int, Medium], replicas: int, rng: random.Random
) -> list[Copy]:
    """Damages what the case says; returns the copies that are left."""
    hit = chosen(case, copies, replicas)
    for node, path in dict.fromkeys((copy.node, copy.path) for copy in hit):
        here = [copy for copy in hit if (copy.node, copy.path) == (node, path)]
        cut = min(copy.position for copy in here)
        behind = [copy for copy in copies if (copy.node, copy.path) == (node, path) and copy.position >= cut]
        if case.damage is Damage.CUT and len(behind) == len(here):
            rot.truncate(media[node], path, cut)
        else:
            for copy in here:
                _damage(media[node], copy, case.damage, rng)
    return [copy for copy in copies if copy not in hit and copy.entry != STRANGER]


def _damage(medium: Medium, copy: Copy, damage: Damage, rng: random.Random) -> None:
    if damage is Damage.FLIP:
        rot.flip_bit(medium, copy.path, copy.position + rng.randrange(copy.size), rng.randrange(8))
    elif damage is Damage.EIO:
        rot.make_unreadable(medium, copy.path, copy.position, copy.size)
    else:
        rot.overwrite(medium, copy.path, copy.position, bytes(copy.size))
