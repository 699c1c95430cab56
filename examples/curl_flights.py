"""The first thousand rows of the flights through every door of the HTTP API, with nothing but `curl`.

Each command is printed before it runs; bodies come from a file. Four ways in (REST v2, a v3 stream, a v3 batch, raw
record batches) and three ways out (text, base64, raw record batches) are held against the rows.

    python examples/curl_flights.py                                     # on a broker started for it
    python examples/curl_flights.py --bootstrap http://127.0.0.1:8082   # on yours
"""

from __future__ import annotations

import argparse
import base64
import json
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from flights import broker, carrier_of, read_flights

from tidelog.model.batch_codec import decode_batch
from tidelog.model.batch_header import iter_batches
from tidelog.testing import BrokerFailed

ROWS = 1000
TEXT = "application/vnd.kafka.text.v2+json"
BINARY = "application/vnd.kafka.binary.v2+json"
BATCHES = "application/vnd.tidelog.batches"
JSON_DOCUMENT = ("-H", "Content-Type: application/json")


class CurlFailed(RuntimeError):
    """`curl` said that a request did not succeed."""


class Curl:
    """Runs `curl` in a directory that holds the bodies."""

    def __init__(self, base: str, directory: Path) -> None:
        self._base = base
        self._directory = directory

    def __call__(self, path: str, *options: str) -> bytes:
        """The answer's body. Raises `CurlFailed` for any status but 2xx."""
        command = ["curl", *options, f"{self._base}{path}"]
        print("$", shlex.join(command))
        done = subprocess.run(
            ["curl", "--silent", "--show-error", "--fail-with-body", *command[1:]],
            cwd=self._directory,
            capture_output=True,
            check=False,
        )
        if done.returncode:
            raise CurlFailed(f"{done.stderr.decode().strip()} {done.stdout.decode(errors='replace')}")
        return done.stdout

    def post(self, path: str, media_type: str, body: bytes) -> Any:
        """The decoded answer to a POST of `body`, or None if it has none."""
        (self._directory / "body").write_bytes(body)
        answer = self(path, "-H", f"Content-Type: {media_type}", "--data-binary", "@body")
        return json.loads(answer) if answer else None

    def stream(self, path: str, body: bytes) -> list[Any]:
        """The receipts of a streamed POST; `curl` sends the file in chunks, as it would send a pipe."""
        (self._directory / "body").write_bytes(body)
        answer = self(path, "-X", "POST", "-H", "Transfer-Encoding: chunked", *JSON_DOCUMENT, "-T", "body")
        return [json.loads(line) for line in answer.splitlines()]


