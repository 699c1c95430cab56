"""A slot store on a disk, restartable as a process is, and its files, to be damaged."""

from __future__ import annotations

from tests.unit.storage.conftest import WatchedFiles
from tidelog.model.ids import PartitionId, TopicId
from tidelog.model.ports import Files
from tidelog.storage.open_files import OpenFiles
from tidelog.storage.partition_log import LogSettings
from tidelog.storage.scan import BadEnd
from tidelog.storage.slot_store import JOURNAL_SETTINGS, SlotStore, StoredSlots

IDENTITY = PartitionId(TopicId("0" * 32), 0)
SMALL = LogSettings(segment_bytes=2_000, segment_ms=1 << 60)


class Place:
    """One store on a disk, restartable as a process is."""

    def __init__(self, files: Files, settings: LogSettings = JOURNAL_SETTINGS) -> None:
        self.files = WatchedFiles(files)
        self.settings = settings
        self.bad_end = BadEnd.TRUNCATE
        self._starts = 0
        self.store: SlotStore
        self.stored: StoredSlots
        self.open()

    def open(self) -> None:
        self._starts += 1
        self.opened = OpenFiles(self.files, 16)
        self.store, self.stored = SlotStore.open(
            self.opened, "metadata", IDENTITY, self.settings,
            new_incarnation=f"start-{self._starts}", now_ms=5, bad_end=self.bad_end,
        )  # fmt: skip

    def kill_and_open(self) -> None:
        self.opened.close_all()
        self.open()

    def close_and_open(self) -> None:
        self.store.close()
        self.open()

    def flush(self) -> None:
        flush = self.store.begin_flush()
        flush.run()
        self.store.end_flush(flush, None)

    def slots(self) -> dict[int, tuple[int, bytes | None, bool]]:
        return {slot.position: (slot.number, slot.identity, slot.is_faulty) for slot in self.stored.slots}

    def log_bytes(self) -> int:
        return self.store.journal.log_bytes

    def paths(self, suffix: str) -> list[str]:
        return [f"metadata/{name}" for name in self.files.list("metadata") if name.endswith(suffix)]

    def harm(self, path: str, find: bytes) -> None:
        """Damages some bytes of a file, found by what is there."""
        file = self.files.inner.open(path)
        content = file.pread(file.size(), 0)
        file.pwritev([b"\xff\xff"], content.rindex(find))
        file.close()

    def remove(self, path: str) -> None:
        self.files.inner.remove(path)
