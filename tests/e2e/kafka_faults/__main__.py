"""Has Kafka's clients write and read while leaders are killed, paused and cut off, and says what they have noticed.

    python -m tests.e2e.kafka_faults --minutes 5
    python -m tests.e2e.kafka_faults --java 'jars/*'        # Java's producer and members, too: kafka-clients' jars
    python -m tests.e2e.kafka_faults --request-ms 30000     # clients with the patience that they have by default

Three brokers have topics of each commit protocol, to each of which an idempotent producer writes with acks=all. A
classic group and one whose coordinator assigns (KIP-848) read them all. Brokers can be cut off as root only.

Exit status 1 if an acknowledged record is lost, is there twice or out of order, if a group has not read it, if a
partition had two owners in one generation, or if anything has not gone on a minute after a fault.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Final

import uvloop
from rich.console import Console
from rich.table import Table

from tests.e2e.kafka_faults.books import At, Book, Group
from tests.e2e.kafka_faults.breaking import NEVER, Blow, Breaker
from tests.e2e.kafka_faults.clients import Member, Writer, number_of
from tests.e2e.kafka_faults.java_clients import JavaClients
from tidelog.admin import AdminClient
from tidelog.consumer import Consumer, TopicPartition
from tidelog.model.cluster import PROTOCOLS
from tidelog.testing import LocalCluster, NetworkUnavailable, PrivateNetwork

BROKERS: Final = (1, 2, 3)
GROUP_PROTOCOLS: Final = ("classic", "consumer")
MEMBERS: Final = 2
"""Each group has so many members of librdkafka, and one of Java where there are jars."""
EVERY_S: Final = 0.02
READ_S_MAX: Final = 60.0
SHOWN_MAX: Final = 20
REQUEST_MS_MIN: Final = 1_000


class Run:
    """The clients and their books."""

    def __init__(self, options: argparse.Namespace) -> None:
        writers = ["librdkafka", *(["java"] if options.java else [])]
        self.topics = [f"{writer}-{protocol}" for writer in writers for protocol in PROTOCOLS]
        self.books = [Book(At(topic, number)) for topic in self.topics for number in range(len(BROKERS))]
        self.groups = {protocol: Group(protocol) for protocol in GROUP_PROTOCOLS}
        self.blows: list[Blow] = []
        self.wrong: list[str] = []
        self._options = options

    async def play(self, cluster: LocalCluster, network: PrivateNetwork | None, said: Console) -> None:
        """Plays it, and looks for what is wrong. Raises `BrokerFailed`, `TimeoutError`."""
        async with AdminClient(cluster.bootstrap) as admin:
            for topic in self.topics:
                replicas = {at: (*BROKERS[at:], *BROKERS[:at]) for at in range(len(BROKERS))}
                protocol = topic.rpartition("-")[2]
                await admin.create_topic(topic, replicas_assignments=replicas, configs={"commit.protocol": protocol})
            with ExitStack() as stack:
                await self._break(stack, cluster, network, admin, said)
        for book in self.books:
            self.wrong += book.faults(await self._read(cluster, book))
        for group in self.groups.values():
            self.wrong += group.faults(self.books)

    async def _break(
        self, stack: ExitStack, cluster: LocalCluster, network: PrivateNetwork | None, admin: AdminClient, said: Console
    ) -> None:
        """The members leave when everything has been read, or it takes too long."""
        options, bootstrap = self._options, cluster.kafka_bootstrap
        java = None
        if options.java:
            books = [book for book in self.books if book.at.topic.startswith("java")]
            arguments = (bootstrap, books, self.groups, self.topics, EVERY_S, options.request_ms)
            java = stack.enter_context(JavaClients(options.java, *arguments))
        for protocol, group in self.groups.items():
            for number in range(MEMBERS):
                stack.enter_context(
                    Member(bootstrap, group, protocol, f"librdkafka-{number}", self.topics, options.request_ms)
                )
        books = [book for book in self.books if book.at.topic.startswith("librdkafka")]
        with Writer(bootstrap, books, EVERY_S, options.request_ms):
            breaker = Breaker(cluster, network, self.books, [*self.groups.values()])
            self.blows = breaker.blows
            await breaker.run(
                admin, options.minutes * 60, options.seed, lambda blow: said.print(line(blow), soft_wrap=True)
            )
        if java is not None:
            await asyncio.to_thread(java.stop_writing)
            self.wrong += java.failures
        end_s = time.monotonic() + READ_S_MAX
        while time.monotonic() < end_s and any(group.unread(self.books) for group in self.groups.values()):
            await asyncio.sleep(0.2)

    async def _read(self, cluster: LocalCluster, book: Book) -> list[tuple[int, int]]:
        """Returns the offset and number of each record of a partition, as tidelog's own consumer reads it."""
        found: list[tuple[int, int]] = []
        partition = TopicPartition(book.at.topic, book.at.partition)
        async with Consumer(bootstrap_servers=cluster.bootstrap, auto_offset_reset="earliest") as consumer:
            consumer.assign([partition])
            end = (await consumer.end_offsets([partition]))[partition]
            read_s = time.monotonic()
            while await consumer.position(partition) < end and time.monotonic() < read_s + READ_S_MAX:
                for records in (await consumer.getmany(timeout_ms=1_000)).values():
                    read_s = time.monotonic()
                    found += [(record.offset, number_of(record.value or b"")) for record in records]
        return found

    @property
    def figures(self) -> dict[str, float]:
        """Returns what there is to tell, by its name; times in milliseconds."""
        found: dict[str, float] = {
            "records acknowledged": sum(len(book.offsets) for book in self.books),
            "records given up by their writer": sum(len(book.failed) for book in self.books),
            **Counter(f"leaders {blow.fault.kind}" for blow in self.blows),
        }
        for topic in self.topics:
            for kind in sorted({blow.fault.kind for blow in self.blows}):
                gaps = [blow.gaps_s for blow in self.blows if blow.fault.kind == kind]
                found |= summary(
                    f"{topic}, leader {kind}, without an acknowledgement",
                    [seconds for one in gaps for at, seconds in one.items() if at.topic == topic],
                )
        for name in self.blows[0].settled_s if self.blows else ():
            found |= summary(f"until {name} had gone on", [blow.settled_s[name] for blow in self.blows])
        for group in self.groups.values():
            found[f"generations of {group.name}"] = group.generation_max
        return found

    @property
    def is_good(self) -> bool:
        """True unless something is wrong."""
        return not self.wrong and all(NEVER not in blow.settled_s.values() for blow in self.blows)


