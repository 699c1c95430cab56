"""The hello: the first frame in both directions, and the rules by which one side will not talk to the other.

A broker that restarts keeps its node id, and frames of its earlier life may still be under way, or the earlier process
may only be paused. So a caller names its *incarnation*, drawn afresh by each process, and its *broker epoch*, the
position of its registration in the metadata log (Kafka: KIP-903). `Incarnations` remembers which of a node's lives is
newest, and learns that from the metadata alone. By those a hello may turn out to be that of an earlier life; what it
says itself makes no other life one: else whoever says a large epoch in a node's name would put that node out.

A life that the metadata here do not name is listened to, whatever epoch it says, unless it is known to be over: it may
be about to register, or have registered later than this broker has read. The handler of a request sees the caller's
`Hello` and judges what such a caller may ask. Until the metadata name the later one, an earlier life is listened to as
well: what it says is judged by its epoch where it counts, by leaders and by the controller.

A caller names the feature levels that it speaks (`model/levels.py`), too, and the level that its cluster is at. Who
does not speak that level is refused: it could not read the metadata.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from tidelog.model.levels import (
    FIRST_LEVEL,
    UNKNOWN_LEVEL,
    Additions,
    LevelRange,
    unfit_for_level,
    without_common_level,
)

PROTOCOL_VERSION: Final = 1

ENDED_MAX: Final = 32
"""The most earlier processes of one node that are remembered as over."""


class Hello(msgspec.Struct, frozen=True):
    """The self-description of a broker, the first frame of a connection."""

    node_id: int
    incarnation: str
    """The incarnation of the process: drawn at its start."""
    cluster_id: str = ""
    """Empty while it is not known: before a cluster is founded, or joined."""
    broker_epoch: int = -1
    """The offset of the registration in the metadata log; -1 before it."""
    protocol_version: int = PROTOCOL_VERSION
    """The version of frames and hellos: who speaks another one is refused. The levels say what messages there are."""
    generation: int = 0
    """How often the cluster's metadata log was begun anew; it counts with a `cluster_id`."""
    recovery_id: str = ""
    """The id of the last recovery, which began the metadata log anew: two logs recovered from the same one apart from
    each other have the same generation, and different ids."""
    levels: LevelRange = FIRST_LEVEL
    """The feature levels that it speaks."""
    cluster_level: int = UNKNOWN_LEVEL
    """The feature level of the cluster, as far as it has read the metadata; unknown without a cluster."""

    def describe(self) -> str:
        """Returns the hello in words, for log lines."""
        cluster = f"cluster {self.cluster_id}" if self.cluster_id else "no cluster yet"
        return f"node {self.node_id} of {cluster}, incarnation {self.incarnation}, epoch {self.broker_epoch}"


HELLO_ADDITIONS: Final = Additions(
    {}, {Hello: dict.fromkeys(("levels", "cluster_level", "generation", "recovery_id"), 2)}, {}
)
"""A hello is written at the highest level of who says it, since that of the other is not known yet; whoever reads it
passes over what it does not know."""


def refusal(mine: Hello, theirs: Hello) -> str | None:
    """Returns why two brokers cannot talk to each other, in words; None if they can."""
    if theirs.protocol_version != mine.protocol_version:
        return (
            f"node {theirs.node_id} speaks version {theirs.protocol_version} of the peer messages, and node "
            f"{mine.node_id} version {mine.protocol_version}; run the same version of tidelog on both"
        )
    if theirs.node_id == mine.node_id and theirs.incarnation != mine.incarnation:
        return f"both brokers are node {mine.node_id}; give each broker of a cluster a node.id of its own"
    if mine.cluster_id and theirs.cluster_id and mine.cluster_id != theirs.cluster_id:
        return (
            f"node {theirs.node_id} belongs to cluster {theirs.cluster_id}, and node {mine.node_id} to cluster "
            f"{mine.cluster_id}; check the peer addresses in the settings of both"
        )
    if mine.cluster_id and theirs.cluster_id and mine.generation != theirs.generation:
        older, newer = sorted((mine, theirs), key=lambda hello: hello.generation)
        return outdated(older.node_id, older.generation, newer.generation)
    if are_apart(mine, theirs):
        return recovered_apart(mine.generation, {hello.node_id: hello.recovery_id for hello in (mine, theirs)})
    return _level_refusal(mine, theirs)


