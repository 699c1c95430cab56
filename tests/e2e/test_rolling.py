"""Brokers are stopped in good order and started again, one after the other, and clients need not know.

The clients are plain: each sends a request, reads its answer and sends the next one, over a connection that it keeps
for as long as the broker says. A client tries no request again, but one that nobody took: a connection that is refused,
or that ends without a word of an answer; then it goes to its next address.
"""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.e2e.asking import JSON_RECORDS, Asked, ask, until
from tests.e2e.clusters import running
from tidelog.model.batch_codec import encode_batch
from tidelog.model.partition_batches import PARTITION_BATCHES_TYPE, batch_table
from tidelog.model.records import Record
from tidelog.testing import LocalCluster

pytestmark = [pytest.mark.process, pytest.mark.slow, pytest.mark.timeout(180)]

PARTITIONS = 3
UNHURRIED = {"broker.lease.ms": "9000", "loop.lag.ms.max": "10000", "request.queue.wait.ms.max": "10000"}
"""On a busy machine a broker is right to refuse what it cannot answer for in time; that is not what this is about."""
SETTINGS = {
    "broker.heartbeat.interval.ms": "200",
    "num.partitions": str(PARTITIONS),
    "default.replication.factor": "3",
    **UNHURRIED,
}


@pytest.fixture(scope="module")
def cluster(protocol: str) -> Iterator[LocalCluster]:
    """Each test leaves it whole."""
    with running(protocol, settings=SETTINGS) as cluster:
        yield cluster


class Client(threading.Thread):
    """Produces with acks=all until it is told to end. `statuses` counts answers, `mute` requests without one."""

    def __init__(self, name: str, urls: Sequence[str], topic: str, *, is_keyed: bool) -> None:
        super().__init__(name=name, daemon=True)
        self.statuses: Counter[int] = Counter()
        self.refusals: list[str] = []
        self.acknowledged: dict[tuple[int, int], str] = {}
        """Value, by partition and offset."""
        self.mute = 0
        self._addresses = [urlsplit(url).netloc for url in urls]
        self._topic = topic
        self._path = f"/topics/{topic}/partitions/"
        self._is_keyed = is_keyed
        self._is_over = threading.Event()
        self._connection: http.client.HTTPConnection | None = None

    def run(self) -> None:
        number = 0
        while not self._is_over.wait(0.001):
            self._work(number)
            number += 1

    def _work(self, number: int) -> None:
        value = f"{self.name}-{number}"
        while not self._produce(number % PARTITIONS, value) and self._is_keyed and not self._is_over.wait(0.02):
            pass

    def end(self) -> None:
        """Returns when nothing of it is under way."""
        self._is_over.set()
        self.join()
        self._close()

    def _produce(self, partition: int, value: str) -> bool:
        """Sends one request; False if nobody has answered it."""
        headers = {"Content-Type": JSON_RECORDS}
        if self._is_keyed:
            headers["Idempotency-Key"] = value
        answer = self._ask("POST", f"{self._path}{partition}", headers, json.dumps({"records": [{"value": value}]}))
        if answer is not None and answer[0] == 200:
            self.acknowledged[partition, answer[1]["offsets"][0]["offset"]] = value
        return answer is not None

    def _ask(
        self, method: str, target: str, headers: dict[str, str], body: bytes | str | None = None
    ) -> tuple[int, Any] | None:
        """Status and document of the answer; None if nobody has answered."""
        if (connection := self._connected()) is None:
            return None
        try:
            connection.request(method, target, body, headers)
            answer = connection.getresponse()
            document = json.loads(answer.read())
        except (OSError, http.client.HTTPException):
            self.mute += 1
            self._close()
            self._go_elsewhere()
            return None
        if answer.will_close:
            self._close()
        self.statuses[answer.status] += 1
        if answer.status != 200:
            self.refusals.append(f"{answer.status} {document!r}")
        return answer.status, document

    def _connected(self) -> http.client.HTTPConnection | None:
        """The connection, new perhaps; None if it is refused."""
        if self._connection is None:
            connection = http.client.HTTPConnection(self._addresses[0], timeout=35)
            try:
                connection.connect()
            except OSError:
                self._go_elsewhere()
                return None
            self._connection = connection
        return self._connection

    def _go_elsewhere(self) -> None:
        self._addresses.append(self._addresses.pop(0))

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


