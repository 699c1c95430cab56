"""A probe of a broker's response time: a process that repeats one request, and prints how long each answer took.

The request `HEALTH` needs nothing but the broker's event loop, so a longer time shows how long other work held the
loop. The requests of `writes_to` write a record, and wait until all in-sync replicas have it. The probe is a process of
its own, because the workload's event loop is busy when the broker's is. Its times are of the machine's monotonic clock,
so they can be compared with the workload's.

It prints a line for each request: the time of sending, the seconds until the answer, and its status, 0 if none came.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import sys
import time
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from tidelog.adapters.secret_file import read_secret
from tidelog.bench.secured import Connection
from tidelog.transport.addresses import HTTPS
from tidelog.transport.security import Security

PROGRAM = "from tidelog.bench.probe import main; main()"
TIMEOUT_S = 30.0


class Question(NamedTuple):
    """A request, and the seconds between an answer and the next request. With a body it is a POST, else a GET."""

    path: str
    every_s: float
    body: str = ""


HEALTH: Final = Question("/healthz", 0.005)
TEXT: Final = {"Content-Type": "application/vnd.kafka.text.v2+json"}


def writes_to(topic: str, value_bytes: int, every_s: float) -> Question:
    """Returns a request that writes one record with `acks=all`, to be repeated every `every_s` seconds."""
    return Question(f"/topics/{topic}", every_s, json.dumps({"records": [{"value": "." * value_bytes}]}))


class Probe:
    """The measurements of one probing process so far."""

    def __init__(self) -> None:
        self._times: list[tuple[float, float]] = []
        self._refused_s: list[float] = []
        """Send times of the requests that were not answered with success."""

    def add(self, line: bytes) -> None:
        """Parses an output line of the probing process: time of sending, seconds until the answer, status."""
        sent_s, seconds, status = map(float, line.split())
        self._times.append((sent_s, seconds))
        if not 200 <= status < 300:
            self._refused_s.append(sent_s)

    def refused_between(self, begin_s: float, end_s: float) -> int:
        """Returns the number of requests sent from `begin_s` to `end_s` that were refused or not answered."""
        return sum(begin_s <= sent_s < end_s for sent_s in self._refused_s)

    def between(self, begin_s: float, end_s: float) -> list[float]:
        """Returns the seconds until the answer of each request that was in flight between `begin_s` and `end_s`."""
        return [seconds for sent_s, seconds in self._times if sent_s < end_s and begin_s <= sent_s + seconds]


@asynccontextmanager
async def probing(to: Connection, question: Question = HEALTH) -> AsyncIterator[Probe]:
    """Runs a probing process against a broker until the end of the block. The process gets file names of secrets, not
    the secrets."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", PROGRAM, json.dumps(to), json.dumps(question), stdout=PIPE
    )
    assert process.stdout is not None
    probe = Probe()
    probe.add(await process.stdout.readline())

    async def listen() -> None:
        assert process.stdout is not None
        while (line := await process.stdout.readline()).endswith(b"\n"):
            probe.add(line)

    listening = asyncio.create_task(listen())
    try:
        yield probe
    finally:
        process.terminate()
        await process.wait()
        await listening


def main() -> None:
    """Repeats the request given on the command line until the process is killed."""
    to, question = json.loads(sys.argv[1]), Question(*json.loads(sys.argv[2]))
    url = urlsplit(to.pop("bootstrap_servers"))
    connection, login = _connection(url.scheme, url.netloc, Security(**to))
    while True:
        sent_s = time.monotonic()
        status = _ask(connection, question, login)
        print(sent_s, time.monotonic() - sent_s, status, flush=True)
        time.sleep(question.every_s)  # a process of its own, without an event loop


def _connection(scheme: str, address: str, security: Security) -> tuple[http.client.HTTPConnection, dict[str, str]]:
    """Returns a connection, and the headers that authenticate the caller."""
    shown = security.credentials(read_secret)
    login = {} if shown is None else {"Authorization": shown.header}
    if scheme == HTTPS:
        return http.client.HTTPSConnection(address, timeout=TIMEOUT_S, context=security.context()), login
    return http.client.HTTPConnection(address, timeout=TIMEOUT_S), login


def _ask(connection: http.client.HTTPConnection, question: Question, login: Mapping[str, str]) -> int:
    try:
        if question.body:
            connection.request("POST", question.path, question.body, {**TEXT, **login})
        else:
            connection.request("GET", question.path, headers=login)
        answer = connection.getresponse()
        answer.read()
    except (OSError, http.client.HTTPException):
        connection.close()
        return 0
    return answer.status
