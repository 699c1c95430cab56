"""The ground that a case is played on: three brokers, a crew, what is watched meanwhile, what is said in the end."""

from __future__ import annotations

import asyncio
import json
import threading
import time
import urllib.request
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import count
from types import TracebackType
from typing import Any, Final, NamedTuple, Self

from yarl import URL

from tests.e2e.overload.books import Ledger, Target, read_back
from tests.e2e.overload.crew import Crew
from tests.e2e.overload.wire import Ended, Place
from tidelog.admin import AdminClient
from tidelog.bench.costs import resident_bytes
from tidelog.config.schema import BrokerConfig
from tidelog.testing import LocalCluster

MIB: Final = 1 << 20
ANSWER_BUDGET_BYTES: Final = 64 * MIB
"""The listener's memory for answers, which is no setting."""
LOOK_S: Final = 0.1
SOON_S: Final = 2.0
"""Jobs that begin together begin so much later: by then their connections are open."""


class Row(NamedTuple):
    """A line of the table. A bound of correctness holds on any machine; a figure, on a quiet one."""

    case: str
    done: str
    measured: str
    bound: str
    is_held: bool
    is_correctness: bool


class Ground:
    """A case's cluster, its records, and its rows."""

    def __init__(self, case: str, cluster: LocalCluster, crew: Crew, *, seconds: float, scale: float) -> None:
        self.case, self.cluster, self.crew, self.seconds, self.scale = case, cluster, crew, seconds, scale
        self.rows: list[Row] = []
        self.ledgers: dict[str, Ledger] = {}
        self._partitions: dict[str, int] = {}
        self.jobs = count(1)
        """The next job's number."""

    def scaled(self, number: int, least: int = 1) -> int:
        """Returns as many as this run has of what is this many in a whole one."""
        return max(least, round(number * self.scale))

    def spent(self, seconds: float, least: float = 2.0) -> float:
        """Returns for how long this run does what a whole one does for so long."""
        return max(least, seconds * min(1.0, self.scale))

    def place(self, node_id: int) -> Place:
        """Returns where a broker listens."""
        url = URL(self.cluster.broker(node_id).url)
        assert url.host is not None and url.port is not None
        return Place(url.host, url.port)

    @property
    def places(self) -> list[Place]:
        """Returns the addresses of the brokers' HTTP listeners."""
        return [self.place(node_id) for node_id in self.cluster.node_ids]

    def topic(
        self, name: str, *, partitions: int = 6, leader: int | None = None, configs: Mapping[str, str] | None = None
    ) -> list[Target]:
        """Creates a topic of three replicas. Its leaders take turns, unless one broker is to lead all."""
        nodes = self.cluster.node_ids
        turns = [leader - 1 if leader else partition for partition in range(partitions)]
        replicas = {number: [nodes[(turn + at) % 3] for at in range(3)] for number, turn in enumerate(turns)}
        asyncio.run(_create(self.cluster.bootstrap, name, replicas, dict(configs or {})))
        self.ledgers[name], self._partitions[name] = Ledger(), partitions
        return [Target(name, number, self.place(replicas[number][0])) for number in range(partitions)]

    # -- saying ------------------------------------------------------------------------------------------------------

    def correct(self, done: str, measured: str, bound: str, is_held: bool) -> None:
        """Says how a bound of correctness was held."""
        self.rows.append(Row(self.case, done, measured, bound, is_held, True))

    def figure(self, done: str, measured: str, bound: str = "", is_held: bool = True) -> None:
        """Says a figure, and whether it is within its bound, if there is one."""
        self.rows.append(Row(self.case, done, measured, bound, is_held, False))

    def answered(self, done: str, ledger: Ledger, *, reset_max: int = 0) -> None:
        """Says what became of requests: each has an answer."""
        ended = sum(ledger.outcomes[outcome] for outcome in (Ended.RESET, Ended.CLOSED, Ended.UNANSWERED))
        self.correct(done, ledger.told(), "each is answered; none is reset", ended <= reset_max)

    def read_back(self) -> None:
        """Says whether all that was acknowledged is there once."""
        for topic, ledger in self.ledgers.items():
            found = read_back(self.cluster.broker(1).url, topic, self._partitions[topic])
            wrong = ledger.compare(found)
            told = ", ".join(f"{number} {name}" for name, number in wrong.items() if number)
            count_acknowledged = f"{len(ledger.acknowledged):,} acknowledged, {len(ledger.unknown):,} unknown"
            bound = "all acknowledged are there once"
            self.correct(f"read back {topic}", told or count_acknowledged, bound, not told)


