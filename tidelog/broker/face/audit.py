"""The audit log: who was refused what, and who changed what, one line each, by whom it can be asked for later.

A *denial* is what costs nobody anything to provoke, so its lines are bounded: of one caller and one reason there is a
line a second, over all `DENIALS_PER_S`, and the next line tells how many were left out (`more`). A *change* always has
its line; where the disk is too slow for that, whoever made the change waits, `WAIT_S_MAX` at most.

Lines are made and written beside the event loop, in batches. A disk that is full, or gone, loses lines and troubles no
request: they are counted, and the broker's log says so. A line is JSON in printable ASCII, whatever its fields hold.
Once made, lines may go to a topic as well (`audit_topic.py`), whatever became of them in the file.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections import OrderedDict, deque
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final, Protocol

import structlog
from msgspec import Struct, structs

from tidelog.model.ports import BlockingRunner, Clock, Entropy
from tidelog.replication.token_bucket import TokenBucket

QUEUE_MAX: Final = 10_000
BATCH_MAX: Final = 500
WAIT_S_MAX: Final = 1.0
CLOSE_S_MAX: Final = 2.0
DENIALS_PER_S: Final = 100
DENIAL_EVERY_S: Final = 1.0
DENIERS_MAX: Final = 10_000
"""Callers and reasons whose denials are told apart."""
FIELD_CHARS_MAX: Final = 256
COMPLAINT_S: Final = 60.0
_REQUEST_ID: Final = re.compile(r"[A-Za-z0-9._:-]{1,128}")


class AuditEvent(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The content of one line, but for its time. Its texts may be anything that a caller can say: they are cut, and
    escaped."""

    event: str
    """`denied` or `changed`; a change that failed has the status of its failure."""
    principal: str = ""
    client_id: str = ""
    address: str = ""
    listener: str = ""
    """`http`, `ops`, `kafka` or `peer`."""
    request_id: str = ""
    method: str = ""
    route: str = ""
    operation: str = ""
    resource_type: str = ""
    resource_name: str = ""
    subject: str = ""
    """The name of what the request is about, where its path does not have it: a topic that is made, say."""
    allowed: bool
    status: int = 0
    error_code: int = 0
    reason: str = ""


class AuditSink(Protocol):
    """A place for lines. Called beside the event loop, one call at a time."""

    def write(self, lines: Sequence[bytes]) -> None:
        """Appends whole lines. Raises `OSError` if not all of them are there."""
        ...


class Publisher(Protocol):
    """Another place for lines, which takes them as they are made, without a wait."""

    @property
    def counts(self) -> Mapping[str, int]:
        """Lines by what became of them."""
        ...

    def put(self, lines: Sequence[bytes]) -> None:
        """Takes whole lines."""
        ...


class Denials:
    """Chooses which denials have a line. Pure: time comes in."""

    def __init__(self) -> None:
        self._all = TokenBucket(burst_s=1.0)
        self._all.set_rate(DENIALS_PER_S, 0.0)
        self._all.fill(0.0)
        self._known: OrderedDict[tuple[str, str], tuple[float, int]] = OrderedDict()
        """Maps callers and reasons to when there is a line again, and how many were left out."""
        self._forgotten = 0

    def admit(self, caller: str, reason: str, now_s: float) -> int | None:
        """Returns how many alike were left out before this one, which has a line; None if it is left out."""
        next_s, left_out = self._known.pop((caller, reason), (0.0, 0))
        is_told = now_s >= next_s and self._all.owed_s(now_s) == 0
        if is_told:
            self._all.spend(1, now_s)
            next_s, reported, left_out = now_s + DENIAL_EVERY_S, left_out + self._forgotten, 0
            self._forgotten = 0
        else:
            left_out += 1
        self._known[caller, reason] = (next_s, left_out)
        if len(self._known) > DENIERS_MAX:
            _, (_, forgotten) = self._known.popitem(last=False)
            self._forgotten += forgotten
        return reported if is_told else None


