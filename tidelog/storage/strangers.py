"""Files of another partition, or of another cluster, in a log's directory: set aside, not taken in, not removed.

A catalog's header names the log that it belongs to, under a checksum seeded with that name, so a stranger's catalog is
known for what it is. Batches carry no name, and would pass for ours where offsets happen to agree; but if the catalog
of a stranger describes the log file beside it, that is the stranger's, too.

If there is no metainfo of ours either, or it is another log's, the directory as a whole has changed hands, and a crash
may have left logs in it whose catalogs are gone, or describe nothing that is left. Then a segment without a row of ours
is the stranger's.
"""

from __future__ import annotations

from itertools import count

from tidelog.model.ids import PartitionId
from tidelog.storage.open_files import OpenFiles
from tidelog.storage.rows import ROW_BYTES, Kind, RowCodec
from tidelog.storage.segment import Segment


def find_strangers(opened: OpenFiles, directory: str, base_offset: int, identity: PartitionId) -> list[str]:
    """Returns the files of a segment that are not of this log: none, the catalog, or the log and the catalog."""
    ours = Segment(opened, directory, base_offset, RowCodec(identity))
    owner = RowCodec.owner(ours.raw_rows(0, 1)) if opened.files.exists(ours.catalog_path) else None
    # A catalog that names nobody is no stranger's for sure: it may be ours, with a damaged header.
    if owner is None or owner == identity:
        return []
    theirs = Segment(opened, directory, base_offset, RowCodec(owner))
    theirs.slots = theirs.catalog.size() // ROW_BYTES
    theirs.open_header()
    batches = (row for row in theirs.rows(theirs.body_slot) if row is not None and row.kind == Kind.BATCH)
    # One batch with the digest that their row has is enough: the log beside this catalog is theirs, too. Without that,
    # their batches would be taken in wherever offsets happen to agree.
    has_both = opened.files.exists(ours.log_path) and any(map(theirs.holds, batches))
    return [ours.log_path, ours.catalog_path] if has_both else [ours.catalog_path]


def has_rows(opened: OpenFiles, segment: Segment, codec: RowCodec) -> bool:
    """Returns True if its catalog has any row of this log's."""
    if not opened.files.exists(segment.catalog_path):
        return False
    rows = -(-segment.catalog.size() // ROW_BYTES)
    # One row suffices, of any kind: its checksum is seeded with the name of this log.
    return any(codec.is_sound(segment.raw_rows(slot, 1)) for slot in range(rows))


def set_aside(opened: OpenFiles, path: str) -> None:
    """Gives a file a name that no log looks at. Durable after the next sync of its directory. Raises `OSError`."""
    # The cache knows files by path; under this path there will be another one.
    opened.close(path)
    names = (f"{path}.stranger-{number}" for number in count(1))
    opened.files.rename(path, next(name for name in names if not opened.files.exists(name)))
