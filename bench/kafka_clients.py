"""Measures what confluent-kafka writes to brokers on the same machine, and reads from them, over Kafka's protocol.

    python bench/kafka_clients.py [--brokers 3] [--durability replicated] [--rounds 3]

Topics have three partitions and up to three replicas. The CPU is that of all brokers, user and system; client and
brokers share the machine. Values are random bytes. Medians of the rounds.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from itertools import count
from typing import Any, Final, NamedTuple

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

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
BUFFERS: Final = {"linger.ms": 20, "queue.buffering.max.messages": 2_000_000, "queue.buffering.max.kbytes": 1 << 20}
READAHEAD: Final = {"queued.min.messages": 1_000_000, "fetch.queue.backoff.ms": 5, "group.id": "bench"}


class Run(NamedTuple):
    """The outcome of one run."""

    records_per_s: float
    cpu_s_per_million: float


class Site:
    """The brokers, and the topics that are made on them."""

    def __init__(self, cluster: LocalCluster, durability: str) -> None:
        self.address: dict[str, Any] = {"bootstrap.servers": cluster.kafka_bootstrap}
        self._cluster = cluster
        self._durability = durability
        self._names: Iterator[int] = count()

    def new_topic(self) -> str:
        admin, name = AdminClient(self.address), f"bench-{next(self._names)}"
        replicas = min(3, len(self._cluster.node_ids))
        topic = NewTopic(name, PARTITIONS, replicas, config={"ack.durability": self._durability})
        admin.create_topics([topic])[name].result(PATIENCE_S)
        return name

    def cpu_s(self) -> float:
        """Returns the CPU time of all brokers up to now."""
        ticks = 0
        for node_id in self._cluster.node_ids:
            with open(f"/proc/{self._cluster.broker(node_id).pid}/stat") as stat:
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


def show(what: str, size: int, runs: list[Run]) -> None:
    """Prints the medians of some runs."""
    rate, cpu_s = (statistics.median(column) for column in zip(*runs, strict=True))
    print(f"{what}, {size} B: {rate:,.0f} records/s, {rate * size / 1e6:.0f} MB/s, {cpu_s:.2f} s of CPU per million")


def measure(site: Site, rounds: int) -> None:
    """Prints a line for each workload."""
    site.write(site.new_topic(), 100, PRODUCERS["acks=1"])  # the first one finds everything cold
    for size in SIZES:
        for name, settings in PRODUCERS.items():
            topics = [site.new_topic() for _ in range(rounds)]
            show(f"in, {name}", size, [site.write(topic, size, settings) for topic in topics])
        show("out", size, [site.read(topics[-1], size) for _ in range(rounds)])
    found = site.latencies_ms()
    print(f"one record at a time: p50 {found[len(found) // 2]:.2f} ms, p99 {found[len(found) * 99 // 100]:.2f} ms")


def main() -> None:
    """Starts the brokers, and stops them again."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--brokers", type=int, default=1)
    parser.add_argument("--durability", choices=["fsynced", "replicated"], default="fsynced")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    with LocalCluster(options.brokers, kafka=True) as cluster:
        measure(Site(cluster, options.durability), options.rounds)


if __name__ == "__main__":
    main()
