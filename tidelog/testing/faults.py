"""Faults put on real brokers, one after another: what is done to whom and for how long, drawn from a seed.

    faults = Faults(cluster, network)
    for fault in islice(plan(seed, cluster.node_ids, faults.kinds), 20):
        await faults.inflict(fault)

Pausing and killing in turn finds most of what there is to find; links that are cut find the rest. At most a minority is
broken at a time, so that the others can always go on. A plan has every kind once before any comes again, in an order of
its own.
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
"""The shortest and the longest fault: within a broker's session, and well beyond it."""


@dataclass(frozen=True, slots=True)
class Fault:
    """`nodes` are broken, in one way, for so many `seconds`."""

    kind: str
    nodes: tuple[int, ...]
    seconds: float

    def __str__(self) -> str:
        return f"{' and '.join(map(str, self.nodes))} {self.kind} for {self.seconds:.1f} s"


def plan(seed: int, node_ids: Sequence[int], kinds: Sequence[str]) -> Iterator[Fault]:
    """Faults without end: the same for the same seed."""
    rng = random.Random(seed)  # noqa: S311 - dice, not secrets
    minority_max = max(1, (len(node_ids) - 1) // 2)
    while True:
        for kind in rng.sample(kinds, len(kinds)):
            count = 1 if rng.random() < 0.7 else minority_max
            yield Fault(kind, tuple(sorted(rng.sample(node_ids, count))), rng.uniform(*SECONDS))


class Faults:
    """The faults that can be inflicted on a cluster; on its links only with the `network` that it is in."""

    def __init__(self, cluster: LocalCluster, network: PrivateNetwork | None = None) -> None:
        self.kinds = PROCESS_FAULTS if network is None else PROCESS_FAULTS + NETWORK_FAULTS
        self.counts: Counter[str] = Counter()
        """How many there were, by kind."""
        self._cluster, self._network = cluster, network

    async def inflict(self, fault: Fault) -> None:
        """Breaks, waits, and mends. Raises `BrokerFailed` if a broker does not come back."""
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
