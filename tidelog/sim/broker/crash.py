"""Simulation of one broker as it ships, its clients, and a machine that crashes.

A seed draws topics and their settings, a handful of producers of every kind, readers and administrators, and the faults
of the machine (`tidelog.sim.broker.nemesis`). They all run on one virtual clock until the last fault is over; then the
machine comes up on a healthy disk, the clients finish, the power is cut once more, and every promise is checked
(`tidelog.checker`).
"""

from __future__ import annotations

import asyncio
import random
from typing import Protocol

from structlog.testing import capture_logs

from tidelog.checker.operations import View
from tidelog.config.schema import BrokerConfig
from tidelog.model.ids import TopicPartition
from tidelog.sim.broker.administrators import Administrator, Churn, create_topic
from tidelog.sim.broker.nemesis import Nemesis
from tidelog.sim.broker.producers import Producer
from tidelog.sim.broker.readers import Reader, read_all
from tidelog.sim.broker.sometimes import FINDINGS
from tidelog.sim.kit.history import History, Kind
from tidelog.sim.kit.loop import SimLoop, run
from tidelog.sim.kit.machine import Machine
from tidelog.sim.kit.outcome import Outcome, count_logged
from tidelog.sim.kit.process import owned_task
from tidelog.sim.kit.seeds import stream

FINISH_S_MAX = 120.0
"""Seconds that clients may need on a healthy machine to learn the outcome of every batch that they sent."""
ANYWHERE = 1 << 62


class Client(Protocol):
    """A client that runs beside the machine."""

    def stop(self) -> None: ...

    async def run(self) -> None: ...


def run_seed(seed: int) -> Outcome:
    """Runs one seed to its end. A fault of the simulation, or an error that no code handled, is a violation too."""
    scenario = Scenario(seed)
    with capture_logs() as logs:
        try:
            run(scenario.run, seed)
        except Exception as error:  # noqa: BLE001 - the batch goes on, the seed has failed
            scenario.history.violate(f"{type(error).__name__}: {error}")
    count_logged(scenario.history.counters, logs, FINDINGS)
    return scenario.outcome()


class Scenario:
    """The run of one seed."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.history = History()
        self._rng = stream(seed, "scenario")
        self._machine: Machine | None = None
        self._stopping = asyncio.Event()

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SimLoop)
        loop.set_task_factory(owned_task)
        config = BrokerConfig.model_validate({"log_retention_check_interval_ms": self._rng.choice((500, 2_000))})
        machine = self._machine = Machine(self.seed, config)
        machine.disk.medium.exposes_old_blocks = self._rng.random() < 0.1
        nemesis = Nemesis(machine, self.history, stream(self.seed, "nemesis"))
        topics = self._draw_topics()
        work = asyncio.create_task(self._work(machine, topics))
        await nemesis.run()
        await nemesis.boot()
        await asyncio.sleep(0.5)
        self._stopping.set()
        try:
            async with asyncio.timeout(FINISH_S_MAX):
                await work
        except TimeoutError:
            self.history.violate(f"clients don't get through to a healthy broker within {FINISH_S_MAX:.0f} s")
        self.history.check(await self._views_after_the_end(nemesis))
        nemesis.check_stranger()

    async def _work(self, machine: Machine, topics: dict[str, tuple[int, dict[str, str]]]) -> None:
        for name, (partitions, configs) in topics.items():
            await create_topic(machine, name, partitions, configs)
        clients = self._clients(machine)
        async with asyncio.TaskGroup() as group:
            for client in clients:
                group.create_task(client.run())
            await self._stopping.wait()
            for client in clients:
                client.stop()

    def _draw_topics(self) -> dict[str, tuple[int, dict[str, str]]]:
        rng, topics = self._rng, dict[str, tuple[int, dict[str, str]]]()
        for name in ("a", "b")[: rng.randint(1, 2)]:
            partitions = rng.randint(1, 2)
            configs = {"segment.bytes": str(rng.choice((1_024, 1_024, 3_000, 20_000)))}
            watched = [TopicPartition(name, number) for number in range(partitions)]
            self.history.watched.update(watched)
            if rng.random() < 0.15:
                configs["ack.durability"] = "replicated"
                self.history.volatile.update(watched)
            if rng.random() < 0.2:
                configs["message.timestamp.type"] = "LogAppendTime"
            if rng.random() < 0.2:
                configs["retention.bytes"] = str(rng.choice((0, 5_000)))
                for where in watched:
                    self.history.ask_start(where, ANYWHERE)
            topics[name] = (partitions, configs)
        return topics

    def _clients(self, machine: Machine) -> list[Client]:
        partitions = sorted(self.history.watched)
        clients: list[Client] = [
            Producer(f"p{n}", kind, acks, self._rng.choice(partitions), machine, self.history, self._stream(f"p{n}"))
            for n, (kind, acks) in enumerate(_draw_kinds(self._rng))
        ]
        medium = machine.disk.medium
        clients += [Reader(at, machine, self.history, self._stream(f"reader {at}"), medium) for at in partitions]
        clients.append(Administrator(partitions, machine, self.history, self._stream("administrator")))
        clients.append(Churn(machine, self.history, self._stream("churn")))
        return clients

    def _stream(self, purpose: str) -> random.Random:
        return stream(self.seed, purpose)

    async def _views_after_the_end(self, nemesis: Nemesis) -> list[View]:
        """Returns the content of the logs after one more power cut; checks that a clean stop does not change it."""
        machine = self._machine
        assert machine is not None
        self.history.lose()
        await machine.cut_power()
        await nemesis.boot()
        views = await self._read_all(machine)
        await machine.stop()
        await nemesis.boot()
        for before, after in zip(views, await self._read_all(machine), strict=True):
            if before != after:
                self.history.violate(f"{before.key} changed over a clean stop")
        await machine.stop()
        return views

    async def _read_all(self, machine: Machine) -> list[View]:
        return [await read_all(machine, where, self.history) for where in sorted(self.history.watched)]

    def outcome(self) -> Outcome:
        history = self.history
        disk_trace = ""
        if self._machine is not None:
            medium = self._machine.disk.medium
            disk_trace = medium.trace()
            history.counters.update({f"disk: {kind}": count for kind, count in medium.statistics.faults.items()})
        trace = f"{disk_trace}{history.hash.hexdigest()}"
        return Outcome(self.seed, tuple(history.violations), trace, history.counters, history.records_acknowledged)


def _draw_kinds(rng: random.Random) -> list[tuple[Kind, int]]:
    """Draws the kinds and acks of two to five producers; the first is idempotent with acks=all."""
    kinds: list[tuple[Kind, int]] = [(Kind.IDEMPOTENT, -1)]
    for _ in range(rng.randint(1, 4)):
        kind = rng.choice((Kind.IDEMPOTENT, Kind.IDEMPOTENT, Kind.PLAIN, Kind.KEYED))
        kinds.append((kind, rng.choice((-1, -1, 1, 0) if kind is Kind.PLAIN else (-1, -1, 1))))
    return kinds
