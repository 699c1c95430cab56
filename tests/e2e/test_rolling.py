"""Brokers are stopped in good order and started again, one after the other, and clients need not know.

The clients are plain: each sends a record, reads its answer and sends the next one, over a connection that it keeps
for as long as the broker says. A client tries no request again, but one that nobody took: a connection that is refused,
or that ends without a word of an answer; then it goes to its next address.
"""

from __future__ import annotations

import http.client
import json
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.e2e.asking import JSON_RECORDS, Asked, ask, until
from tests.e2e.clusters import running
from tidelog.testing import LocalCluster

pytestmark = [pytest.mark.process, pytest.mark.timeout(180)]

PARTITIONS = 3
SETTINGS = {"broker.heartbeat.interval.ms": "200", "num.partitions": str(PARTITIONS), "default.replication.factor": "3"}


@pytest.fixture(scope="module")
def cluster(protocol: str) -> Iterator[LocalCluster]:
    """Each test leaves it whole."""
    with running(protocol, settings=SETTINGS) as cluster:
        yield cluster


class Client(threading.Thread):
    """Produces with acks=all until it is told to stop. `statuses` counts answers, `mute` requests without one."""

    def __init__(self, name: str, urls: Sequence[str], topic: str, *, is_keyed: bool) -> None:
        super().__init__(name=name, daemon=True)
        self.statuses: Counter[int] = Counter()
        self.refusals: list[str] = []
        self.acknowledged: dict[tuple[int, int], str] = {}
        """Value, by partition and offset."""
        self.mute = 0
        self._addresses = [urlsplit(url).netloc for url in urls]
        self._path = f"/topics/{topic}/partitions/"
        self._is_keyed = is_keyed
        self._is_over = threading.Event()
        self._connection: http.client.HTTPConnection | None = None

    def run(self) -> None:
        number = 0
        while not self._is_over.wait(0.001):
            value = f"{self.name}-{number}"
            while not self._produce(number % PARTITIONS, value) and self._is_keyed and not self._is_over.wait(0.02):
                pass
            number += 1

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
        if (connection := self._connected()) is None:
            return False
        try:
            connection.request("POST", f"{self._path}{partition}", json.dumps({"records": [{"value": value}]}), headers)
            answer = connection.getresponse()
            body = answer.read()
        except (OSError, http.client.HTTPException):
            self.mute += 1
            self._close()
            self._go_elsewhere()
            return False
        if answer.will_close:
            self._close()
        self.statuses[answer.status] += 1
        if answer.status == 200:
            self.acknowledged[partition, json.loads(body)["offsets"][0]["offset"]] = value
        else:
            self.refusals.append(f"{answer.status} {body!r}")
        return True

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
    clients = [*anywhere, *at_one]
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
    assert [refusal for client in anywhere for refusal in client.refusals] == []
    assert {status for client in at_one for status in client.statuses} <= {200, 503}, "it is started, and not ready yet"
    found = {number: Asked(cluster, 1).records("rolling", number) for number in range(PARTITIONS)}
    stored = {(number, offset): value for number, pairs in found.items() for offset, value in pairs}
    for client in clients:
        assert client.acknowledged, client.name
        assert {place: stored.get(place) for place in client.acknowledged} == client.acknowledged, client.name
    counted = Counter(stored.values())
    assert {value: times for value, times in counted.items() if times > 1} == {}, "nothing twice"
