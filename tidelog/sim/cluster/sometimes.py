"""Names of events that a large batch of runs must reach now and then; otherwise its success proves little."""

from __future__ import annotations

import errno
from collections.abc import Mapping, Sequence
from typing import Any

from tidelog.controller import records
from tidelog.model.cluster import ISR, PAXOS
from tidelog.sim.cluster.drawing import MOVES, STRIKES
from tidelog.sim.cluster.group_traffic import MISHAPS
from tidelog.sim.cluster.truth import Truth
from tidelog.sim.kit.faults import Crashed
from tidelog.sim.kit.outcome import count_logged

DISK_ERRORS = (errno.EIO, errno.ENOSPC)

LOGGED: Mapping[str, str] = {
    "are truncated": "torn tail truncated",
    "active controller": "controller takes office",
    "changing the voters": "voter change begun",
    "could not be changed now": "voter change failed",
    "is not heard of; it is fenced": "broker fenced for its silence",
}
"""Names of counted events, by a text in a broker's log line."""

RECORDED: Mapping[type, str] = {
    records.BrokerFenced: "broker fenced",
    records.BrokerUnfenced: "broker unfenced",
    records.SnapshotTaken: "snapshot taken",
    records.SnapshotAgreed: "snapshot agreed",
    records.TopicRemoved: "topic's data removed",
}

DATA_SEEN = (
    "ISR expands",
    "batch repaired from a peer",
    "batch rotted",
    "good copy comes back",
    "ISR shrinks below the minimum",
    "ISR shrinks to the minimum",
    "excused loss of what memory held",
    "failover",
    "failover with records in flight",
    "follower starts over",
    "high watermark learned late",
    "last known leader",
    "leader from the ELR",
    "replicas compared",
    "unclean election",
    "uncommitted tail truncated",
)
"""Events of replication that runs with in-sync replicas must reach."""

MAJORITY_SEEN = (
    "client: copy read",
    "client: prefix deleted",
    "ghost of a partition adopted",
    "fault: rot of a journal",
    "journal begins behind a floor",
    "journal rotted: anything",
    "journal rotted: payload",
    "journals truncated",
    "late leader of a partition refused",
    "leader of a majority replaced",
    "majority gone",
    "majority serves",
    "member added",
    "member removed",
    "payload of a journal repaired from a peer",
    "replica jumps to a floor",
    "voters of a partition changed",
)
"""Events that runs with Paxos partitions must reach. Unfilled positions, values without effect (void) and promises with
unreadable slots are not among them: they hardly ever happen while each connection keeps its frames in order, and
`tidelog.sim.paxos` covers them."""

HOLES_SEEN = (
    "client: batch read early",
    "election over a hole",
    "value released past a hole",
    "write lost",
)
"""Events that runs with topics without total order must reach."""

GROUPS_SEEN = (
    "group: commit of an expelled member refused",
    "group: late commit refused by its sequence",
    "group: long poll answered early",
    "group: member expelled",
    "group: rebalance with a commit in flight",
    "group: records handed out again",
    "group: static member returned",
    "group: zombie commit refused",
    "group at rest",
    "coordinator failed over with members",
    "committed offsets copied forward",
    "shard loaded with live members",
    *(f"mishap: {kind}" for kind in MISHAPS),
)
"""Events that runs with consumer groups must reach."""

RUNS_WITH_GROUPS = "runs with groups"
RUNS_WITH_HOLES = "runs with topics without total order"

SEEN = (
    "barrier chosen",
    "clean stop",
    "command ok",
    "command refused",
    "command unknown",
    "core lives on",
    "crash of a crash loop",
    "deaf node",
    "death in a start",
    "disk wiped",
    "duel: promise refused",
    "election",
    "fault withheld",
    "forwarded command",
    "ghost adopted",
    "leader deposed by check-quorum",
    "lost reply after commit",
    "metadata rotted",
    "mute node",
    "pre-vote refused",
    "registered again",
    "snapshot installed",
    "voter added",
    "voter removed",
    "wiped disk rejoined",
    "write refused",
)

STEPS = (*(f"fault: {kind}" for kind in STRIKES), *(f"order: {kind}" for kind in MOVES))
SOMETIMES = tuple(sorted({*SEEN, *LOGGED.values(), *RECORDED.values(), *STEPS}))
"""Events that every large batch must reach, or it has failed."""


def runs_with(protocol: str) -> str:
    """Returns the name of the counter of runs that have topics with this commit protocol."""
    return f"runs with {protocol}"


SOMETIMES_WITH: Mapping[str, tuple[str, ...]] = {
    runs_with(ISR): DATA_SEEN,
    runs_with(PAXOS): MAJORITY_SEEN,
    RUNS_WITH_GROUPS: GROUPS_SEEN,
    RUNS_WITH_HOLES: HOLES_SEEN,
}
"""Events that a batch must reach if it has enough runs of a kind, by the counter of such runs."""


def count_logs(truth: Truth, logs: Sequence[Mapping[str, Any]]) -> None:
    """Counts events by the brokers' log lines. A logged error that is neither a disk error nor a crash is a
    violation."""
    count_logged(truth.counters, logs, LOGGED)
    for entry in logs:
        error = entry.get("exc_info")
        if isinstance(error, BaseException) and not _is_of_a_disk(error):
            truth.violate("unforeseen", f"{entry.get('event')}: {entry.get('task')}: {type(error).__name__}: {error}")


def _is_of_a_disk(error: BaseException) -> bool:
    return isinstance(error, Crashed) or (isinstance(error, OSError) and error.errno in DISK_ERRORS)


def count_steps(truth: Truth) -> None:
    """Counts events by the records of the metadata log."""
    storages: dict[int, str] = {}
    for record in truth.records.values():
        truth.saw(RECORDED.get(type(record), ""), type(record) in RECORDED)
        if isinstance(record, records.BrokerRegistered):
            before = storages.get(record.node_id)
            truth.saw("registered again", before == record.storage)
            truth.saw("wiped disk rejoined", before not in (None, record.storage))
            storages[record.node_id] = record.storage
