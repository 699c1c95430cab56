"""A consumer by `curl`, as in Confluent's documentation: create, subscribe, produce, read, commit, delete.

On three brokers, and no request goes to the broker that the one before it went to: the instance that the first one
created is everybody's. Each command is printed before it runs. What is read is held against the rows, and a second
instance of the group, which begins where the first one has committed, must find nothing more.

    python examples/curl_consumer.py                                        # on three brokers started for it
    python examples/curl_consumer.py --bootstrap http://127.0.0.1:8082,http://127.0.0.1:8083,http://127.0.0.1:8084

On brokers that run already, topic and group must be new: `--topic`, `--group`.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import cycle
from pathlib import Path
from typing import Any

from curl_flights import JSON_DOCUMENT, TEXT, Curl, CurlFailed
from flights import carrier_of, read_flights

from tidelog.testing import BrokerFailed, LocalCluster

BROKERS = 3
PARTITIONS = 3
ROWS = 300
READ_S_MAX = 30.0
CONTROL = ("-H", "Content-Type: application/vnd.kafka.v2+json")
ACCEPT = ("-H", f"Accept: {TEXT}")


class CurlInTurn(Curl):
    """Asks one broker after the other."""

    def __init__(self, bases: Sequence[str], directory: Path) -> None:
        super().__init__("", directory)
        self._turns = cycle(bases)

    def __call__(self, path: str, *options: str) -> bytes:
        self._base = next(self._turns)
        return super().__call__(path, *options)


class Instance:
    """A REST consumer instance, by the requests of the documentation."""

    def __init__(self, curl: Curl, group: str, name: str) -> None:
        self._curl = curl
        self._group = f"/consumers/{group}"
        self._path = f"{self._group}/instances/{name}"
        self._name = name

    def create(self) -> None:
        options = {"name": self._name, "format": "text", "auto.offset.reset": "earliest"}
        self._post(self._group, options)

    def subscribe(self, topic: str) -> None:
        self._post(f"{self._path}/subscription", {"topics": [topic]})

    def assigned(self) -> list[int]:
        answer = json.loads(self._curl(f"{self._path}/assignments", *ACCEPT))
        return [entry["partition"] for entry in answer["partitions"]]

    def read(self) -> list[dict[str, Any]]:
        records: list[dict[str, Any]] = json.loads(self._curl(f"{self._path}/records", *ACCEPT))
        return records

    def commit(self) -> None:
        self._curl(f"{self._path}/offsets", "-X", "POST", *CONTROL)

    def committed(self, topic: str) -> dict[int, int]:
        partitions = [{"topic": topic, "partition": partition} for partition in range(PARTITIONS)]
        body = json.dumps({"partitions": partitions})
        answer = json.loads(self._curl(f"{self._path}/offsets", "-X", "GET", *CONTROL, "--data", body))
        return {entry["partition"]: entry["offset"] for entry in answer["offsets"]}

    def delete(self) -> None:
        self._curl(self._path, "-X", "DELETE", *CONTROL)

    def _post(self, path: str, document: object) -> None:
        self._curl(path, "-X", "POST", *CONTROL, "--data", json.dumps(document))


def run(curl: Curl, topic: str, group: str, rows: Sequence[bytes]) -> bool:
    """The walk-through. True if everything came as it should."""
    cluster = json.loads(curl("/v3/clusters"))["data"][0]["cluster_id"]
    new = {"topic_name": topic, "partitions_count": PARTITIONS}
    curl(f"/v3/clusters/{cluster}/topics", *JSON_DOCUMENT, "-d", json.dumps(new))

    first = Instance(curl, group, "my_consumer_instance")
    first.create()
    first.subscribe(topic)
    produce(curl, topic, rows)
    records = read_all(first, len(rows))
    first.commit()
    committed = first.committed(topic)
    first.delete()

    second = Instance(curl, group, "another_instance")
    second.create()
    second.subscribe(topic)
    again = [*second.read(), *second.read()]
    assigned = second.assigned()
    second.delete()

    lasts = {
        partition: max(record["offset"] for record in records if record["partition"] == partition)
        for partition in committed
    }
    outcomes = {
        f"{len(rows)} records read, as they were sent": sorted(
            (record["key"].encode(), record["value"].encode()) for record in records
        )
        == sorted((carrier_of(row), row) for row in rows),
        "all of them committed": committed == {partition: last + 1 for partition, last in lasts.items()},
        "nothing comes again": assigned == [*range(PARTITIONS)] and not again,
        "the instance is gone": is_gone(first),
    }
    for name, is_so in outcomes.items():
        print(f"{name}: {'yes' if is_so else 'NO'}")
    return all(outcomes.values())


def produce(curl: Curl, topic: str, rows: Sequence[bytes]) -> None:
    """As strings, in one request."""
    records = [{"key": carrier_of(row).decode(), "value": row.decode()} for row in rows]
    curl.post(f"/topics/{topic}", TEXT, json.dumps({"records": records}).encode())


def read_all(instance: Instance, count: int) -> list[dict[str, Any]]:
    """So many records; fewer if they do not come in time."""
    records: list[dict[str, Any]] = []
    deadline_s = time.monotonic() + READ_S_MAX
    while len(records) < count and time.monotonic() < deadline_s:
        records += instance.read()
    return records


def is_gone(instance: Instance) -> bool:
    """True if nobody knows it any more."""
    try:
        instance.read()
    except CurlFailed as error:
        return "40403" in str(error)
    return False


@contextmanager
def brokers(bootstrap: str | None) -> Iterator[list[str]]:
    """Base URLs of those that run, or of some that are started."""
    if bootstrap is not None:
        yield bootstrap.split(",")
        return
    with LocalCluster(BROKERS) as cluster:
        yield cluster.bootstrap.split(",")


def main() -> int:
    """Runs the example; returns the exit status."""
    parser = argparse.ArgumentParser(description="Walks through the REST consumer API with curl, on several brokers.")
    parser.add_argument("--bootstrap", metavar="URLS", help="running brokers; default: three started for this")
    parser.add_argument("--topic", default="flights", help="default: %(default)s")
    parser.add_argument("--group", default="my_json_consumer", help="default: %(default)s")
    options = parser.parse_args()
    try:
        with brokers(options.bootstrap) as bases, tempfile.TemporaryDirectory() as directory:
            curl = CurlInTurn(bases, Path(directory))
            return 0 if run(curl, options.topic, options.group, read_flights(ROWS)) else 1
    except (BrokerFailed, CurlFailed) as error:
        print(f"error: {error}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