class Audit:
    """The audit log of one broker. `start` before anything else, `stop` once at the end."""

    def __init__(
        self,
        sink: AuditSink | None,
        runner: BlockingRunner,
        clock: Clock,
        entropy: Entropy,
        node_id: int,
        topic: Publisher | None = None,
    ) -> None:
        """`runner` is for this log alone: others would wait for its disk."""
        self._sink = sink
        self._topic = topic
        self._runner = runner
        self._clock = clock
        self._entropy = entropy
        self._node_id = node_id
        self._denials = Denials()
        self._queue: deque[tuple[int, int, AuditEvent]] = deque()
        self._is_waiting = asyncio.Event()
        self._has_room = asyncio.Event()
        self._writing: asyncio.Task[None] | None = None
        self._complained_s = -COMPLAINT_S
        self._logger = structlog.get_logger("tidelog.audit").bind(node_id=node_id)
        self.counts = dict.fromkeys(("written", "left out", "dropped", "lost"), 0)
        """Lines by what became of them: left out as there were too many denials, dropped since too many waited, lost
        as they could not be written."""

    @property
    def outcomes(self) -> dict[str, int]:
        """Returns the counts, those of the topic included."""
        return self.counts if self._topic is None else {**self.counts, **self._topic.counts}

    def start(self) -> None:
        """Begins to write."""
        self._writing = asyncio.create_task(self._write_all(), name="audit")

    async def stop(self) -> bool:
        """Writes what waits, and ends; False if that takes too long: the disk may still be at it. Idempotent."""
        writing, self._writing = self._writing, None
        if writing is None:
            return True
        is_written = True
        try:
            async with asyncio.timeout(CLOSE_S_MAX):
                while self._queue:
                    self._has_room.clear()
                    await self._has_room.wait()
        except TimeoutError:
            is_written = False
            self._lose(len(self._queue), "the disk is too slow")
        writing.cancel()
        await asyncio.gather(writing, return_exceptions=True)
        return is_written

    def request_id(self, offered: str | None) -> str:
        """Returns the id of a request: the one that its client offers, if that is fit to be one, else a new one."""
        if offered is not None and _REQUEST_ID.fullmatch(offered):
            return offered
        return self._entropy.token_hex(8)

    def denied(self, event: AuditEvent) -> None:
        """Notes a denial, or counts it."""
        caller = event.address if event.principal in ("", "User:ANONYMOUS") else event.principal
        left_out = self._denials.admit(caller, event.reason, self._clock.monotonic_s())
        if left_out is None:
            self.counts["left out"] += 1
        elif len(self._queue) >= QUEUE_MAX:
            self.counts["dropped"] += 1
        else:
            self._put(event, left_out)

    async def changed(self, event: AuditEvent) -> None:
        """Notes a change, waiting for room if there is none."""
        try:
            async with asyncio.timeout(WAIT_S_MAX):
                while len(self._queue) >= QUEUE_MAX:
                    self._has_room.clear()
                    await self._has_room.wait()
        except TimeoutError:
            self.counts["dropped"] += 1
            self._complain("a change is not in the audit log: its disk is too slow", "")
            return
        self._put(event, 0)

    def changed_unanswered(self, event: AuditEvent) -> None:
        """Notes a change whose client is gone, so that nobody can wait for room."""
        if len(self._queue) < QUEUE_MAX:
            self._put(event, 0)
        else:
            self.counts["dropped"] += 1

    def refused_peer(self, remote: str, why: str) -> None:
        """Notes that a broker, or whoever speaks like one, was refused."""
        self._refused(remote, "peer", why, operation="ClusterAction")

    def refused_connection(self, listener: str, remote: str, why: str) -> None:
        """Notes that a connection was not let in, or has not got through its TLS handshake."""
        self._refused(remote, listener, why)

    def _refused(self, remote: str, listener: str, reason: str, operation: str = "") -> None:
        """Notes a denial of whoever is at `remote`, an address with a port."""
        host = remote.rpartition(":")[0]
        self.denied(
            AuditEvent(
                event="denied", address=host, listener=listener, operation=operation, allowed=False, reason=reason
            )
        )

    def _put(self, event: AuditEvent, left_out: int) -> None:
        self._queue.append((self._clock.wall_ms(), left_out, event))
        self._is_waiting.set()

    async def _write_all(self) -> None:
        while True:
            await self._is_waiting.wait()
            self._is_waiting.clear()
            while self._queue:
                batch = [self._queue[i] for i in range(min(BATCH_MAX, len(self._queue)))]
                lines = await self._runner.run(partial(self._lines, batch))
                if self._topic is not None:
                    self._topic.put(lines)
                if self._sink is not None:
                    await self._write(self._sink, lines)
                for _ in batch:
                    self._queue.popleft()
                self._has_room.set()

    def _lines(self, batch: Sequence[tuple[int, int, AuditEvent]]) -> list[bytes]:
        """Makes lines, beside the event loop."""
        return [line_of(self._node_id, *entry) for entry in batch]

    async def _write(self, sink: AuditSink, lines: Sequence[bytes]) -> None:
        try:
            await self._runner.run(partial(sink.write, lines))
            self.counts["written"] += len(lines)
        except OSError as error:
            self._lose(len(lines), str(error))

    def _lose(self, count: int, reason: str) -> None:
        self.counts["lost"] += count
        self._complain("lines of the audit log are lost", reason)

    def _complain(self, message: str, reason: str) -> None:
        now_s = self._clock.monotonic_s()
        if now_s >= self._complained_s + COMPLAINT_S:
            self._complained_s = now_s
            self._logger.error(message, reason=reason, lost=self.counts["lost"], dropped=self.counts["dropped"])


def line_of(node_id: int, wall_ms: int, more: int, event: AuditEvent) -> bytes:
    """Returns an event as a line: JSON, nothing but printable ASCII."""
    time = datetime.fromtimestamp(wall_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    fields: dict[str, Any] = {"time": time, "node_id": node_id}
    for name, value in structs.asdict(event).items():
        fields[name] = value[:FIELD_CHARS_MAX] if isinstance(value, str) else value
    fields["more"] = more
    return json.dumps(fields).encode() + b"\n"
