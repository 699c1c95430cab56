"""One round: a cluster of three broker processes, a partition for each case, from the first record to the verdicts.

All brokers end in the same way, so that is the round's; what is damaged is each partition's own.
"""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import signal
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from tests.e2e.power.disks import Disk, mounted
from tests.e2e.sweep.cases import NODES, Case, Series
from tests.e2e.sweep.copies import Copy, Struck, strike
from tests.e2e.sweep.reading import Judge, Result
from tidelog.admin import AdminClient
from tidelog.producer import Producer
from tidelog.sim.sweep.cases import ENTRIES, Damage, Stop, Variant
from tidelog.testing import BrokerFailed, LocalCluster

TOPIC: Final = "swept"
SETTINGS: Final = {
    "broker.heartbeat.interval.ms": "1000",
    "broker.session.timeout.ms": "20000",
    "controller.quorum.heartbeat.ms": "300",
    "controller.quorum.election.timeout.ms": "4000",
    "controller.lease.ms": "1500",
    "log.scrub.period.ms": "3600000",
}
"""Nobody is fenced because the machine is slow. It is readers who find damage, and not the scrubber."""
IDLE_S: Final = 2.0
"""A log that is idle for half a second notes that all of it is durable."""
STAGGER_S: Final = 0.6
GAP_S_MAX: Final = 2.0
READY_S_MAX: Final = 90.0
LATE_S: Final = 15.0
OVER_S: Final = 60.0
PASSES_MIN: Final = 4
THREADS: Final = 24
PAUSE_S: Final = 0.2
FILL: Final = 600
"""So many random bytes an entry has, twice as many digits: each batch has whole sectors for itself."""


class Written(NamedTuple):
    """The acknowledged entries of a partition: the offset and value of each entry, and when the last one was."""

    offsets: list[int]
    values: list[str]
    acknowledged_s: float


