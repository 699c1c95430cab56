"""Faults of real brokers, one after another: kind, brokers and duration are drawn from a seed.

    faults = Faults(cluster, network)
    for fault in islice(plan(seed, cluster.node_ids, faults.kinds), 20):
        await faults.inflict(fault)

Pausing and killing brokers finds most errors; cutting links finds the others. At most a minority of the brokers has a
fault at a time, so that the others can always go on. A plan has every kind once, in random order, before it repeats
one.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from tidelog.testing.local_cluster import LocalCluster
from tidelog.testing.private_network import PrivateNetwork

PROCESS_FAULTS: Final = ("killed", "paused", "restarted")
NETWORK_FAULTS: Final = ("cut off", "one link cut", "deaf", "mute")
SECONDS: Final = (0.2, 5.0)
"""Shortest and longest duration of a fault: within a broker's session timeout, and well beyond it."""


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault of one kind, on these nodes, for a number of seconds."""

    kind: str
    nodes: tuple[int, ...]
    seconds: float

    def __str__(self) -> str:
        return f"{' and '.join(map(str, self.nodes))} {self.kind} for {self.seconds:.1f} s"


def plan(seed: int, node_ids: Sequence[int], kinds: Sequence[str]) -> Iterator[Fault]:
    """Yields faults without end, always the same for the same seed."""
    rng = random.Random(seed)  # noqa: S311 - dice, not secrets
    minority_max = max(1, (len(node_ids) - 1) // 2)
    while True:
        for kind in rng.sample(kinds, len(kinds)):
            count = 1 if rng.random() < 0.7 else minority_max
            yield Fault(kind, tuple(sorted(rng.sample(node_ids, count))), rng.uniform(*SECONDS))


class Faults:
    """Inflicts faults on a cluster. Faults of links need the `network` in which the cluster runs."""

    def __init__(self, cluster: LocalCluster, network: PrivateNetwork | None = None) -> None:
        self.kinds = PROCESS_FAULTS if network is None else PROCESS_FAULTS + NETWORK_FAULTS
        self.counts: Counter[str] = Counter()
        """Number of faults inflicted so far, by kind."""
        self._cluster, self._network = cluster, network

    async def inflict(self, fault: Fault) -> None:
        """Inflicts a fault, waits for its duration and ends it. Raises `BrokerFailed` if a broker does not come
        back."""
        self.counts[fault.kind] += 1
        match fault.kind:
            case "killed":
                self._cluster.kill(*fault.nodes)
                await asyncio.sleep(fault.seconds)
                await asyncio.to_thread(self._cluster.restart, *fault.nodes)
            case "restarted":
                await asyncio.to_thread(self._cluster.restart, *fault.nodes)
            case "paused":
                await self._pause(fault)
            case _:
                await self._cut(fault)

    async def _pause(self, fault: Fault) -> None:
        for node_id in fault.nodes:
            self._cluster.pause(node_id)
        try:
            await asyncio.sleep(fault.seconds)
        finally:
            for node_id in fault.nodes:
                self._cluster.resume(node_id)

    async def _cut(self, fault: Fault) -> None:
        assert self._network is not None
        try:
            await asyncio.to_thread(self._cut_links, self._network, fault)
            await asyncio.sleep(fault.seconds)
        finally:
            await asyncio.to_thread(self._network.heal)

    def _cut_links(self, network: PrivateNetwork, fault: Fault) -> None:
        for node_id in fault.nodes:
            match fault.kind:
                case "cut off":
                    network.isolate(node_id)
                case "deaf":
                    network.deafen(node_id)
                case "mute":
                    network.mute(node_id)
                case _:
                    neighbour = node_id % len(self._cluster.node_ids) + 1
                    network.split([node_id], [neighbour])
