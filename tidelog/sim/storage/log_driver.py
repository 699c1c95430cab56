"""A driver of one partition log, without a broker, that checks what the log promises.

The driver does what a broker does with a log (append, flush, roll, delete a prefix, close), remembers the results, and
compares the log with them after each reopening. That is much cheaper than a broker, so every crash of a short history
can be tried, and every damage to a whole log.

The promises, for a log on its own:

- What a flush covered is there, at its offset, with its bytes, until the prefix that holds it is deleted.
- A batch that an opened log shows was appended at that offset, and stays: it is durable before it is visible.
- A batch that was refused ("nothing was appended") is never there.
- A deletion that a flush covered stays; none goes further than requested.
- Opening never fails, however often, and the log goes on from where it ends.

A log with other replicas (`BadEnd.KEEP`) may show damaged offsets where batches were never acknowledged. A batch whose
bytes rot keeps its offset, acknowledged or not, and can be repaired with a copy; so such a driver may damage one
acknowledged batch per process, and repairs it once the log is open again.
"""

from __future__ import annotations

from tidelog.model.batch_codec import encode_batch
from tidelog.model.batch_header import RecordBatch, assign_offsets, iter_batches, parse_header, split_batches
from tidelog.model.errors import DamagedBatch, DiskFull, LogOffline
from tidelog.model.ids import PartitionId, TopicId
from tidelog.model.producers import BATCHES_REMEMBERED
from tidelog.model.records import Record
from tidelog.sim.kit import rot
from tidelog.sim.kit.choices import CrashChoices
from tidelog.sim.kit.disk import SimDisk
from tidelog.storage.flush import Flush
from tidelog.storage.load_report import LoadReport
from tidelog.storage.loader import load_log
from tidelog.storage.open_files import OpenFiles
from tidelog.storage.partition_log import LogSettings, PartitionLog
from tidelog.storage.repair import Repair
from tidelog.storage.scan import BadEnd
from tidelog.storage.segment import Damage

IDENTITY = PartitionId(TopicId("ab" * 16), 3)
DIRECTORY = "topics/log"
READ_BYTES = 1 << 20
NOW_MS = 1_700_000_000_000


