"""The machines of one run, the network between them, and a record of which disks have lost data."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

from tidelog.config.schema import BrokerConfig
from tidelog.model.cluster import NO_VOTER, Voter
from tidelog.model.ids import NodeId
from tidelog.sim.cluster.keeper import Keeper
from tidelog.sim.cluster.scenario import Swarm
from tidelog.sim.cluster.truth import Truth
from tidelog.sim.kit.machine import Machine
from tidelog.sim.kit.medium import Medium
from tidelog.sim.kit.network import SimNetwork
from tidelog.sim.kit.network_link import Link
from tidelog.sim.kit.seeds import stream
from tidelog.sim.kit.tasks import cancel_all, raise_failures
from tidelog.transport.peer import ClusterSecret

T = TypeVar("T")
PEER_PORT = 9192
SECRET = ClusterSecret(b"known to all brokers of the run")


def address_of(node: int) -> str:
    return f"10.0.0.{node}"


class World:
    """The machines and the network of one run; must be made on the running loop. `keepers` has the service manager of
    each broker, by node."""

    def __init__(self, seed: int, swarm: Swarm, truth: Truth) -> None:
        self.swarm = swarm
        self.truth = truth
        self.network = SimNetwork(stream(seed, "network"))
        self.keepers = {node: self._make(seed, node) for node in swarm.nodes}
        self.destroyed: set[str] = set()
        """Disks, by incarnation, that have lost data they had promised to keep."""
        self.may_lose_data: Callable[[int], bool] = lambda node: True
        """Function that returns True if the data on a node's disk is elsewhere too."""
        self.may_write = asyncio.Event()
        """Event that is cleared while producers must not send."""
        self.may_write.set()
        self._silences = 0
        self._tasks: list[asyncio.Task[None]] = []
        for link in self.links():
            link.delay_s_min, link.delay_s_mean = swarm.delay_min_s, swarm.delay_mean_s

    def _make(self, seed: int, node: int) -> Keeper:
        secret = SECRET if self.swarm.has_secret else None
        config = _config(self.swarm, node)
        machine = Machine(f"{seed}/{node}", config, name=address_of(node), network=self.network, secret=secret)
        if node not in self.swarm.founders:
            machine.contacts = tuple((address_of(founder), PEER_PORT) for founder in self.swarm.founders)
        machine.disk_delay_s = self.swarm.disk_delay_s
        drift = self.swarm.clock_drift
        machine.time.rate = 1 + stream(seed, f"clock {node}").uniform(-drift, drift)
        return Keeper(node, machine, self.swarm.restart_s, self.truth.counters)

    @property
    def true_time(self) -> float:
        return self.truth.clock()

    def machine(self, node: int) -> Machine:
        return self.keepers[node].machine

    def medium(self, node: int) -> Medium:
        """Returns the disk of a node, which outlasts restarts until it is replaced."""
        return self.machine(node).disk.medium

    def draw(self, places: Sequence[T], rng: random.Random) -> T | None:
        """Draws one of the places that a fault may hit; counts the fault as withheld and returns None if there is
        none."""
        if not places:
            self.truth.saw("fault withheld")
            return None
        return rng.choice(places)

    def start(self, nodes: range) -> None:
        """Switches machines on, and keeps them running from now on."""
        self._tasks += [asyncio.ensure_future(self.keepers[node].run()) for node in nodes]

    async def lose(self, nodes: Iterable[int]) -> None:
        """Takes machines away for the rest of the run, all at once."""
        await asyncio.gather(*(self.keepers[node].lose() for node in nodes))

    async def close(self) -> None:
        """Switches all machines off."""
        await cancel_all(self._tasks)
        for keeper in self.keepers.values():
            if keeper.machine.has_life:
                await keeper.machine.cut_power()

    def point_to_cluster(self, node: int) -> None:
        """Gives a broker the addresses of the others, as an operator must: the only founder, on a new disk, would
        otherwise bootstrap another cluster by its configuration."""
        if self.swarm.voters == 1:
            others = [peer for peer in self.swarm.nodes if peer != node]
            self.machine(node).contacts = tuple((address_of(peer), PEER_PORT) for peer in others)

    @contextmanager
    def silence(self, *, is_kept: bool = True) -> Iterator[None]:
        """Stops all producers while the context is open, retries included; does nothing unless `is_kept`."""
        self._silences += is_kept
        self._hush()
        try:
            yield
        finally:
            self._silences -= is_kept
            self._hush()

    def _hush(self) -> None:
        if self._silences:
            self.may_write.clear()
        else:
            self.may_write.set()

    def check_keepers(self) -> None:
        """Raises the error that a service manager task failed with, if any."""
        raise_failures(self._tasks)

    # -- the network -------------------------------------------------------------------------------------------------

    def link(self, source: int, target: int) -> Link:
        return self.network.link(address_of(source), address_of(target))

    def links(self) -> Iterator[Link]:
        """Yields the links between all pairs of brokers, in each direction."""
        for source in self.swarm.nodes:
            for target in self.swarm.nodes:
                if source != target:
                    yield self.link(source, target)

    def ways(self, node: int, others: Iterable[int] | None = None) -> list[Link]:
        """Returns the links between a node and others, by default all, in both directions."""
        others = [peer for peer in (self.swarm.nodes if others is None else others) if peer != node]
        return [self.link(*way) for peer in others for way in ((node, peer), (peer, node))]

    async def cut(self, links: Sequence[Link], lasts_s: float) -> None:
        """Cuts these links for a while."""
        for link in links:
            link.cut()
        await asyncio.sleep(lasts_s)
        for link in links:
            link.heal()

    # -- what there is -----------------------------------------------------------------------------------------------

    def running(self) -> Iterator[tuple[int, Machine]]:
        """Yields the nodes and machines whose process runs."""
        for node, keeper in self.keepers.items():
            if keeper.machine.is_running:
                yield node, keeper.machine

    @property
    def voters(self) -> tuple[Voter, ...]:
        """Newest voter set that any broker has applied."""
        return self.truth.image.voters

    def may_destroy(self, node: int) -> bool:
        """Returns True if this node's disk may lose what it has promised, because a majority still remembers
        everything.

        A test that damages the last good copies cannot demand that they be there.
        """
        if not self.voters or not self.may_lose_data(node):
            return False
        disks = [(voter.node_id, voter.incarnation) for voter in self.voters]
        broker = self.truth.image.brokers.get(NodeId(node))
        if broker is not None and broker.voter_id != NO_VOTER and (node, broker.storage) not in disks:
            disks.append((node, broker.storage))  # it may be about to vote, or already do
        lost = [disk for disk in disks if disk[0] == node or disk[1] in self.destroyed]
        return len(lost) <= (len(disks) - 1) // 2

    def destroy(self, node: int) -> None:
        """Notes that every disk that this node ever registered or voted with has lost data."""
        self.destroyed.update(voter.incarnation for voter in self.voters if voter.node_id == node)
        self.destroyed.update(self.truth.storages.get(node, ()))

    def is_whole(self, node: int) -> bool:
        """Returns True if no loss was noted for the disk that this node registered last, or votes with."""
        voting = [voter.incarnation for voter in self.voters if voter.node_id == node]
        return self.destroyed.isdisjoint(self.truth.storages.get(node, [])[-1:] or voting)


def _config(swarm: Swarm, node: int) -> BrokerConfig:
    founders = [f"{founder}@{address_of(founder)}:{PEER_PORT}" for founder in swarm.founders]
    settings: dict[str, object] = {
        **swarm.settings,
        "node.id": node,
        "peer.listener": f"{address_of(node)}:{PEER_PORT}",
        "http.listener": f"{address_of(node)}:8082",
        "broker.rack": f"rack{node % 3}",
    }
    if node in swarm.first_level:
        settings |= {"feature.level.max": 1, "paxos.peer.lanes": 1}
    if node in swarm.founders:
        settings["cluster.voters"] = founders
    return BrokerConfig.model_validate(settings)
