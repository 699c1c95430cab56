"""What the tests of whole clusters ask of brokers: one request to one broker, timed, its error an answer like any."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple

from tidelog.testing import LocalCluster

JSON_RECORDS = "application/vnd.kafka.json.v2+json"
WAIT_S = 50.0
ANSWER_S_MAX = 35.0
"""No request of a client is without an answer for longer: the broker's own deadlines are 30 s at most."""


class Answer(NamedTuple):
    """A broker's answer. `code` is 0 unless it is an error."""

    status: int
    code: int
    body: Any
    seconds: float


def ask(
    url: str,
    body: Any = None,
    *,
    method: str | None = None,
    media: str = "application/json",
    headers: Mapping[str, str] = MappingProxyType({}),
    wait_s: float = ANSWER_S_MAX,
) -> Answer:
    """One request. Raises `OSError` if nobody answers in time."""
    data = None if body is None else json.dumps(body).encode()
    sent = {"Content-Type": media, "Accept": media, **headers}
    request = urllib.request.Request(url, data, sent, method=method)
    begin_s = time.monotonic()
    try:
        with urllib.request.urlopen(request, timeout=wait_s) as answer:
            status, content = answer.status, answer.read()
    except urllib.error.HTTPError as error:
        status, content = error.code, error.read()
    document: Any = json.loads(content) if content else None
    return Answer(status, document["error_code"] if status >= 400 else 0, document, time.monotonic() - begin_s)


def readiness(cluster: LocalCluster, node_id: int) -> str:
    """Why a broker is not ready; empty if it is, or does not answer."""
    try:
        answer = ask(f"{cluster.broker(node_id).url}/readyz", wait_s=5.0)
    except OSError:
        return ""
    return "" if answer.status == 200 else str(answer.body)


def until(condition: Callable[[], bool], seconds_max: float = WAIT_S) -> None:
    """Waits for something that must come true; how soon is not the point."""
    deadline_s = time.monotonic() + seconds_max
    while not condition():
        assert time.monotonic() < deadline_s
        time.sleep(0.05)


def served(work: Callable[[], Answer]) -> Answer:
    """Asks until a broker does not refuse for now (503), which surely has done nothing: one that was not given the
    processor for a while leads nothing for another while."""
    answers: list[Answer] = []

    def is_served() -> bool:
        answers.append(work())
        return answers[-1].status != 503

    until(is_served)
    return answers[-1]


class Asked:
    """One broker of a cluster, seen as its clients see it."""

    def __init__(self, cluster: LocalCluster, node_id: int) -> None:
        self.url = cluster.broker(node_id).url
        self.v3 = f"{self.url}/v3/clusters/{cluster.broker(node_id).cluster_id}"

    @property
    def controller(self) -> int:
        """The active controller's node id, as this broker knows it; 0 if there is none."""
        controller = ask(self.v3).body.get("controller")
        return int(controller["related"].rpartition("/")[2]) if controller else 0

    @property
    def voters(self) -> dict[int, int]:
        """Returns who votes: node id to voter id."""
        return {voter["broker_id"]: voter["voter_id"] for voter in ask(self.v3).body["voters"]}

    @property
    def brokers(self) -> dict[int, bool]:
        """Returns which brokers there are, and which of them are live."""
        return {broker["broker_id"]: not broker["is_fenced"] for broker in ask(f"{self.v3}/brokers").body["data"]}

    @property
    def topics(self) -> list[str]:
        """All topics, sorted."""
        return sorted(ask(f"{self.url}/topics").body)

    def create(self, topic: str, partitions: int = 1, replicas: int = 1) -> Answer:
        """Creates a topic."""
        wanted = {"topic_name": topic, "partitions_count": partitions, "replication_factor": replicas}
        return ask(f"{self.v3}/topics", wanted)

    def leaders(self, topic: str) -> list[int]:
        """Each partition's leader, -1 where there is none."""
        partitions = ask(f"{self.url}/topics/{topic}").body["partitions"]
        return [partition["leader"] for partition in partitions]

    def produce(
        self, topic: str, partition: int, *values: str, timeout_ms: int = 10_000, wait_s: float = ANSWER_S_MAX
    ) -> Answer:
        """Appends records."""
        records = {"records": [{"value": value} for value in values]}
        url = f"{self.url}/topics/{topic}/partitions/{partition}?timeout_ms={timeout_ms}"
        return ask(url, records, media=JSON_RECORDS, wait_s=wait_s)

    def append(self, topic: str, partition: int, *values: str) -> Answer:
        """Appends records, for which the broker has the time that a slow machine needs."""
        answer = served(lambda: self.produce(topic, partition, *values))
        assert answer.status == 200, answer
        return answer

    def records(self, topic: str, partition: int) -> list[tuple[int, str]]:
        """All records: offset and value."""
        found: list[tuple[int, str]] = []
        while True:
            start = found[-1][0] + 1 if found else 0
            path = f"{self.url}/topics/{topic}/partitions/{partition}/records?offset={start}"
            answer = served(partial(ask, path, media=JSON_RECORDS))
            assert answer.status == 200, answer
            if not answer.body:
                return found
            found += [(record["offset"], record["value"]) for record in answer.body]

    def values(self, topic: str, partition: int) -> list[str]:
        """All records' values."""
        return [value for _, value in self.records(topic, partition)]


def controller_of(cluster: LocalCluster) -> int:
    """The active controller, once all brokers of a cluster that is whole know it."""
    known: list[int] = []

    def is_known() -> bool:
        known[:] = [Asked(cluster, node_id).controller for node_id in cluster.node_ids]
        return known[0] != 0 and known.count(known[0]) == len(known)

    until(is_known)
    return known[0]
