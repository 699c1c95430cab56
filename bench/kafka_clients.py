"""Measures what confluent-kafka writes to brokers on the same machine, and reads from them, over Kafka's protocol.

    python bench/kafka_clients.py [--brokers 3] [--durability replicated] [--rounds 3]
    python bench/kafka_clients.py --beside .kafka/lib --rounds 5       # and a real Kafka, in turn: `make bench-kafka`

Topics have three partitions and up to three replicas. The CPU is that of all brokers, user and system; client and
brokers share the machine. Values are random bytes. Medians of the rounds. Beside a real Kafka of one node there is one
broker of tidelog, and both are measured with topics whose records are on disk before they are acknowledged (Kafka:
`flush.messages=1`), and with such that leave that to the system; the sites take turns in each round.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from typing import Any, Final, NamedTuple

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from real_kafka import running

from tidelog.bench.history import append_history
from tidelog.bench.result import Result
from tidelog.testing import LocalCluster

PARTITIONS: Final = 3
PATIENCE_S: Final = 60.0
SIZES: Final = {100: 1_000_000, 1_000: 300_000}
"""Records of a run by the size of their values."""
SINGLE: Final = 1_500
WARM_UP: Final = 200
PRODUCERS: Final[Mapping[str, Mapping[str, Any]]] = {
    "acks=1": {"acks": 1},
    "acks=all, idempotent": {"acks": "all", "enable.idempotence": True},
}
LAST: Final = "acks=all, idempotent"
"""Names the producer whose topic is read afterwards."""
FLUSHES: Final[Mapping[str, Mapping[str, str]]] = {"default": {}, "flushed": {"flush.messages": "1"}}
BUFFERS: Final = {"linger.ms": 20, "queue.buffering.max.messages": 2_000_000, "queue.buffering.max.kbytes": 1 << 20}
READAHEAD: Final = {"queued.min.messages": 1_000_000, "fetch.queue.backoff.ms": 5, "group.id": "bench"}


class Run(NamedTuple):
    """The outcome of one run."""

    records_per_s: float
    cpu_s_per_million: float


class Site:
    """Brokers, and the topics that are made on them, all with the same `configs`."""

    def __init__(
        self, name: str, bootstrap: str, pids: Sequence[int], configs: Mapping[str, str], replicas: int = 1
    ) -> None:
        self.name = name
        self.address: dict[str, Any] = {"bootstrap.servers": bootstrap}
        self._pids = pids
        self._configs = dict(configs)
        self._replicas = replicas
        self._names: Iterator[int] = count()

    def new_topic(self) -> str:
        admin, name = AdminClient(self.address), f"bench-{'-'.join(self.name.split())}-{next(self._names)}"
        topic = NewTopic(name, PARTITIONS, self._replicas, config=self._configs)
        admin.create_topics([topic])[name].result(PATIENCE_S)
        return name

    def delete(self, topic: str) -> None:
        """Makes room for others."""
        admin = AdminClient(self.address)  # it ends with its last name
        admin.delete_topics([topic])[topic].result(PATIENCE_S)

    def cpu_s(self) -> float:
        """Returns the CPU time of all brokers up to now."""
        ticks = 0
        for pid in self._pids:
            with open(f"/proc/{pid}/stat") as stat:
                words = stat.read().rpartition(")")[2].split()
            ticks += int(words[11]) + int(words[12])
        return ticks / os.sysconf("SC_CLK_TCK")

    def timed(self, records: int, work: Callable[[], None]) -> Run:
        cpu_s, begun_s = self.cpu_s(), time.perf_counter()
        work()
        lasted_s = time.perf_counter() - begun_s
        return Run(records / lasted_s, (self.cpu_s() - cpu_s) / records * 1e6)

    def write(self, topic: str, size: int, settings: Mapping[str, Any]) -> Run:
        producer, value = Producer({**self.address, **BUFFERS, **settings}), os.urandom(size)

        def work() -> None:
            for number in range(SIZES[size]):
                while True:
                    try:
                        producer.produce(topic, value)
                        break
                    except BufferError:
                        producer.poll(0.01)
                if number % 4_096 == 0:
                    producer.poll(0)
            assert producer.flush(PATIENCE_S) == 0

        return self.timed(SIZES[size], work)

    def read(self, topic: str, size: int) -> Run:
        consumer = Consumer({**self.address, **READAHEAD})
        consumer.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])

        def work() -> None:
            found = 0
            while found < SIZES[size]:
                found += len(consumer.consume(10_000, 1.0))

        run = self.timed(SIZES[size], work)
        consumer.close()
        return run

    def latencies_ms(self) -> list[float]:
        """Returns how long single records take to be acknowledged, in order of length."""
        producer, topic, found = Producer({**self.address, "linger.ms": 0, "acks": "all"}), self.new_topic(), []
        for _ in range(SINGLE):
            begun_s = time.perf_counter()
            producer.produce(topic, bytes(100), partition=0)
            producer.flush(PATIENCE_S)
            found.append((time.perf_counter() - begun_s) * 1000)
        return sorted(found[WARM_UP:])


Figures = dict[str, float]
"""Holds the figures of one run, by the name of the measurement with its unit."""


def play_round(site: Site) -> Figures:
    """Returns the figures of one round of each workload on one site."""
    figures: Figures = {}
    for size in SIZES:
        for name, settings in PRODUCERS.items():
            topic = site.new_topic()
            runs = {f"in, {name}, {size} B": site.write(topic, size, settings)}
            if name == LAST:
                runs[f"out, {size} B"] = site.read(topic, size)
            site.delete(topic)
            for what, run in runs.items():
                figures[f"{what}: records/s"] = run.records_per_s
                figures[f"{what}: broker CPU s per million"] = run.cpu_s_per_million
    found = site.latencies_ms()
    figures["one record, p50: ms"] = found[len(found) // 2]
    figures["one record, p99: ms"] = found[len(found) * 99 // 100]
    return figures


def measure(sites: Sequence[Site], rounds: int) -> dict[str, Figures]:
    """Returns the medians of each site's rounds, by its name."""
    found: defaultdict[str, list[Figures]] = defaultdict(list)
    for site in sites:
        topic = site.new_topic()
        for settings in PRODUCERS.values():  # a virtual machine, above all, is slow before it has compiled what is hot
            site.write(topic, 100, settings)
        site.delete(topic)
    for _ in range(rounds):
        for site in sites:
            found[site.name].append(play_round(site))
    return {
        name: {what: statistics.median(one[what] for one in taken) for what in taken[0]}
        for name, taken in found.items()
    }


