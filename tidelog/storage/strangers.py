"""Files of another partition, or of another cluster, in a log's directory ("strangers"): renamed, neither used nor
removed.

A catalog's header names its log, under a checksum seeded with that name, so another log's catalog is recognised.
Batches do not name their log, and could be taken for this one's where offsets happen to agree; but if another log's
catalog describes the log file beside it, that file belongs to the other log, too.

If there is no metainfo of this log either, or another log's, the whole directory may have been exchanged, and may hold
log files whose catalogs are gone. Then a segment without any row of this log counts as another log's.
"""

from __future__ import annotations

from itertools import count

from tidelog.model.ids import PartitionId
from tidelog.storage.open_files import OpenFiles
from tidelog.storage.rows import ROW_BYTES, Kind, RowCodec
from tidelog.storage.segment import Segment


def find_strangers(opened: OpenFiles, directory: str, base_offset: int, identity: PartitionId) -> list[str]:
    """Returns the files of a segment that belong to another log: none, the catalog, or the log and the catalog."""
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
    """Returns True if the segment's catalog has any row of this log."""
    if not opened.files.exists(segment.catalog_path):
        return False
    rows = -(-segment.catalog.size() // ROW_BYTES)
    # One row suffices, of any kind: its checksum is seeded with the name of this log.
    return any(codec.is_sound(segment.raw_rows(slot, 1)) for slot in range(rows))


def set_aside(opened: OpenFiles, path: str) -> None:
    """Renames a file, so that no log uses it. Durable after the next sync of its directory. Raises `OSError`."""
    # The cache knows files by path; under this path there will be another one.
    opened.close(path)
    names = (f"{path}.stranger-{number}" for number in count(1))
    opened.files.rename(path, next(name for name in names if not opened.files.exists(name)))
