"""The hello: the first frame in both directions of a connection between brokers, and the rules for rejecting the other
end.

A restarted broker keeps its node id, while frames of the earlier process may still be in flight, or the earlier process
may only be paused. So each hello contains an *incarnation*, a random id of the process, and a *broker epoch*, the
offset of its registration in the metadata log (Kafka: KIP-903). `Incarnations` remembers the latest registered process
of each node, from the metadata log alone: the claim of a hello never replaces a process, or anybody could fence a node
by claiming a large epoch.

A process that is not in the local metadata is accepted, whatever its epoch, unless it is known to be replaced: it may
be about to register, or the local metadata may lag. The handler of a request sees the caller's `Hello` and decides
about its rights. Until the metadata has the later process, the earlier one is accepted as well; leaders and the
controller check its epoch where it matters.

A hello also contains the feature levels that the broker supports (`model/levels.py`) and the level of its cluster. A
broker that does not support the cluster's level is rejected: it could not read the metadata.
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
"""Maximum replaced processes that are remembered per node."""


class Hello(msgspec.Struct, frozen=True):
    """The identity of a broker, sent as the first frame of a connection."""

    node_id: int
    incarnation: str
    """A random id of the process, drawn when it starts."""
    cluster_id: str = ""
    """The cluster's id; empty before the broker has founded or joined a cluster."""
    broker_epoch: int = -1
    """The offset of the broker's registration in the metadata log; -1 before it is registered."""
    protocol_version: int = PROTOCOL_VERSION
    """The version of frames and hellos; a broker with another one is rejected. The feature levels determine the
    messages."""
    generation: int = 0
    """The number of times that the cluster's metadata log was recovered as a new log (`tidelog cluster recover`);
    meaningful with a `cluster_id`."""
    recovery_id: str = ""
    """The id of the last recovery that started a new metadata log. Two logs that were recovered independently from the
    same log have the same generation and different recovery ids."""
    levels: LevelRange = FIRST_LEVEL
    """The feature levels that the broker supports."""
    cluster_level: int = UNKNOWN_LEVEL
    """The feature level of the cluster, as far as the broker has read the metadata; `UNKNOWN_LEVEL` without a
    cluster."""

    def describe(self) -> str:
        """Returns a description of the hello for log lines."""
        cluster = f"cluster {self.cluster_id}" if self.cluster_id else "no cluster yet"
        return f"node {self.node_id} of {cluster}, incarnation {self.incarnation}, epoch {self.broker_epoch}"


HELLO_ADDITIONS: Final = Additions(
    {}, {Hello: dict.fromkeys(("levels", "cluster_level", "generation", "recovery_id"), 2)}, {}
)
"""The fields of a hello that feature level 2 added. A hello is encoded at the sender's highest level, since the
receiver's is not known yet; a receiver ignores unknown fields."""


def refusal(mine: Hello, theirs: Hello) -> str | None:
    """Returns the reason why two brokers must not talk to each other; None if they may."""
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
    """Returns the reason why the feature levels of two brokers are incompatible; None if they are compatible."""
    level = max(mine.cluster_level, theirs.cluster_level)
    for hello in (theirs, mine):
        if level != UNKNOWN_LEVEL and level not in hello.levels:
            return unfit_for_level(hello.node_id, hello.levels, level)
    if mine.levels.common(theirs.levels) is None:
        return without_common_level((mine.node_id, mine.levels), (theirs.node_id, theirs.levels))
    return None


def is_left_behind(mine: Hello, theirs: Hello) -> bool:
    """Returns True if the broker of `mine` does not support its cluster's feature level, as stated by `theirs`."""
    is_same = theirs.cluster_id != "" and mine.cluster_id in ("", theirs.cluster_id)
    return is_same and theirs.cluster_level != UNKNOWN_LEVEL and theirs.cluster_level not in mine.levels


def are_apart(mine: Hello, theirs: Hello) -> bool:
    """Returns True if both are of the same cluster and generation, but their metadata logs were recovered
    independently."""
    is_same = mine.cluster_id != "" and (mine.cluster_id, mine.generation) == (theirs.cluster_id, theirs.generation)
    return is_same and mine.recovery_id != theirs.recovery_id


def outdated(node_id: int, generation: int, newest: int) -> str:
    """Returns the error text for a broker whose data predates the recovery of the metadata log, with the steps
    to take."""
    return (
        f"node {node_id} is of generation {generation} of the cluster, and `tidelog cluster recover` has begun "
        f"generation {newest}: what node {node_id} knows is not true any more; move its metadata directories and "
        "snapshots/ away, and it joins again with another disk"
    )


def recovered_apart(generation: int, recovery_ids: Mapping[int, str]) -> str:
    """Returns the error text for a metadata log that was recovered several times independently, with the recovery of
    each node and the steps to take."""
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
    """The latest registered process of each node, as far as this broker has read the metadata log."""

    def __init__(self) -> None:
        self._newest: dict[int, str] = {}
        self._epochs: dict[int, int] = {}
        self._ended: dict[int, list[str]] = {}

    def accept_only(self, node_id: int, incarnation: str, broker_epoch: int = -1) -> None:
        """Stores the latest registered process of a node, and marks the process that it replaces as ended. Ignores an
        earlier registration."""
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
        """Returns the reason for rejecting a hello if another process of its node registered later; else None. Stores
        nothing."""
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
