"""Benchmark workload `guesses`: what a caller who guesses learns from response times, and how guesses slow down others.

One broker with logins and ACLs is asked alternately for two things whose difference the caller may not learn: wrong
passwords of an existing and of a missing user, and an existing and a missing topic, asked for by a user without rights.
The figure for each pair is the difference of the medians. Then records are read, first without other requests, and then
while passwords are guessed without end, each for another user, so that no limit on failures stops the guesses.
"""

from __future__ import annotations

import asyncio
import time
from base64 import b64encode
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict, dataclass
from itertools import count
from statistics import median
from typing import Final

import aiohttp

from tidelog.adapters.secret_file import read_secret
from tidelog.admin import AdminClient
from tidelog.bench.result import Progress, Result, percentiles_ms
from tidelog.bench.secured import Level, connection_of, secured_cluster
from tidelog.transport.security import Security

HIDDEN: Final = "hidden"
SETTINGS: Final = {"http.authentication": "token,basic"}
WRONG: Final = "not the password"
STEPS: Final = 4
Headers = Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class GuessesOptions:
    """Options of the workload `guesses`: how often passwords (`logins`) and topics (`topics`) are tried for each of the
    two cases, how many `reads` are timed without and with guesses, and by how many concurrent `guessers`."""

    logins: int = 50
    topics: int = 500
    reads: int = 1_000
    guessers: int = 8


class _Bench:
    """The broker under test, with methods that send timed requests to it."""

    def __init__(self, session: aiohttp.ClientSession, url: str) -> None:
        self._session = session
        self._url = url
        self._names = count()

    async def ask(self, target: str, headers: Headers, status: int) -> float:
        """Sends a GET request and returns the seconds until its answer, which must have this status."""
        begin_s = time.perf_counter()
        async with self._session.get(self._url + target, headers=headers) as answer:
            await answer.read()
            assert answer.status == status, answer.status
        return time.perf_counter() - begin_s

    async def log_in(self, name: str) -> float:
        """Tries to log in with a wrong password; returns the seconds until the refusal."""
        shown = b64encode(f"{name}:{WRONG}".encode()).decode()
        return await self.ask("/topics", {"Authorization": f"Basic {shown}"}, 401)

    async def users_apart_ms(self, times: int) -> float:
        """Returns the difference between the median refusal times of existing and of missing users, in milliseconds."""
        return await _apart_ms(
            times, lambda number: self.log_in(f"user-{number}"), lambda number: self.log_in(f"none-{number}")
        )

    async def topics_apart_ms(self, times: int, headers: Headers) -> float:
        """Returns the difference between the median refusal times of a hidden and of a missing topic, in
        milliseconds."""
        return await _apart_ms(
            times,
            lambda _: self.ask(f"/topics/{HIDDEN}", headers, 403),
            lambda _: self.ask("/topics/absent", headers, 403),
        )

    async def read_alone_and_beside(self, options: GuessesOptions, headers: Headers) -> tuple[list[float], list[float]]:
        """Returns the seconds that each read takes, first without and then with concurrent guesses."""
        target = f"/topics/{HIDDEN}/partitions/0/records?offset=0&timeout=0"
        alone = [await self.ask(target, headers, 200) for _ in range(options.reads)]
        guessers = [asyncio.create_task(self.guess()) for _ in range(options.guessers)]
        try:
            return alone, [await self.ask(target, headers, 200) for _ in range(options.reads)]
        finally:
            for guesser in guessers:
                guesser.cancel()
            await asyncio.gather(*guessers, return_exceptions=True)

    async def guess(self) -> None:
        """Tries wrong passwords, each for another user, until cancelled."""
        while True:
            await self.log_in(f"nobody-{next(self._names)}")


async def _apart_ms(times: int, *asks: Callable[[int], Awaitable[float]]) -> float:
    """Returns the difference between the medians of two kinds of requests, sent alternately, in milliseconds."""
    samples: tuple[list[float], ...] = tuple([] for _ in asks)
    for number in range(times):
        for seconds, ask in zip(samples, asks, strict=True):
            seconds.append(await ask(number))
    first, second = map(median, samples)
    return 1000 * abs(first - second)


async def measure_guesses(options: GuessesOptions, progress: Progress) -> Result:
    """Runs the workload `guesses` and returns its figures."""
    figures: dict[str, float] = {}
    async with secured_cluster(Level.LOGIN, settings=SETTINGS) as (cluster, to):
        async with AdminClient(**connection_of(cluster)) as admin:
            await admin.create_topic(HIDDEN, partitions=1, replication_factor=1)
            for number in range(options.logins):
                await admin.create_user(f"user-{number}", f"its password {number}")
            stranger = _shown((await admin.create_token("User:stranger")).token)
        member = _shown(read_secret(str(to["token_file"])))
        progress(1, STEPS)
        context = Security(ssl_ca_location=cluster.security["ssl_ca_location"]).context()
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0, ssl=context)) as session:
            bench = _Bench(session, cluster.bootstrap)
            figures["users_apart_ms"] = await bench.users_apart_ms(options.logins)
            progress(2, STEPS)
            figures["topics_apart_ms"] = await bench.topics_apart_ms(options.topics, stranger)
            progress(3, STEPS)
            alone, beside = await bench.read_alone_and_beside(options, member)
    for label, seconds in (("alone", alone), ("beside_guesses", beside)):
        figures |= percentiles_ms(seconds, f"read_{label}_")
    figures["read_p99_ratio"] = figures["read_beside_guesses_p99_ms"] / figures["read_alone_p99_ms"]
    progress(STEPS, STEPS)
    return Result("guesses", asdict(options), figures)


def _shown(token: str) -> Headers:
    return {"Authorization": f"Bearer {token}"}