class Round:
    """The round of a seed. `directory` is made, and has the brokers' data, and a copy of it as it was damaged."""

    def __init__(
        self,
        cases: list[Case],
        seed: int,
        directory: Path,
        *,
        protocol: str,
        stop: Stop,
        series: Series,
        variant: Variant,
    ) -> None:
        self.cases = cases
        self.seed = seed
        self.stop = stop
        self.directory = directory
        self._protocol = protocol
        self._series = series
        self._variant = variant
        self._rng = random.Random(f"round {seed}")
        self._victim = self._rng.choice(NODES)
        self._disks: dict[int, Disk] = {}

    def play(self, told: Callable[[Result], None]) -> None:
        """Calls `told` with each result. Raises `BrokerFailed` if a broker does not start or stop as it should, and
        `DisksUnavailable` where the round takes disks of its own, and they can't be had."""
        with mounted(self.directory, NODES if self.takes_disks else (), self.seed) as self._disks:
            self._play(told)

    @property
    def takes_disks(self) -> bool:
        """True if a power cut or an unreadable sector is to be played."""
        return self.stop is Stop.POWER or any(case.damage is Damage.EIO for case in self.cases)

    def _play(self, told: Callable[[Result], None]) -> None:
        settings = {**SETTINGS, "commit.protocol": self._protocol}
        cluster = LocalCluster(len(NODES), settings=settings, data_dir=self.directory, start_timeout_s=READY_S_MAX)
        with cluster:
            written, ended_s = asyncio.run(self._write(cluster))
            struck = self._strike(cluster, written)
            begun_s = self._start(cluster)
            self._judge(cluster, written, struck, ended_s, begun_s, told)
            failed = [node for node in NODES if "Traceback" in cluster.broker(node).output]
            cluster.kill(*NODES)
            if failed:
                raise BrokerFailed(f"brokers {failed} printed a traceback: {self.directory}")

    # -- writing -----------------------------------------------------------------------------------------------------

    async def _write(self, cluster: LocalCluster) -> tuple[dict[int, Written], float]:
        """Writes all entries, a batch each, and ends the brokers. Returns what was acknowledged, and when that was."""
        found = {case.partition: Written([], [], 0.0) for case in self.cases}
        async with AdminClient(cluster.bootstrap) as admin:
            turns = {
                partition: [NODES[(partition + turn) % len(NODES)] for turn in range(len(NODES))] for partition in found
            }
            await admin.create_topic(TOPIC, replicas_assignments=turns)
        async with Producer(cluster.bootstrap, linger_ms=0) as producer:
            for entry in range(ENTRIES):
                if self._variant is Variant.BEHIND and entry == ENTRIES // 2:
                    await asyncio.to_thread(cluster.stop, self._victim)
                is_last = entry == ENTRIES - 1
                if is_last and self.stop is not Stop.CLEAN:
                    await asyncio.sleep(IDLE_S)
                stagger_s = STAGGER_S if is_last and self._series is Series.LAST else 0.0
                await asyncio.gather(*(self._send(producer, one, found, entry, stagger_s) for one in found))
            if self.stop in (Stop.ACKNOWLEDGED, Stop.POWER):
                ended_s = self._kill(cluster)
                for disk in self._disks.values() if self.stop is Stop.POWER else ():
                    disk.cut()
                return found, ended_s
        if self.stop is Stop.IDLE:
            await asyncio.sleep(IDLE_S)
            return found, self._kill(cluster)
        await asyncio.to_thread(cluster.stop, *NODES)
        return found, time.monotonic()

    async def _send(
        self, producer: Producer, partition: int, found: dict[int, Written], entry: int, stagger_s: float
    ) -> None:
        await asyncio.sleep(self._rng.uniform(0.0, stagger_s))
        value = f"{self.seed}.{partition}.{entry}.{self._rng.randbytes(FILL).hex()}"
        receipt = await producer.send_and_wait(TOPIC, f'"{value}"'.encode(), partition=partition)
        assert receipt.offset is not None
        before = found[partition]
        found[partition] = Written([*before.offsets, receipt.offset], [*before.values, value], time.monotonic())

    def _kill(self, cluster: LocalCluster) -> float:
        """Kills all at once, and returns when that was."""
        for node in NODES:
            if cluster.broker(node).is_running:
                os.kill(cluster.broker(node).pid, signal.SIGKILL)
        ended_s = time.monotonic()
        cluster.kill(*NODES)
        return ended_s

    # -- damage ------------------------------------------------------------------------------------------------------

    def _strike(self, cluster: LocalCluster, written: dict[int, Written]) -> dict[int, Struck]:
        """Damages the disks. Returns what was done to each partition."""
        data_dirs = {node: cluster.broker(node).data_dir for node in NODES}
        if self._variant is Variant.DISK:
            remove_all(data_dirs.pop(self._victim))
        struck = {
            case.partition: strike(case, data_dirs, written[case.partition].values, self._rng, self._spoil)
            for case in self.cases
        }
        for node, data_dir in data_dirs.items():
            kept = self.directory / "damaged" / f"broker-{node}"
            if node in self._disks:  # which knows what nobody can read
                self._disks[node].dump(kept)
            else:
                shutil.copytree(data_dir, kept)
        return struck

    def _spoil(self, copy: Copy, position: int) -> None:
        path = copy.path.relative_to(self.directory / f"broker-{copy.node}" / "data")
        self._disks[copy.node].spoil(str(path), position, position + 1)

    def _start(self, cluster: LocalCluster) -> float:
        """Starts all in a drawn order, with gaps. Returns when the last of them began."""
        for node in self._rng.sample(NODES, len(NODES)):
            time.sleep(self._rng.uniform(0.0, GAP_S_MAX))  # so that some are alone for a while: no outcome waits for it
            begun_s = time.monotonic()
            cluster.broker(node).begin()
        for node in NODES:
            cluster.broker(node).wait_until_ready(time.monotonic() + READY_S_MAX)
        return begun_s

    # -- verdicts ----------------------------------------------------------------------------------------------------

    def _judge(
        self,
        cluster: LocalCluster,
        written: dict[int, Written],
        struck: dict[int, Struck],
        ended_s: float,
        begun_s: float,
        told: Callable[[Result], None],
    ) -> None:
        """Asks all partitions in turn until each has told all, or time is up."""
        urls = {node: f"{cluster.broker(node).url}/topics/{TOPIC}" for node in NODES}
        left = []
        for case in self.cases:
            at, done = written[case.partition], struck[case.partition]
            expected = dict(zip(at.offsets, at.values, strict=True))
            good = {at.offsets[entry] for entry in done.good}
            lacked = {node: {at.offsets[entry] for entry in entries} for node, entries in done.lacked.items()}
            left.append(Judge(case, urls, expected, good, lacked))
        quiet = Quiet()
        with ThreadPoolExecutor(THREADS) as pool:
            while left:
                list(pool.map(partial(Judge.go_on, is_late=quiet.is_late), left))
                quiet.note(sum(judge.left for judge in left))
                for judge in [judge for judge in left if not judge.left or quiet.is_over]:
                    age_s = ended_s - written[judge.case.partition].acknowledged_s
                    told(judge.result(age_s, begun_s))
                    left.remove(judge)
                time.sleep(PAUSE_S)  # between two rounds of questions, which repeat until a deadline


def remove_all(directory: Path) -> None:
    """Empties a directory, which may be where a disk is mounted."""
    for path in directory.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()


class Quiet:
    """How long nothing new was told, of any partition: however slow a machine is, whoever gets on is waited for."""

    def __init__(self) -> None:
        self._left = -1
        self._since_s = time.monotonic()
        self._passes = 0

    def note(self, left: int) -> None:
        """All were asked once more, and so much is still to be told."""
        self._passes += 1
        if left != self._left:
            self._left, self._since_s, self._passes = left, time.monotonic(), 0

    def _is_quiet(self, seconds: float) -> bool:
        return self._passes >= PASSES_MIN and time.monotonic() - self._since_s > seconds

    @property
    def is_late(self) -> bool:
        """True when records are to be written to partitions of which not all could be read."""
        return self._is_quiet(LATE_S)

    @property
    def is_over(self) -> bool:
        """True when nobody is waited for any more."""
        return self._is_quiet(OVER_S)