class Doors:
    """The ways in and out, each for one partition of a topic."""

    def __init__(self, curl: Curl) -> None:
        self._curl = curl
        self._cluster = f"/v3/clusters/{json.loads(curl('/v3/clusters'))['data'][0]['cluster_id']}"

    def create(self, topic: str) -> None:
        body = json.dumps({"topic_name": topic, "partitions_count": 1})
        self._curl(f"{self._cluster}/topics", *JSON_DOCUMENT, "-d", body)

    def delete(self, topic: str) -> None:
        self._curl(f"{self._cluster}/topics/{topic}", "-X", "DELETE")

    # -- in: each returns how many records were acknowledged -----------------------------------------------------------

    def write_v2(self, topic: str, rows: list[bytes]) -> int:
        """All rows in one request. Strings are stored as they are, so that a key has no quotes, as everywhere."""
        records = [{"key": carrier_of(row).decode(), "value": row.decode()} for row in rows]
        path = f"/topics/{topic}/partitions/0"
        answer = self._curl.post(path, TEXT, json.dumps({"records": records}).encode())
        return sum(receipt["error_code"] is None for receipt in answer["offsets"])

    def write_stream(self, topic: str, rows: list[bytes]) -> int:
        """A document a row, one after the other; a receipt comes back for each."""
        body = "\n".join(json.dumps(_record(row)) for row in rows).encode()
        receipts = self._curl.stream(f"{self._cluster}/topics/{topic}/records", body)
        return sum(receipt["error_code"] == 200 for receipt in receipts)

    def write_batch(self, topic: str, rows: list[bytes]) -> int:
        """All rows in one request, each with an id and a receipt of its own."""
        entries = [{"id": str(number), **_record(row)} for number, row in enumerate(rows)]
        path = f"{self._cluster}/topics/{topic}/records:batch"
        answer = self._curl.post(path, "application/json", json.dumps({"entries": entries}).encode())
        return len(answer["successes"])

    def copy_raw(self, topic: str, to: str, rows: int) -> int:
        """One topic's stored batches, appended to another as they are."""
        batches = self._curl(f"/topics/{topic}/partitions/0/batches?offset=0&to={rows}")
        answer = self._curl.post(f"/topics/{to}/partitions/0/batches", BATCHES, batches)
        return sum(batch["last_offset"] - batch["base_offset"] + 1 for batch in answer["batches"])

    # -- out: each returns keys and values -----------------------------------------------------------------------------

    def read_text(self, topic: str, rows: int) -> list[tuple[bytes, bytes]]:
        """Stateless reads, from where the one before ended; keys and values as strings."""
        return [(record["key"].encode(), record["value"].encode()) for record in self._records(topic, rows, TEXT)]

    def read_binary(self, topic: str, rows: int) -> list[tuple[bytes, bytes]]:
        """The same with keys and values as base64, which can be any bytes."""
        decode = base64.b64decode
        return [(decode(record["key"]), decode(record["value"])) for record in self._records(topic, rows, BINARY)]

    def read_raw(self, topic: str, rows: int) -> list[tuple[bytes, bytes]]:
        """Kafka's record batches, as they are stored."""
        data = self._curl(f"/topics/{topic}/partitions/0/batches?offset=0&to={rows}")
        records = [record for batch in iter_batches(data) for record in decode_batch(batch)]
        return [(record.key or b"", record.value or b"") for record in records]

    def _records(self, topic: str, rows: int, accept: str) -> Iterator[dict[str, Any]]:
        offset = 0
        while offset < rows:
            path = f"/topics/{topic}/partitions/0/records?offset={offset}&max_bytes=50000"
            records = json.loads(self._curl(path, "-H", f"Accept: {accept}"))
            if not records:
                return
            yield from records
            offset = records[-1]["offset"] + 1


def _record(row: bytes) -> dict[str, Any]:
    """A row as REST v3 takes it; STRING data is stored as it is, without quotes."""
    key, value = ({"type": "STRING", "data": data.decode()} for data in (carrier_of(row), row))
    return {"partition_id": 0, "key": key, "value": value}


def run(doors: Doors, rows: list[bytes]) -> bool:
    """Every way in, and for each a way out. True if everything came back as it was sent."""
    count = len(rows)
    topics = ["curl-v2", "curl-stream", "curl-batch", "curl-copy"]
    v2, stream, batch, copy = topics
    expected = [(carrier_of(row), row) for row in rows]
    for topic in topics:
        doors.create(topic)
    try:
        outcomes = {
            "REST v2 in, text out": doors.write_v2(v2, rows) == count and doors.read_text(v2, count) == expected,
            "v3 stream in, base64 out": doors.write_stream(stream, rows) == count
            and doors.read_binary(stream, count) == expected,
            "v3 batch in, raw batches out": doors.write_batch(batch, rows) == count
            and doors.read_raw(batch, count) == expected,
            "raw batches in, base64 out": doors.copy_raw(batch, copy, count) == count
            and doors.read_binary(copy, count) == expected,
        }
    finally:
        for topic in topics:
            doors.delete(topic)
    for name, is_right in outcomes.items():
        print(f"{name}: {count} records, {'as they were sent' if is_right else 'NOT as they were sent'}")
    return all(outcomes.values())


def main() -> int:
    """Runs the example; returns the exit status."""
    parser = argparse.ArgumentParser(description="Sends a thousand rows through every part of the HTTP API with curl.")
    parser.add_argument("--bootstrap", metavar="URL", help="a running broker; default: one started for this")
    options = parser.parse_args()
    try:
        with broker(options.bootstrap) as base, tempfile.TemporaryDirectory() as directory:
            return 0 if run(Doors(Curl(base, Path(directory))), read_flights(ROWS)) else 1
    except (BrokerFailed, CurlFailed) as error:
        print(f"error: {error}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
