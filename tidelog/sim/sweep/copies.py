"""The copies of entries on the disks of stopped replicas: where they are, and how they are damaged.

Which entries must be readable afterwards is read from the disks and not computed from the pattern: an entry with a
whole copy left, in any log or journal, must be recovered.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Final, NamedTuple

from tidelog.model.batch_header import iter_batches
from tidelog.model.errors import TidelogError
from tidelog.sim.kit import rot
from tidelog.sim.kit.medium import Medium
from tidelog.sim.sweep.cases import ENTRIES, Case, Damage, Where
from tidelog.storage.rows import RowCodec
from tidelog.storage.slot_entries import EntryKind, decode_entry

STRANGER: Final = -1
"""Entry number of a batch that holds none of the four entries: no pattern damages it, and no file is cut before it."""
Content = Mapping[str, bytes]
"""The files of a disk, by path."""


class Copy(NamedTuple):
    """A batch that holds an entry, or a journal entry that holds that batch."""

    node: int
    entry: int
    path: str
    position: int
    size: int
    is_in_journal: bool = False
    has_row: bool = True
    """True if the catalog (index) has the row that names the batch; a power cut may leave the batch without it."""


def with_rows(copies: Iterable[Copy], content: Content, codec: RowCodec) -> Iterator[Copy]:
    """Yields the copies with `has_row` set by the catalogs (indexes) beside their files."""
    for copy in copies:
        rows = codec.bodies(content.get(f"{copy.path.removesuffix('.log')}.catalog", b""))
        positions = [row.file_position for row in rows if row is not None]
        yield copy._replace(has_row=copy.position in positions)


def spare(copies: Iterable[Copy]) -> list[Copy]:
    """Returns the copies; journal entries without a catalog row (index entry) become strangers, which no pattern
    damages."""
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
    """Returns True for records, and for journal entries other than those which only say that a value is learned."""
    head, _ = decode_entry(batch) or (None, None)
    return head is None or head.kind is not EntryKind.REFERENCE


def _batches(content: bytes) -> Iterator[tuple[int, bytes]]:
    position = 0
    with suppress(TidelogError):  # behind the last batch there may be room that was reserved, or what a power cut left
        for batch in iter_batches(content):
            yield position, bytes(batch.data)
            position += len(batch.data)


def check_majority(copies: Iterable[Copy], replicas: int) -> None:
    """Raises `AssertionError` if an acknowledged entry is not on the disks of a majority before any damage."""
    held = {(copy.entry, copy.node) for copy in copies}
    for entry in range(ENTRIES):
        nodes = sorted(node for written, node in held if written == entry)
        assert 2 * len(nodes) > replicas, f"entry {entry} is acknowledged, and on the disks of {nodes} only"


def chosen(case: Case, copies: Iterable[Copy], replicas: int) -> list[Copy]:
    """Returns the copies that the case damages."""
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
    """Damages the copies of a case; returns the copies of entries that are left."""
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
