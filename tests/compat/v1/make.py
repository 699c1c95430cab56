"""Makes the data directory of format 1 that lies beside this file, the same bytes each time.

    PYTHONPATH=. python tests/compat/v1/make.py tests/compat/v1/data

It was made once, when the format was new. Make it anew only for an addition to it; what a change of the format needs is
a directory `v2`, and a program that reads both.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tidelog.model.batch_codec import encode_batch
from tidelog.model.batch_header import RecordBatch, assign_offsets, split_batches
from tidelog.model.ids import PartitionId, TopicId
from tidelog.model.records import Record
from tidelog.storage.disk_files import DiskFiles
from tidelog.storage.log_manager import LogManager
from tidelog.storage.partition_log import LogSettings, PartitionLog

LOG = PartitionId(TopicId("00112233445566778899aabbccddeeff"), 3)
SETTINGS = LogSettings(segment_bytes=600, segment_ms=1 << 40)
NOW_MS = 1_700_000_000_000


def make(root: str) -> None:
    """Three segments of two epochs and two producers, the first offset deleted, stopped cleanly."""
    manager = LogManager(DiskFiles(root), open_max=16, new_incarnation=lambda: "0123456789abcdef")
    log, _ = manager.open_log(LOG, SETTINGS, NOW_MS)
    for n in range(10):
        log.append([_batch(log, n)], NOW_MS + n)
        if n % 2:
            log.flush()
    log.mark()
    log.delete_records(1)
    manager.close({LOG: 15})
    for name in ("lock", "reserve"):
        (Path(root) / name).unlink()


def records(n: int) -> list[Record]:
    """Returns what the n-th batch holds: one record, or two in every other batch."""
    value = b'{"n": %d, "text": "%s"}' % (n, b"tide " * (n % 4 + 10))
    return [Record(NOW_MS + 10 * n + i, b"key %d" % n, value, [("header", b"h%d" % i)]) for i in range(1 + n % 2)]


def _batch(log: PartitionLog, n: int) -> RecordBatch:
    sequence = {0: (n // 2), 1: 2 * (n // 2)}[n % 2]
    data = encode_batch(records(n), producer_id=1000 + n % 2, producer_epoch=0, base_sequence=sequence)
    (batch,) = split_batches(data, batch_bytes_max=1 << 20)
    return assign_offsets(batch, log.log_end_offset, leader_epoch=1 if n < 6 else 4)


if __name__ == "__main__":
    make(sys.argv[1])
