"""Planted bugs: each breaks one rule of the shipped code, and some seed has to notice.

Those of a cluster stand in tests/sim/cluster.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from tests.sim.planting import Mutant
from tidelog.broker.broker import Broker
from tidelog.broker.isr.partition import Partition
from tidelog.broker.partitions.proposals import Proposal
from tidelog.broker.runtime import log_writer
from tidelog.model.errors import DiskFull, Overloaded
from tidelog.model.producers import ProducerTable
from tidelog.replication.isr.leader import IsrLeader
from tidelog.replication.isr.log_events import Appended, Flushed
from tidelog.sim.kit.disk import SimDisk
from tidelog.sim.kit.patching import patched
from tidelog.storage import loader
from tidelog.storage.appender import Appender
from tidelog.storage.deleter import Deleter
from tidelog.storage.flush import attempt
from tidelog.storage.marks import Marks
from tidelog.storage.metainfo import MetainfoStore
from tidelog.storage.segment import Segment
from tidelog.storage.trails import read_trails
from tidelog.storage.truncation import remove_segment


def skip_fsync() -> AbstractContextManager[None]:
    """Acknowledges without asking the disk."""
    return patched(log_writer, "attempt", lambda sync: None)


def skip_directory_fsync() -> AbstractContextManager[None]:
    """Makes bytes durable, and never a name."""
    return patched(SimDisk, "sync_dir", lambda disk, directory: None)


def acknowledge_before_fsync() -> AbstractContextManager[None]:
    """Calls what is only written committed, and says it is on the disk."""
    step = IsrLeader.step

    def eager(core: IsrLeader, event: Any) -> list[Any]:
        effects = step(core, event)
        return [*effects, *step(core, Flushed(event.end))] if isinstance(event, Appended) else effects

    return patched(IsrLeader, "step", eager)


@contextmanager
def truncate_at_the_first_bad_checksum() -> Iterator[None]:
    """Takes later damage for a torn tail: looks at everything, and knows of nothing that was ever durable."""

    def unmarked(marks: Marks, durable: int, log_start_offset: int) -> None:
        marks.durable, marks.log_start_offset = 0, max(marks.log_start_offset, log_start_offset)

    def without_end(store: MetainfoStore) -> Any:
        loaded = load(store)
        return loaded and type(loaded)(
            type(loaded.info)(incarnation=loaded.info.incarnation), loaded.sequence, loaded.bad_copies
        )

    load = MetainfoStore.load
    with (
        patched(Segment, "open_sealed", lambda segment: None),
        patched(MetainfoStore, "load", without_end),
        patched(Marks, "note", unmarked),
    ):
        yield


def delete_unknown_directories() -> AbstractContextManager[None]:
    """Tidies up at the start what no metadata mentions."""

    def tidy(broker: Broker) -> None:
        known = [topic.topic_id for topic in broker.image.topics.values()]
        for topic_id in broker._manager.topic_ids():
            if topic_id not in known:
                broker._manager.remove_aside(broker._manager.set_topic_aside(topic_id))

    return patched(Broker, "_report_unknown_topics", tidy)


def forget_producers_at_restart() -> AbstractContextManager[None]:
    """Starts with an empty table of sequences."""

    def amnesiac(codec: Any, segments: Any, producers_max: int, now_ms: int) -> Any:
        return read_trails(codec, segments, producers_max, now_ms)._replace(producers=ProducerTable(producers_max))

    return patched(loader, "read_trails", amnesiac)


def retry_a_failed_fsync() -> AbstractContextManager[None]:
    """Asks the kernel again, which has marked the lost pages clean."""
    return patched(log_writer, "attempt", lambda sync: attempt(sync) and attempt(sync))


def trust_the_page_cache() -> AbstractContextManager[None]:
    """Recovery syncs what it found without writing it again."""
    return patched(loader, "write_again", lambda segment, durable: None)


def show_what_recovery_found_without_fsync() -> AbstractContextManager[None]:
    """Serves what may be in the page cache only."""
    return patched(loader._Loader, "_make_durable", lambda *_: None)


def serve_above_the_high_watermark() -> AbstractContextManager[None]:
    """Shows consumers what is not committed."""
    return patched(Partition, "high_watermark", property(lambda partition: partition.log.log_end_offset))


def definite_error_after_the_append() -> AbstractContextManager[None]:
    """Says "nothing was appended" when time runs out after the append."""
    return patched(Proposal, "late", lambda proposal: Overloaded("not appended"))


def leave_what_a_full_disk_cut_short() -> AbstractContextManager[None]:
    """Says "nothing was appended" of a write that did not fit, and leaves what did."""
    return patched(Appender, "_undo", lambda *_: DiskFull("nothing was appended"))


def remove_files_before_the_order_is_durable() -> AbstractContextManager[None]:
    """Deletes segments when asked, not when the deletion is on the disk."""
    delete_records = Deleter.delete_records

    def eager(deleter: Deleter, offset: int) -> None:
        delete_records(deleter, offset)
        for _, segment in deleter.doomed:
            remove_segment(deleter._opened, segment)
        deleter.doomed.clear()

    return patched(Deleter, "delete_records", eager)


MUTANTS: tuple[Mutant, ...] = (
    skip_fsync,
    skip_directory_fsync,
    acknowledge_before_fsync,
    truncate_at_the_first_bad_checksum,
    delete_unknown_directories,
    forget_producers_at_restart,
    retry_a_failed_fsync,
    trust_the_page_cache,
    show_what_recovery_found_without_fsync,
    serve_above_the_high_watermark,
    definite_error_after_the_append,
    leave_what_a_full_disk_cut_short,
    remove_files_before_the_order_is_durable,
)