def show(found: Mapping[str, Figures]) -> None:
    """Prints a line for each figure, with a column for each site."""
    names = [*found]
    print(f"{'':52}", *(f"{name:>22}" for name in names))
    for what in found[names[0]]:
        print(f"{what:52}", *(f"{shown(found[name][what]):>22}" for name in names))


def shown(value: float) -> str:
    """Returns a figure as people read it."""
    return f"{value:,.0f}" if value >= 1_000 else f"{value:.2f}"


def sites_of(options: argparse.Namespace, stack: ExitStack) -> list[Site]:
    """Starts all brokers."""
    cluster = stack.enter_context(LocalCluster(options.brokers, kafka=True))
    pids, replicas = [cluster.broker(node_id).pid for node_id in cluster.node_ids], min(3, options.brokers)
    durabilities = ["replicated", "fsynced"] if options.beside else [options.durability]
    sites = [
        Site(f"tidelog {name}", cluster.kafka_bootstrap, pids, {"ack.durability": name}, replicas)
        for name in durabilities
    ]
    if options.beside:
        kafka = stack.enter_context(running(options.beside))
        for name, configs in FLUSHES.items():
            sites.append(Site(f"Kafka {kafka.version} {name}", kafka.bootstrap, [kafka.pid], configs))
    return sites


def main() -> None:
    """Starts the brokers, and stops them again."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--brokers", type=int, default=1)
    parser.add_argument("--durability", choices=["fsynced", "replicated"], default="fsynced")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--beside", type=Path, metavar="JARS", help="directory of Kafka's jars; brokers are one each")
    parser.add_argument("--history", type=Path, metavar="FILE", help="append the figures to it")
    options = parser.parse_args()
    if options.beside and options.brokers != 1:
        parser.error("--beside measures one broker of each")
    with ExitStack() as stack:
        found = measure(sites_of(options, stack), options.rounds)
    show(found)
    if options.history is not None:
        figures = {f"{name}, {what}": value for name, one in found.items() for what, value in one.items()}
        parameters = {"brokers": options.brokers, "rounds": options.rounds}
        append_history(Result("kafka clients", parameters, figures), options.history)


if __name__ == "__main__":
    main()