async def _create(bootstrap: str, name: str, replicas: Mapping[int, Sequence[int]], configs: dict[str, str]) -> None:
    async with AdminClient(bootstrap) as admin:
        await admin.create_topic(name, replicas_assignments=replicas, configs=configs)


class Watch:
    """Looks at the brokers while a case is played: their memory, who leads, who is in sync."""

    def __init__(self, ground: Ground, topic: str, *, jobs_bytes: int = 0) -> None:
        """`jobs_bytes` is what a case may have the brokers unpack, beside the budgets of the settings."""
        self._ground, self._topic = ground, topic
        self._pids = [ground.cluster.broker(node_id).pid for node_id in ground.cluster.node_ids]
        self._rest = {pid: resident_bytes(pid) for pid in self._pids}
        self.most = dict(self._rest)
        self._budget = BrokerConfig().http_body_budget_bytes + ANSWER_BUDGET_BYTES + jobs_bytes
        self.shrinks = 0
        self._seen: list[Any] = []
        self._first: list[Any] = []
        self._controller = self._last_controller = 0.0
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._look)

    def __enter__(self) -> Self:
        self._controller = self._controller_epoch()
        self._note_partitions()
        self._first = self._seen
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_over.set()
        self._thread.join()
        if error is None:
            self._note_partitions()
            self._last_controller = self._controller_epoch()

    def _look(self) -> None:
        for turn in count():
            if self._is_over.wait(LOOK_S):
                return
            with suppress(OSError):  # a broker is killed, or too busy: the next look sees it
                self.most = {pid: max(size, _resident(pid)) for pid, size in self.most.items()}
                if turn % 10 == 0:
                    self._note_partitions()

    def _note_partitions(self) -> None:
        url = f"{self._ground.cluster.broker(1).url}/metadata?topics={self._topic}"
        with urllib.request.urlopen(url, timeout=30) as answer:
            found = json.loads(answer.read())["topics"][0]["partitions"]
        pairs = zip(self._seen, found, strict=True) if self._seen else ()
        self.shrinks += sum(not set(before["isr"]) <= set(now["isr"]) for before, now in pairs)
        self._seen = found

    def _controller_epoch(self) -> float:
        return metrics(self._ground.place(1))["tidelog_controller_epoch"]

    @property
    def elections(self) -> int:
        """How often leaders changed."""
        pairs = zip(self._first, self._seen, strict=True)
        return sum(now["leader_epoch"] - before["leader_epoch"] for before, now in pairs)

    def say_memory(self) -> None:
        """Says how much memory the brokers took at most: each at rest, and the settings' budgets for bodies and
        answers, and a fifth."""
        for node_id, pid in zip(self._ground.cluster.node_ids, self._pids, strict=True):
            bound = round(1.2 * (self._rest[pid] + self._budget))
            at_rest = f"1.2 x ({self._rest[pid] / MIB:.0f} at rest + {self._budget / MIB:.0f} budget) MiB"
            measured = f"{self.most[pid] / MIB:.0f} MiB"
            self._ground.figure(f"RSS of broker {node_id}", measured, at_rest, self.most[pid] <= bound)

    def say_roles(self) -> None:
        """Says that nobody left an in-sync set, and that no leader changed."""
        self._ground.figure("ISR shrinks", str(self.shrinks), "0", self.shrinks == 0)
        self._ground.figure("leader elections", str(self.elections), "0", self.elections == 0)
        changes = self._last_controller - self._controller
        self._ground.figure("controller elections", f"{changes:.0f}", "0", changes == 0)


def _resident(pid: int) -> int:
    try:
        return resident_bytes(pid)
    except OSError:
        return 0  # it was killed


def metrics(place: Place) -> dict[str, float]:
    """Returns a broker's samples without labels. Raises `OSError`."""
    with urllib.request.urlopen(f"http://{place.host}:{place.port}/metrics", timeout=30) as answer:
        lines = [line.rpartition(" ") for line in answer.read().decode().splitlines() if not line.startswith("#")]
    return {name: float(value) for name, _, value in lines if "{" not in name}


def soon() -> float:
    """Returns when to begin what is begun together."""
    return time.monotonic() + SOON_S