class LogDriver:
    """A partition log on a simulated disk, with the checks of its promises.

    `acked` has the batches that must be there, by base offset; `offered` has all batches that were ever appended at an
    offset.
    """

    def __init__(
        self,
        disk: SimDisk,
        *,
        segment_bytes: int = 1 << 30,
        handles_max: int = 64,
        producer_id: int = -1,
        bad_end: BadEnd = BadEnd.TRUNCATE,
    ) -> None:
        self.disk = disk
        self.bad_end = bad_end
        self.producer_id = producer_id
        self.acked: dict[int, bytes] = {}
        self.offered: dict[int, list[bytes]] = {}
        self.start_acked = 0
        self.start_requested = 0
        self.epoch = 1
        self.rotten: dict[int, bytes] = {}
        """Acknowledged batches that are damaged on the disk, by base offset."""
        self._damaged: list[Damage] = []
        self._settings = LogSettings(segment_bytes=segment_bytes, segment_ms=1 << 40)
        self._handles_max = handles_max
        self._unacked: dict[int, bytes] = {}
        self._values = 0
        self.open()

    def open(self) -> None:
        """Opens the log as a starting process does."""
        self.log: PartitionLog
        self.report: LoadReport
        self.log, self.report = load_log(
            OpenFiles(self.disk, self._handles_max),
            DIRECTORY,
            IDENTITY,
            self._settings,
            new_incarnation=f"incarnation {self._values}",
            now_ms=NOW_MS,
            bad_end=self.bad_end,
        )

    # -- what a broker does ------------------------------------------------------------------------------------------

    def append(self, records: int = 1, value_bytes: int = 0) -> None:
        """Appends one batch with unique content, which is not acknowledged yet. Raises `DiskFull`, `LogOffline` or
        `Overloaded` if nothing was appended, and `InternalError` if the outcome is unknown."""
        batch = self._make(records, value_bytes)
        base, data = batch.header.base_offset, bytes(batch.data)
        offered = self.offered.setdefault(base, [])
        offered.append(data)
        try:
            self.log.append([batch], NOW_MS)
        except (DiskFull, LogOffline):
            offered.remove(data)
            raise
        self._unacked[base] = data

    def _make(self, records: int, value_bytes: int) -> RecordBatch:
        self._values += 1
        value = (b"value %d" % self._values).ljust(value_bytes, b".")
        offset, is_numbered = self.log.log_end_offset, self.producer_id >= 0
        body = encode_batch(
            [Record(NOW_MS, None, value)] * records,
            producer_id=self.producer_id,
            producer_epoch=0 if is_numbered else -1,
            base_sequence=offset if is_numbered else -1,  # the only producer, so the sequences are the offsets
        )
        (batch,) = split_batches(body, batch_bytes_max=READ_BYTES)
        return assign_offsets(batch, offset, self.epoch)

    def delete_records(self, offset: int) -> None:
        self.start_requested = max(self.start_requested, offset)
        self.log.delete_records(offset)

    def flush(self) -> bool:
        """Makes all appended batches durable and acknowledges them. Returns False if there was nothing to do, or the
        disk failed."""
        return self.log.is_dirty and self.finish(self.log.begin_flush())

    def finish(self, flush: Flush) -> bool:
        """Runs a flush, which may have been begun before later appends, and acknowledges the batches that it covers."""
        start = self.log.log_start_offset
        try:
            flush.run()
        except OSError as error:
            self.log.end_flush(flush, error)
            return False
        self.log.end_flush(flush, None)
        if self.log.offline_reason is not None:
            return False
        for base in [base for base in self._unacked if base < self.log.durable_offset]:
            self.acked[base] = self._unacked.pop(base)
        if not self.log.is_dirty:
            self.start_acked = start
        return True

    def close(self) -> None:
        """Closes the log in order, which includes a flush."""
        self.log.close(self.log.log_end_offset)
        if self.log.offline_reason is None:
            self.acked.update(self._unacked)
            self._unacked.clear()
            self.start_acked = self.log.log_start_offset

    # -- what a machine does -----------------------------------------------------------------------------------------

    def crash(self, choices: CrashChoices | None = None) -> None:
        """Cuts the power. The next call is `open`."""
        self.disk = self.disk.crash(choices)
        self._unacked = {}

    def kill(self) -> None:
        """Kills the process only, not the machine. The next call is `open`."""
        self.disk = self.disk.kill()
        self._unacked = {}

    def rot(self, base: int) -> None:
        """Damages an acknowledged batch on the disk, while no process runs."""
        for path, node in self.disk.medium.walk().items():
            position = bytes(node.data).find(self.acked[base]) if path.endswith(".log") else -1
            if position >= 0:
                last = position + len(self.acked[base]) - 1
                rot.overwrite(self.disk.medium, path, last, bytes([node.data[last] ^ 1]))
                self.rotten[base] = self.acked.pop(base)
                return

    # -- what must be true -------------------------------------------------------------------------------------------

    def check_reopened(self) -> None:
        """Checks a log that was just opened against the promises. All that it shows is then a promise, too."""
        log = self.log
        assert log.offline_reason is None, log.offline_reason
        assert self.start_acked <= log.log_start_offset <= self.start_requested, "log start offset"
        assert log.durable_offset == log.log_end_offset
        self._mend()
        batches = self._read_and_judge_damage()
        self.check_bytes(batches)
        for base, data in self.acked.items():
            if base >= log.log_start_offset:
                assert batches.get(base) == data, f"acknowledged batch at {base} is gone; log ends {log.log_end_offset}"
        self.check_producer(batches)
        self.acked = batches
        self.start_acked = self.start_requested = log.log_start_offset

    def _mend(self) -> None:
        """Repairs the damaged batches with intact copies, as another replica would. The log must report where it is
        damaged."""
        log = self.log
        for base, data in list(self.rotten.items()):
            if base >= log.log_start_offset:
                assert base < log.log_end_offset, f"what rotted at {base} was truncated; log ends {log.log_end_offset}"
                verdict = log.repair(data)
                assert verdict in (Repair.DONE, Repair.NOT_NEEDED), f"a copy does not repair {base}: {verdict}"
                self.acked[base] = data
            del self.rotten[base]

    def _read_and_judge_damage(self) -> dict[int, bytes]:
        """Checks that nothing is damaged or, in a log with other replicas, only batches that were not acknowledged, and
        that earlier damage is still there. Returns the intact batches by base offset."""
        log, damaged = self.log, self.log.damaged_ranges()
        if self.bad_end == BadEnd.TRUNCATE:
            assert not damaged, f"damage found where there was none: {self.report.findings}"
            return self.read_all()
        for damage in self._damaged:
            assert damage.end <= max(log.log_end_offset, log.log_start_offset), "damage that was seen is truncated"
        batches = self.read_what_is_sound()
        self._damaged = self.log.damaged_ranges()
        for damage in self._damaged:
            lost = [base for base in self.acked if damage.start <= base < damage.end and base >= log.log_start_offset]
            assert not lost, f"acknowledged batches at {lost} are damaged: {damage}"
        return batches

    def check_producer(self, batches: dict[int, bytes]) -> None:
        """Checks that the log recognises repeats of its newest batches, so that its producer state is that of the
        log."""
        if self.producer_id < 0 or self._damaged:
            return
        for base in list(batches)[-BATCHES_REMEMBERED:]:
            header = parse_header(batches[base])
            verdict = self.log.producers.check(self.producer_id, 0, base, header.record_count)
            assert verdict == (base, header.last_offset), f"a repeat of the batch at {base} is not recognised"

    def check_bytes(self, batches: dict[int, bytes]) -> None:
        """Checks that each batch was appended at the offset where it is."""
        for base, data in batches.items():
            assert data in self.offered.get(base, []), f"the batch at {base} was never offered for that offset"

    def read_all(self) -> dict[int, bytes]:
        """Returns all batches by base offset, after checking that they are contiguous up to the end. Raises
        `DamagedBatch`."""
        batches: dict[int, bytes] = {}
        offset, end = self.log.log_start_offset, self.log.log_end_offset
        while offset < end:
            extent = self.log.read(offset, READ_BYTES, end)
            assert extent.data, f"nothing to read at {offset}, though the log ends at {end}"
            for batch in iter_batches(extent.data):
                first = offset == self.log.log_start_offset  # which may lie within a batch
                assert batch.header.base_offset == offset or first, f"a gap at {offset}"
                batches[batch.header.base_offset] = bytes(batch.data)
                offset = batch.header.next_offset
            assert offset == extent.next_offset
        return batches

    def read_what_is_sound(self) -> dict[int, bytes]:
        """Returns the intact batches by base offset, read one by one."""
        batches: dict[int, bytes] = {}
        offset, end = self.log.log_start_offset, self.log.log_end_offset
        while offset < end:
            try:
                extent = self.log.read(offset, 1, end)
            except DamagedBatch:
                offset += 1
                continue
            (batch,) = iter_batches(extent.data)
            batches[batch.header.base_offset] = bytes(batch.data)
            offset = batch.header.next_offset
        return batches
