"""Measures how long Kafka's clients stand still, with the settings that they have by default, when their leader dies.

    python bench/kafka_failover.py [--clients librdkafka,aiokafka,kafka-python] [--protocol paxos] [--kills 8]
    python bench/kafka_failover.py --clients java --jars '.kafka/lib/*'          # Kafka's own VerifiableProducer

Three brokers have a topic of one partition and three replicas. A client writes a record each 5 ms, all in-sync
replicas acknowledge. Its leader is killed (SIGKILL), and started again later; the client is started anew for each. The
figures are the longest time between two acknowledgements around each death, and the time until another broker's
metadata name the next leader: much longer where the leader was the active controller as well, so that this had to be
elected first.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import statistics
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import pairwise
from typing import Any, Final, NamedTuple

from aiokafka import AIOKafkaProducer
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient as KafkaAdmin
from confluent_kafka.cimpl import NewTopic
from kafka import KafkaProducer

from tidelog.admin import AdminClient
from tidelog.testing import LocalCluster

TOPIC: Final = "t"
VALUE: Final = bytes(50)
EVERY_S: Final = 0.005
WARM_UP: Final = 200
"""Records that are acknowledged before the leader is killed."""
PATIENCE_S: Final = 30.0
AFTER_S: Final = 2.5
"""Seconds for which a client writes on after the election: longer than it takes to find the new leader."""
SETTLE_S: Final = 3.0
"""Seconds in which the broker that was started again comes back in sync."""
BEFORE_S: Final = 0.3
"""Seconds before the death from which on acknowledgements are looked at."""


class Pace:
    """When records were acknowledged, and the end of the writing."""

    def __init__(self) -> None:
        self.acknowledged_s: list[float] = []
        self.is_over = threading.Event()

    def acknowledged(self, *_: object) -> None:
        self.acknowledged_s.append(time.monotonic())

    def longest_s(self, since_s: float) -> float:
        """Returns the longest time between two acknowledgements."""
        times_s = [at_s for at_s in self.acknowledged_s if at_s > since_s]
        return max((later - earlier for earlier, later in pairwise(times_s)), default=AFTER_S)


class Death(NamedTuple):
    """A leader's death: the seconds until its successor was elected, and the longest without an acknowledgement."""

    elected_s: float
    stood_still_s: float


def write_with_librdkafka(bootstrap: str, pace: Pace, _jars: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "enable.idempotence": True, "log_level": 0})
    while not pace.is_over.is_set():
        producer.produce(TOPIC, VALUE, on_delivery=lambda error, _: None if error else pace.acknowledged())
        producer.poll(EVERY_S)
    producer.flush(PATIENCE_S)


def write_with_kafka_python(bootstrap: str, pace: Pace, _jars: str) -> None:
    producer = KafkaProducer(bootstrap_servers=bootstrap, acks="all")
    while not pace.is_over.wait(EVERY_S):
        producer.send(TOPIC, VALUE).add_callback(pace.acknowledged)
    producer.close(PATIENCE_S)


def write_with_aiokafka(bootstrap: str, pace: Pace, _jars: str) -> None:
    async def write() -> None:
        async with AIOKafkaProducer(bootstrap_servers=bootstrap, acks="all", enable_idempotence=True) as producer:
            while not pace.is_over.is_set():
                sent = await producer.send(TOPIC, VALUE)
                sent.add_done_callback(lambda done: None if done.exception() else pace.acknowledged())
                await asyncio.sleep(EVERY_S)

    asyncio.run(write())


def write_with_java(bootstrap: str, pace: Pace, jars: str) -> None:
    tool = ["java", "-Xmx128m", "-cp", jars, "org.apache.kafka.tools.VerifiableProducer"]
    terms = ["--bootstrap-server", bootstrap, "--topic", TOPIC, "--acks", "-1", "--throughput", f"{1 / EVERY_S:.0f}"]
    with subprocess.Popen([*tool, *terms], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as java:
        assert java.stdout is not None
        for line in java.stdout:
            if b"producer_send_success" in line:
                pace.acknowledged()
            if pace.is_over.is_set():
                break
        java.terminate()


CLIENTS: Final[Mapping[str, Callable[[str, Pace, str], None]]] = {
    "librdkafka": write_with_librdkafka,
    "aiokafka": write_with_aiokafka,
    "kafka-python": write_with_kafka_python,
    "java": write_with_java,
}


@contextmanager
def writing(cluster: LocalCluster, client: str, jars: str) -> Iterator[Pace]:
    """Has a client write until the end of the context. Raises `TimeoutError` if it does not begin."""
    pace = Pace()
    thread = threading.Thread(target=CLIENTS[client], args=(cluster.kafka_bootstrap, pace, jars), daemon=True)
    thread.start()
    try:
        until_s = time.monotonic() + PATIENCE_S
        while len(pace.acknowledged_s) < WARM_UP:
            if time.monotonic() > until_s:
                raise TimeoutError(f"{client} does not write")
            time.sleep(EVERY_S)
        yield pace
    finally:
        pace.is_over.set()
        thread.join(PATIENCE_S)


def leader_of(url: str) -> int | None:
    """Returns the leader of the topic's partition, as this broker knows it."""

    async def ask() -> int | None:
        async with AdminClient(url) as admin:
            return (await admin.describe_topic(TOPIC)).partitions[0].leader

    return asyncio.run(ask())


def kill(cluster: LocalCluster, client: str, jars: str) -> Death:
    """Kills the leader under a client, and starts it again."""
    with writing(cluster, client, jars) as pace:
        leader = leader_of(cluster.broker(1).url)
        assert leader is not None
        other = next(node_id for node_id in cluster.node_ids if node_id != leader)
        killed_s = time.monotonic()
        cluster.kill(leader)
        while leader_of(cluster.broker(other).url) in (leader, None):
            if time.monotonic() > killed_s + PATIENCE_S:
                raise TimeoutError("no other leader was elected")
            time.sleep(EVERY_S)
        elected_s = time.monotonic() - killed_s
        time.sleep(AFTER_S)
    cluster.restart(leader)
    time.sleep(SETTLE_S)
    return Death(elected_s, pace.longest_s(killed_s - BEFORE_S))


def show(client: str, deaths: list[Death]) -> None:
    def line(what: str, found_s: list[float]) -> str:
        each = " ".join(f"{1000 * one_s:.0f}" for one_s in found_s)
        return f"{client}, {what}: median {1000 * statistics.median(found_s):.0f} ms ({each})"

    print(line("elected after", [death.elected_s for death in deaths]))
    print(line("without an acknowledgement", [death.stood_still_s for death in deaths]), flush=True)


def main() -> None:
    assert __doc__ is not None
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", default="librdkafka,aiokafka,kafka-python", help="which, with commas between")
    parser.add_argument("--protocol", default="isr", choices=("isr", "paxos"))
    parser.add_argument("--kills", type=int, default=8)
    parser.add_argument("--jars", default=".kafka/lib/*", help="class path of Kafka's own tools (make kafka-jars)")
    options = parser.parse_args()
    logging.disable()  # clients log each connection that breaks
    with LocalCluster(3, kafka=True) as cluster:
        terms: dict[str, Any] = {"commit.protocol": options.protocol}
        admin = KafkaAdmin({"bootstrap.servers": cluster.kafka_bootstrap})
        admin.create_topics([NewTopic(TOPIC, 1, 3, config=terms)])[TOPIC].result(PATIENCE_S)
        for client in options.clients.split(","):
            show(client, [kill(cluster, client, options.jars) for _ in range(options.kills)])


if __name__ == "__main__":
    main()