def _level_refusal(mine: Hello, theirs: Hello) -> str | None:
    """Returns why two brokers cannot talk to each other, by the feature levels that they speak; None if they can."""
    level = max(mine.cluster_level, theirs.cluster_level)
    for hello in (theirs, mine):
        if level != UNKNOWN_LEVEL and level not in hello.levels:
            return unfit_for_level(hello.node_id, hello.levels, level)
    if mine.levels.common(theirs.levels) is None:
        return without_common_level((mine.node_id, mine.levels), (theirs.node_id, theirs.levels))
    return None


def is_left_behind(mine: Hello, theirs: Hello) -> bool:
    """Returns True if the first does not speak the level that its cluster is at, as the second knows."""
    is_same = theirs.cluster_id != "" and mine.cluster_id in ("", theirs.cluster_id)
    return is_same and theirs.cluster_level != UNKNOWN_LEVEL and theirs.cluster_level not in mine.levels


def are_apart(mine: Hello, theirs: Hello) -> bool:
    """Returns True for brokers whose metadata logs were begun anew apart from each other."""
    is_same = mine.cluster_id != "" and (mine.cluster_id, mine.generation) == (theirs.cluster_id, theirs.generation)
    return is_same and mine.recovery_id != theirs.recovery_id


def outdated(node_id: int, generation: int, newest: int) -> str:
    """Says what is wrong with a broker that was not there when the metadata log was begun anew, and what to do."""
    return (
        f"node {node_id} is of generation {generation} of the cluster, and `tidelog cluster recover` has begun "
        f"generation {newest}: what node {node_id} knows is not true any more; move its metadata directories and "
        "snapshots/ away, and it joins again with another disk"
    )


def recovered_apart(generation: int, recovery_ids: Mapping[int, str]) -> str:
    """Says that a metadata log was begun anew several times from the same, which node is of which, and what to do."""
    of = ", ".join(
        f"node {node} is of recovery {recovery_id or '(no id)'}" for node, recovery_id in sorted(recovery_ids.items())
    )
    return (
        f"{of}, and both are of generation {generation}: the metadata log was recovered twice, apart, from different "
        "directories, and neither log knows of the other; stop all brokers, choose one recovery, move the metadata "
        "directories and snapshots/ of the brokers of the other away, and run `tidelog cluster recover` again with "
        "--data-dir for all brokers but those of the other that took records since: they join with another disk"
    )


class Incarnations:
    """The newest process of each node, as far as this broker has read the metadata log."""

    def __init__(self) -> None:
        self._newest: dict[int, str] = {}
        self._epochs: dict[int, int] = {}
        self._ended: dict[int, list[str]] = {}

    def accept_only(self, node_id: int, incarnation: str, broker_epoch: int = -1) -> None:
        """Notes the newest registered process of a node; the one that it replaces is over. News of an earlier
        registration is ignored."""
        ended = self._ended.setdefault(node_id, [])
        newest, epoch = self._newest.get(node_id), self._epochs.get(node_id, -1)
        if newest == incarnation:
            self._epochs[node_id] = max(broker_epoch, epoch)
            return
        if incarnation in ended or 0 <= broker_epoch <= epoch:
            return
        if newest is not None:
            ended.append(newest)
            del ended[:-ENDED_MAX]
        self._newest[node_id] = incarnation
        self._epochs[node_id] = broker_epoch

    def hear(self, theirs: Hello) -> str | None:
        """Returns why a hello is refused, in words, if another process of that node is known to have registered later;
        else None. A hello is judged here, and not remembered."""
        # A hello changes nothing here: otherwise one with a large epoch, in a node's name, would put that node out.
        if self.is_stale(theirs):
            return (
                f"this is an earlier life of node {theirs.node_id} (incarnation {theirs.incarnation}, epoch "
                f"{theirs.broker_epoch}); the newest known is {self._newest.get(theirs.node_id)}, epoch "
                f"{self._epochs.get(theirs.node_id)}; is the same node id configured twice?"
            )
        return None

    def is_stale(self, theirs: Hello) -> bool:
        """Returns True if another process of the node is known to have registered later than the one that sent this
        hello."""
        newest = self._newest.get(theirs.node_id)
        if newest is None or newest == theirs.incarnation:
            return False
        if theirs.incarnation in self._ended.get(theirs.node_id, ()):
            return True
        return 0 <= theirs.broker_epoch <= self._epochs[theirs.node_id]