def summary(name: str, seconds: list[float]) -> dict[str, float]:
    """Returns the median, the 99th percentile and the longest of some times, in milliseconds."""
    if not seconds:
        return {}
    ordered = sorted(round(1_000 * one, 1) if one != NEVER else NEVER for one in seconds)
    p99 = ordered[min(len(ordered) - 1, len(ordered) * 99 // 100)]
    return {f"{name}, p50 ms": statistics.median_high(ordered), f"{name}, p99": p99, f"{name}, longest": ordered[-1]}


def line(blow: Blow) -> str:
    """Returns what there is to say about one fault."""
    gaps = ", ".join(f"{at.topic} {seconds:.2f}" for at, seconds in blow.gaps_s.items())
    settled = ", ".join(f"{name} {seconds:.2f}" for name, seconds in blow.settled_s.items())
    return f"{blow.fault}: without an acknowledgement {gaps} s; gone on after {settled} s"


def report(run: Run, options: argparse.Namespace) -> None:
    """Prints the table, or its figures as JSON, and what is wrong."""
    if options.json:
        wanted = {name: value for name, value in vars(options).items() if name != "java"}
        Console().print_json(json.dumps({"options": wanted, "figures": run.figures, "wrong": run.wrong[:SHOWN_MAX]}))
        return
    table = Table("Kafka's clients, and brokers that are broken", "")
    for name, value in {**run.figures, "faults found": len(run.wrong)}.items():
        table.add_row(name, f"{value:,}")
    Console().print(table)
    for wrong in run.wrong[:SHOWN_MAX]:
        Console(stderr=True).print(wrong, soft_wrap=True)


def parse(words: Sequence[str] | None = None) -> argparse.Namespace:
    """Reads the command's words."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.e2e.kafka_faults", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--minutes", type=float, default=5, metavar="N", help="of faults; default: %(default)s")
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="of the faults; default: %(default)s")
    parser.add_argument("--java", metavar="CLASSPATH", help="jars of kafka-clients, and what it needs")
    parser.add_argument(
        "--request-ms",
        type=int,
        default=1_000,
        metavar="N",
        help="how long clients wait for an answer, looking for leaders three times; default: %(default)s",
    )
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    options = parser.parse_args(words)
    if options.request_ms < REQUEST_MS_MIN:
        parser.error(f"--request-ms is {options.request_ms}, and librdkafka takes no less than {REQUEST_MS_MIN}")
    return options


def play(options: argparse.Namespace) -> Run:
    """Plays a run. Raises `BrokerFailed`, `TimeoutError`."""
    said, run = Console(stderr=True), Run(options)
    with ExitStack() as stack:
        network = None
        try:
            network = stack.enter_context(PrivateNetwork(len(BROKERS)))
        except NetworkUnavailable as error:
            said.print(f"nobody is cut off, as there can be no network of their own here: {error}")
        cluster = stack.enter_context(LocalCluster(len(BROKERS), network=network, kafka=True))
        uvloop.run(run.play(cluster, network, said))
    return run


def main() -> int:
    """Plays a run; returns the exit status."""
    options = parse()
    run = play(options)
    report(run, options)
    return 0 if run.is_good else 1


if __name__ == "__main__":
    sys.exit(main())