class Batcher(Client):
    """Sends batches for all partitions in one request, each with an outcome of its own."""

    def _work(self, number: int) -> None:
        values = [f"{self.name}-{number}-{partition}" for partition in range(PARTITIONS)]
        sent = [encode_batch([Record(int(1000 * time.time()), None, json.dumps(value).encode())]) for value in values]
        table = batch_table((self._topic, partition, len(data)) for partition, data in enumerate(sent))
        answer = self._ask("POST", "/batches", {"Content-Type": PARTITION_BATCHES_TYPE}, b"".join((table, *sent)))
        if answer is None or answer[0] != 200:
            return
        for found, value in zip(answer[1]["partitions"], values, strict=True):
            if found["error_code"] is None:
                self.acknowledged[found["partition"], found["batches"][0]["base_offset"]] = value
            else:
                self.refusals.append(repr(found))


class Reader(Client):
    """Reads on from where it is, and waits for what is to come."""

    def __init__(self, name: str, urls: Sequence[str], topic: str) -> None:
        super().__init__(name, urls, topic, is_keyed=False)
        self.read: list[list[tuple[int, str]]] = [[] for _ in range(PARTITIONS)]

    def _work(self, number: int) -> None:
        read = self.read[number % PARTITIONS]
        offset = read[-1][0] + 1 if read else 0
        target = f"{self._path}{number % PARTITIONS}/records?offset={offset}&timeout=500"
        answer = self._ask("GET", target, {"Accept": JSON_RECORDS})
        if answer is not None and answer[0] == 200:
            read += [(record["offset"], record["value"]) for record in answer[1]]


def infos(cluster: LocalCluster, node_id: int, topic: str) -> list[dict[str, Any]]:
    """The topic's partitions, as a broker knows them."""
    topics = ask(f"{cluster.broker(node_id).url}/metadata?topics={topic}").body["topics"]
    found: list[dict[str, Any]] = topics[0]["partitions"]
    return found


def is_whole(cluster: LocalCluster, topic: str) -> bool:
    """True if all brokers know all replicas to be in sync, and nobody leads what it is about to give back."""
    known = [info for node_id in cluster.node_ids for info in infos(cluster, node_id, topic)]
    return all(len(info["isr"]) == len(cluster.node_ids) and info["leader"] > 0 for info in known)


def test_clients_see_no_error_while_brokers_are_restarted_in_turn(cluster: LocalCluster) -> None:
    """A client of a single broker sees that this one is away, and no more."""
    Asked(cluster, 1).create("rolling", PARTITIONS, 3)
    urls = [cluster.broker(node_id).url for node_id in cluster.node_ids]
    anywhere = [Client(f"keyed{n}", [*urls[n:], *urls[:n]], "rolling", is_keyed=True) for n in range(3)]
    anywhere += [Client(f"plain{n}", [*urls[n:], *urls[:n]], "rolling", is_keyed=False) for n in range(3)]
    at_one = [Client(f"only{n}", [url], "rolling", is_keyed=False) for n, url in enumerate(urls)]
    anywhere += [Batcher(f"batches{n}", [*urls[n:], *urls[:n]], "rolling", is_keyed=False) for n in range(3)]
    readers = [Reader(f"reader{n}", [*urls[n:], *urls[:n]], "rolling") for n in range(3)]
    clients = [*anywhere, *at_one, *readers]
    for client in clients:
        client.start()
    for node_id in cluster.node_ids:
        until(lambda: is_whole(cluster, "rolling"))
        cluster.broker(node_id).stop()
        assert all(info["leader"] != node_id for info in infos(cluster, 1 + node_id % 3, "rolling"))
        cluster.restart(node_id)
    until(lambda: is_whole(cluster, "rolling"))
    for client in clients:
        client.end()
    assert [refusal for client in [*anywhere, *readers] for refusal in client.refusals] == []
    assert {status for client in at_one for status in client.statuses} <= {200, 503}, "it is started, and not ready yet"
    found = {number: Asked(cluster, 1).records("rolling", number) for number in range(PARTITIONS)}
    stored = {(number, offset): value for number, pairs in found.items() for offset, value in pairs}
    for reader in readers:
        for number, read in enumerate(reader.read):
            assert read and read == found[number][: len(read)], f"{reader.name} has passed something, or read it twice"
    for client in [*anywhere, *at_one]:
        assert client.acknowledged, client.name
        assert {place: stored.get(place) for place in client.acknowledged} == client.acknowledged, client.name
    counted = Counter(stored.values())
    assert {value: times for value, times in counted.items() if times > 1} == {}, "nothing twice"
