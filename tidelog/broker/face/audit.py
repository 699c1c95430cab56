"""The audit log: one line for each refused request and each administrative change, with its caller.

A *denial* (refused request) costs its caller nothing, so denials are bounded: one line per second for a caller and a
reason, `DENIALS_PER_S` in all; the next line has the number of those left out (`more`). A *change* always has its line;
if the disk is too slow, the request that made the change waits, `WAIT_S_MAX` at most.

Lines are encoded and written in batches outside the event loop. If the disk is full or has failed, lines are lost but
no request fails: lost lines are counted and reported in the broker's log. A line is JSON in printable ASCII. Lines may
also go to a topic (`audit_topic.py`), whether or not the file could be written.
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
"""Maximum number of pairs of caller and reason whose denials are counted apart."""
FIELD_CHARS_MAX: Final = 256
COMPLAINT_S: Final = 60.0
_REQUEST_ID: Final = re.compile(r"[A-Za-z0-9._:-]{1,128}")


class AuditEvent(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The content of one line, without its time. Its strings come from callers: they are cut and escaped."""

    event: str
    """`denied` or `changed`; a change that failed has the status of its error."""
    principal: str = ""
    client_id: str = ""
    address: str = ""
    listener: str = ""
    """The listener that took the request: `http`, `ops`, `kafka` or `peer`."""
    request_id: str = ""
    method: str = ""
    route: str = ""
    operation: str = ""
    resource_type: str = ""
    resource_name: str = ""
    subject: str = ""
    """The name of the affected object where the request's path does not have it, for instance a topic to be created."""
    allowed: bool
    status: int = 0
    error_code: int = 0
    reason: str = ""


class AuditSink(Protocol):
    """A destination for lines, such as a file. Called outside the event loop, one call at a time."""

    def write(self, lines: Sequence[bytes]) -> None:
        """Appends complete lines. Raises `OSError` if any of them could not be written."""


class Publisher(Protocol):
    """A second destination for lines, which accepts them without waiting (the audit topic)."""

    @property
    def counts(self) -> Mapping[str, int]:
        """Number of lines by outcome: `published` to the topic; `unpublished`, dropped because its queue was full."""

    def put(self, lines: Sequence[bytes]) -> None:
        """Accepts complete lines."""


class Denials:
    """Decides which denials get a line. Pure: callers pass the time."""

    def __init__(self) -> None:
        self._all = TokenBucket(burst_s=1.0)
        self._all.set_rate(DENIALS_PER_S, 0.0)
        self._all.fill(0.0)
        self._lines: OrderedDict[tuple[str, str], tuple[float, int]] = OrderedDict()
        """For each caller and reason: when the next line is due, and how many denials were left out since the last
        one.
        """
        self._forgotten = 0

    def admit(self, caller: str, reason: str, now_s: float) -> int | None:
        """Returns None if this denial gets no audit line, because its caller and reason had one within the last second
        or all denials together are over their rate; else the number of denials left out since the last line.
        """
        next_s, left_out = self._lines.pop((caller, reason), (0.0, 0))
        is_due = now_s >= next_s and self._all.owed_s(now_s) == 0
        if is_due:
            self._all.spend(1, now_s)
            next_s, reported, left_out = now_s + DENIAL_EVERY_S, left_out + self._forgotten, 0
            self._forgotten = 0
        else:
            left_out += 1
        self._lines[caller, reason] = (next_s, left_out)
        if len(self._lines) > DENIERS_MAX:
            _, (_, forgotten) = self._lines.popitem(last=False)
            self._forgotten += forgotten
        return reported if is_due else None


class Audit:
    """The audit log of one broker. `start` comes first, `stop` once at the end."""

    def __init__(
        self,
        sink: AuditSink | None,
        runner: BlockingRunner,
        clock: Clock,
        entropy: Entropy,
        node_id: int,
        topic: Publisher | None = None,
    ) -> None:
        """`runner` is a thread for this log alone, since other users would have to wait for its disk."""
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
        """Number of lines by outcome: written; left out because of the bound for denials; dropped because the queue was
        full; lost because they could not be written.
        """

    @property
    def outcomes(self) -> dict[str, int]:
        """Number of lines by outcome: those in `counts`, and those of the audit topic if there is one."""
        return self.counts if self._topic is None else {**self.counts, **self._topic.counts}

    def start(self) -> None:
        """Starts the task that writes lines."""
        self._writing = asyncio.create_task(self._write_all(), name="audit")

    async def stop(self) -> bool:
        """Writes the queued lines and stops. Returns False if that took too long, so that the disk may still be
        writing. Idempotent.
        """
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
        """Returns the id of a request: the one that the client offers if it is well-formed, else a random one."""
        if offered is not None and _REQUEST_ID.fullmatch(offered):
            return offered
        return self._entropy.token_hex(8)

    def denied(self, event: AuditEvent) -> None:
        """Queues a line for a denial, or only counts it if denials are over their bound."""
        caller = event.address if event.principal in ("", "User:ANONYMOUS") else event.principal
        left_out = self._denials.admit(caller, event.reason, self._clock.monotonic_s())
        if left_out is None:
            self.counts["left out"] += 1
        elif len(self._queue) >= QUEUE_MAX:
            self.counts["dropped"] += 1
        else:
            self._put(event, left_out)

    async def changed(self, event: AuditEvent) -> None:
        """Queues a line for a change; if the queue is full, waits for room, `WAIT_S_MAX` at most."""
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
        """Queues a line for a change whose client has disconnected; drops it if the queue is full."""
        if len(self._queue) < QUEUE_MAX:
            self._put(event, 0)
        else:
            self.counts["dropped"] += 1

    def refused_peer(self, remote: str, why: str) -> None:
        """Records that a connection of a broker, or of something that claims to be one, was refused."""
        self._refused(remote, "peer", why, operation="ClusterAction")

    def refused_connection(self, listener: str, remote: str, why: str) -> None:
        """Records that a connection was refused, or that its TLS handshake failed."""
        self._refused(remote, listener, why)

    def _refused(self, remote: str, listener: str, reason: str, operation: str = "") -> None:
        """Queues an audit line for a refused connection; `remote` is the other side's address with its port."""
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
        """Encodes events as lines. Runs outside the event loop."""
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
    """Returns an event as a line of JSON in printable ASCII; `more` is the number of denials left out before it."""
    time = datetime.fromtimestamp(wall_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    fields: dict[str, Any] = {"time": time, "node_id": node_id}
    for name, value in structs.asdict(event).items():
        fields[name] = value[:FIELD_CHARS_MAX] if isinstance(value, str) else value
    fields["more"] = more
    return json.dumps(fields).encode() + b"\n"
