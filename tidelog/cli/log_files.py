"""`tidelog log verify` for a stopped broker's files other than logs: metainfo, snapshots of the metadata, its identity.

A running broker's scrubber reads the same files under the same names (`broker.repair.scrub_targets`) and repairs them.
This command only reports damage.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from tidelog.admin.verification import BrokerCheck
from tidelog.cli.data_dir import StoredLog
from tidelog.model.errors import TidelogError
from tidelog.storage.directory_identity import DirectoryIdentityStore
from tidelog.storage.disk_files import DiskFiles
from tidelog.storage.log_manager import JOURNAL, METADATA_LOG, SNAPSHOTS, STANDALONE_LOG
from tidelog.storage.metainfo import MetainfoStore
from tidelog.storage.read_only import ReadOnlyFiles
from tidelog.storage.snapshots import SnapshotStore
from tidelog.storage.two_copies import COPY_BYTES
from tidelog.transport.verification import CheckedFiles

Count = Callable[[], tuple[int, int]]
"""A function that reads a group of files, and returns the number of damaged ones and the bytes read."""


def check_files(logs: Sequence[StoredLog]) -> BrokerCheck:
    """Checks all files of a data directory except its logs, which are given."""
    files = logs[0].files
    counts = dict(_counts(files, logs))
    return BrokerCheck(_broker_id(files), [_checked(name, counts[name]) for name in sorted(counts)])


def _counts(files: DiskFiles, logs: Sequence[StoredLog]) -> Iterator[tuple[str, Count]]:
    for log in logs:
        yield f"metainfo of {_scrubbed_name(log)}", partial(_count_metainfo, log)
    if any(log.identity != STANDALONE_LOG for log in logs):
        yield "snapshots", SnapshotStore(ReadOnlyFiles(files), SNAPSHOTS).count_bad
        yield "identity", partial(_count_identity, files)


def _scrubbed_name(log: StoredLog) -> str:
    """Returns the name of the log in the reports of a running broker's scrubber."""
    if log.identity == METADATA_LOG:
        return "log metadata"
    return f"{JOURNAL if log.is_journal else 'log'} {log.name}-{log.identity.partition}"


def _count_metainfo(log: StoredLog) -> tuple[int, int]:
    store = MetainfoStore(ReadOnlyFiles(log.files), log.directory, log.identity)
    bad = store.count_bad()
    if bad == 2 and not any(name.endswith(".log") for name in log.files.list(log.directory)):
        return 0, 0  # a crash has left a log that was never begun
    return bad, 2 * COPY_BYTES


def _count_identity(files: DiskFiles) -> tuple[int, int]:
    return DirectoryIdentityStore(ReadOnlyFiles(files)).count_bad(), 2 * COPY_BYTES


def _broker_id(files: DiskFiles) -> int:
    """Returns the node id of the directory's broker; 0 if that cannot be read, or it is no broker's."""
    try:
        identity = DirectoryIdentityStore(ReadOnlyFiles(files)).current
    except (OSError, TidelogError):
        return 0
    return 0 if identity is None else identity.node_id


def _checked(name: str, count: Count) -> CheckedFiles:
    try:
        bad, size = count()
    except (OSError, TidelogError) as error:
        return CheckedFiles(name, 0, 0, 0, str(error))
    return CheckedFiles(name, size, bad, bad)
