"""Witnesses of an old data directory: the voters whose own disks know a later start of the broker.

A directory records how often a broker was started on it (`starts`), and a counter that rises while the broker runs
(`stamp`); the metadata log has the newest values. A voter on an old copy asks the others, and takes part when they are
a majority together with it; it begins anew, as an empty broker, if one of them knows larger values. Where voters that
know no larger values are a majority with it, the copy could not be told from the disk as it was. Then one disk is old
and others lag behind, which is more than one fault of three, and the faults here do not go that far.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from tidelog.broker.metadata.remains import Remains, look, restore
from tidelog.model.cluster import BrokerInfo, ClusterImage, Voter
from tidelog.model.ids import NodeId
from tidelog.sim.cluster.world import World
from tidelog.sim.kit import rot
from tidelog.sim.kit.disk import SimDisk
from tidelog.storage.directory_identity import DirectoryIdentity
from tidelog.storage.log_manager import metadata_directories


class Witnesses:
    """Decides from the disks of one run, while all brokers are down, whether a broker that starts on an old copy of its
    directory will recognise it as old."""

    def __init__(self, world: World) -> None:
        self._world = world

    def recognise(self, node: int, backup: Mapping[str, bytes]) -> bool:
        """Returns True if the node's broker, on this copy of its directory, is sure to recognise it as old and to start
        as an empty broker, in whatever order the brokers start."""
        copy = _read(backup)
        own, newest = copy.identity, self._world.truth.image
        if own is None or not own.starts or not _knows_more(newest, node, own):
            return False
        others = [
            _read(self._world.machine(peer).back_up())
            for peer in self._world.swarm.nodes
            if peer != node and self._world.is_whole(peer)
        ]
        aware = [(peer.node_id, peer.storage) for peer in others if _knows_more(_image(peer), node, own)]
        disk = node, own.storage
        return all(is_quorum_aware(voters, disk, aware) for voters in (newest.voters, *map(_voters, (copy, *others))))


def is_quorum_aware(voters: Sequence[Voter], disk: tuple[int, str], aware: Collection[tuple[int, str]]) -> bool:
    """Returns True if each majority of these voters with this disk has a voter that is aware of the later start, or if
    the disk has no vote."""
    disks = [(voter.node_id, voter.incarnation) for voter in voters]
    unaware = [voter_disk for voter_disk in disks if voter_disk != disk and voter_disk not in aware]
    return disk not in disks or 2 * (1 + len(unaware)) <= len(disks)


def _knows_more(image: ClusterImage, node: int, own: DirectoryIdentity) -> bool:
    broker: BrokerInfo | None = image.brokers.get(NodeId(node))
    is_it = broker is not None and broker.storage == own.storage
    return is_it and broker is not None and (broker.starts > own.starts or broker.stamp > own.stamp)


def _image(remains: Remains) -> ClusterImage:
    restored = restore([remains])
    return ClusterImage("") if restored is None else restored.image


def _voters(remains: Remains) -> tuple[Voter, ...]:
    restored = restore([remains])
    return () if restored is None or restored.voters is None else restored.voters.voters


def _read(files: Mapping[str, bytes]) -> Remains:
    """Returns the cluster state that a starting process would find in these files; of several metadata logs, the last
    one counts."""
    disk = SimDisk()
    for path, content in files.items():
        rot.plant(disk.medium, path, content)
    *earlier, _ = metadata_directories(disk)
    for directory in earlier:
        rot.lose_directory(disk.medium, directory)
    return look("", disk)
