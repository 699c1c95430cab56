"""A client connection: requests are begun in order, and their answers sent in the same order (`pipeline.py`).

A request that cannot begin yet stops the reading of its connection. It waits for memory, for room in a partition's
request queue, or for its client's quota. A request that can be answered at once is answered in the callback in which it
arrived; only one that has to wait becomes a task, which ends with the connection.

A malformed frame closes the connection, as in Kafka, since the start of the next frame is unknown.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

import structlog

from tidelog.broker.kafka.api_versions import answer_too_new, answer_versions, client_software
from tidelog.broker.kafka.apis import APIS, Key
from tidelog.broker.kafka.call import Answer, Head, read_call
from tidelog.broker.kafka.fetch import Fetching
from tidelog.broker.kafka.fetch_codec import LastFetch
from tidelog.broker.kafka.groups.beats import Beats
from tidelog.broker.kafka.handlers import Handlers
from tidelog.broker.kafka.held_frame import HeldFrame
from tidelog.broker.kafka.identity import Identity
from tidelog.broker.kafka.listener_parts import Parts
from tidelog.broker.kafka.means import ROOM_LOOK_S, Lack, Means
from tidelog.broker.kafka.memory import ConnectionMemory
from tidelog.broker.kafka.metadata import MetadataRequest
from tidelog.broker.kafka.pipeline import Pipeline, Slot
from tidelog.broker.kafka.produce import Production
from tidelog.broker.kafka.produce_codec import ProduceRequest, read_produce, write_produced
from tidelog.broker.kafka.produce_form import Known, ProduceForms
from tidelog.broker.kafka.slices import finished
from tidelog.model.errors import NotAuthenticated, Overloaded, TooManyConnections
from tidelog.model.kafka_wire import Malformed
from tidelog.model.ports import ClientConnection
from tidelog.model.steps import Steps, drive

KEY_BYTES: Final = 2

logger = structlog.get_logger("tidelog.kafka")


class Connection:
    """A client connection (a `ClientReceiver`: the receiver of its frames)."""

    def __init__(self, parts: Parts, handlers: Handlers, stream: ClientConnection, address: str) -> None:
        self.address = address
        self._parts = parts
        self._handlers = handlers
        self._stream = stream
        self._loop = asyncio.get_running_loop()
        self._now_s = parts.face.clock.monotonic_s
        self._came_s = self._now_s()
        self._held = HeldFrame(stream, self._begin, self._now_s)
        self._task: asyncio.Task[None] | None = None
        self._is_lost = self._is_draining = False
        self._software = ""
        self._identity = Identity(parts.face, handlers.rules, address)
        self._memory = ConnectionMemory(parts.admission, stream, parts.limits.request_timeout_ms_max / 1000)
        self._means = Means(parts, self._memory)
        self._forms = ProduceForms()
        self._last_fetch = LastFetch()
        self._beats = Beats(parts)
        self._waiting_fetch: tuple[Slot, Fetching] | None = None
        """The Fetch that waits for records."""
        self._pipeline = Pipeline(stream, self._memory, parts.face.clock, parts.limits.pipeline_max)

    @property
    def heard_s(self) -> float:
        """Time of the last frame received or answer sent, in seconds of the monotonic clock."""
        return max(self._came_s, self._pipeline.answered_s)

    # -- frames ------------------------------------------------------------------------------------------------------

    def may_begin(self, length: int, begun: bytes) -> bool:
        """Returns True if a frame of this length may be read. Reserves its memory; closes the connection if it is too
        long, or has waited too long for memory."""
        limits = self._parts.limits
        key = int.from_bytes(begun[:KEY_BYTES])
        bound = limits.produce_bytes_max if key == Key.PRODUCE else limits.request_bytes_max
        if not self._identity.is_known:
            bound = limits.login_bytes_max
        if length > bound:
            self._end(f"a request of {length} bytes came; it may have {bound}")
            return False
        try:
            if self._memory.take_frame(length, is_announced=True):
                return True
        except Overloaded as error:
            self._end(error.message)
        else:
            self._stream.hold()
            self._held.try_later(ROOM_LOOK_S)
        return False

    def frame_received(self, frame: memoryview) -> None:
        """Begins a received request, or keeps it and stops reading until it can begin."""
        self._came_s = now_s = self._now_s()
        if not self._begin(frame, now_s, now_s):
            self._held.hold(frame, now_s)
        elif self._parts.turn.ends_with_request():  # a client that sends thousands of small ones keeps others waiting
            self._held.pause()

    def unclogged(self) -> None:
        """Releases the memory of sent records and resumes requests, once the client takes data again."""
        self._memory.release_records()
        self._held.try_again()

    def broken_off(self, why: str) -> None:
        """Counts and logs that the connection was broken off, with the reason."""
        self._handlers.refused("broken off", self._stream.remote, why)

    def connection_lost(self, error: Exception | None) -> None:
        """Cancels the connection's requests and frees its memory. Records already appended stay appended."""
        self._is_lost = True
        self._held.drop()
        if self._task is not None:
            self._task.cancel()
        if self._waiting_fetch is not None:
            self._waiting_fetch[1].leave()
            self._waiting_fetch = None
        self._pipeline.leave()
        self._memory.close()
        self._identity.release()
        self._handlers.lost(self)

    def close(self) -> None:
        """Closes the connection after the answers sent so far."""
        self._stream.close()

    def drain(self) -> None:
        """Closes the connection as soon as no request is in progress."""
        self._is_draining = True
        if self._pipeline.is_empty:
            self._stream.close()

    @property
    def is_busy(self) -> bool:
        """True while a request is in progress or waits to begin."""
        return not self._pipeline.is_empty or self._held.is_there

    def _end(self, why: str) -> None:
        """Closes the connection because of a request that cannot be answered, and counts the reason."""
        if not self._is_lost:
            self._handlers.refused("request", self._stream.remote, why)
            self._stream.close()

    # -- beginning ---------------------------------------------------------------------------------------------------

    def _begin(self, frame: memoryview, came_s: float, now_s: float) -> bool:
        """Begins a request. Returns False if it has to wait. An unforeseen exception is logged and closes the
        connection."""
        try:
            return self._begin_call(frame, came_s, now_s)
        except (Malformed, NotAuthenticated, Overloaded, TooManyConnections) as error:
            self._end(error.message)
        except Exception:
            logger.exception("a request failed in a way that was not foreseen", remote=self._stream.remote)
            self._stream.close()
        return True

    def _begin_call(self, frame: memoryview, came_s: float, now_s: float) -> bool:
        head = Head(frame)
        api = APIS.get(head.key)
        if api is None or not api.oldest <= head.version <= api.newest:
            return self._begin_unknown(frame, head)
        if not self._pipeline.has_turn(api.key) or self._stream.is_clogged:
            return False
        known = self._forms.read(head, frame, came_s) if api.key is Key.PRODUCE else None
        call = read_call(api, head, frame, came_s) if known is None else known.call
        self._identity.refuse(api.key, self._stream.certificate)
        lack = self._means.lack(call, self._identity.caller)
        if lack is not None:
            self._wait_for(lack)
            return False
        slot = Slot(call, len(frame), self._parts.metrics.calls[api.key, head.version])
        if api.key is Key.PRODUCE:
            return self._begin_produce(slot, known, now_s - came_s)
        slot.stats.waiting.observe(now_s - came_s)
        self._begin_alone(slot)
        return True

    def _begin_unknown(self, frame: memoryview, head: Head) -> bool:
        if head.key != Key.API_VERSIONS:
            self._end(f"version {head.version} of call {head.key} is asked for, which ApiVersions does not offer")
        elif not self._pipeline.is_empty:
            return False
        else:
            self._memory.drop_frame()
            self._stream.send(answer_too_new(head))
        return True

    def _wait_for(self, lack: Lack) -> None:
        """Schedules another attempt to begin the request that lacks something."""
        if not self._held.is_there:
            self._parts.metrics.held[lack.reason] += 1
        self._held.try_later(lack.look_s)

    # -- what is alone -----------------------------------------------------------------------------------------------

    def _begin_alone(self, slot: Slot) -> None:
        call = slot.call
        if call.api.key is Key.FETCH:
            self._begin_fetch(slot)
            return
        if call.api.key is Key.API_VERSIONS:
            self._note_software(client_software(call))
            self._pipeline.answer_now(slot, answer_versions(call))
            return
        if call.api.key is Key.METADATA:
            request = MetadataRequest(self._parts.metadata, call, self._identity.caller)
            self._begin_steps(slot, request.try_to_answer(), request.answer_later)
            return
        identity = self._identity
        answer = self._beats.answer_now(call, identity.caller)
        if answer is not None:
            self._pipeline.answer_now(slot, answer)
            return
        self._spawn(slot, partial(self._handlers.answer, call, identity.caller, identity.sasl))

    def _begin_steps(
        self,
        slot: Slot,
        steps: Steps[Answer | None],
        go_on: Callable[[Steps[Answer | None]], Awaitable[tuple[Answer, bool]]],
    ) -> None:
        """Runs the first slice of a request, some milliseconds of work. If it does not bring the answer, starts a task
        that awaits `go_on`, which runs the remaining slices."""
        try:
            next(steps)
        except StopIteration as end:
            if end.value is not None:
                self._pipeline.answer_now(slot, end.value)
                return
        self._spawn(slot, partial(go_on, steps))

    def _begin_fetch(self, slot: Slot) -> None:
        """Begins a Fetch. One that has to wait for records needs no task; one of very many partitions becomes one."""
        charge = partial(self._charge, slot)
        fetching = Fetching(
            self._parts, self._last_fetch, slot.call, self._identity.caller, charge, self._look_at_fetch
        )
        steps = fetching.begin()
        try:
            next(steps)
        except StopIteration as end:
            if end.value is None:
                self._waiting_fetch = slot, fetching
                self._pipeline.begin(slot, is_alone=True)
            else:
                slot.has_error = fetching.has_failed
                self._pipeline.answer_now(slot, end.value)
            return
        self._spawn(slot, partial(fetching.finish, steps))

    def _look_at_fetch(self) -> None:
        """Sends the answer of the Fetch that waits, if it need not wait any longer. Never raises, as partitions call
        it: an unforeseen exception is logged and closes the connection."""
        assert self._waiting_fetch is not None, "it is looked at while it waits"
        slot, fetching = self._waiting_fetch
        try:
            slot.answer = drive(fetching.look_again())
        except Exception:
            logger.exception("a request failed in a way that was not foreseen", call=Key.FETCH.label)
            self._stream.close()
            return
        if slot.answer is not None:
            self._waiting_fetch = None
            self._done(slot)

    def _charge(self, slot: Slot, size: int) -> int:
        slot.record_bytes = size
        return self._means.pacing.charge(slot.call, self._identity.caller, size)

    def _spawn(self, slot: Slot, work: Callable[[], Awaitable[tuple[Answer | None, bool]]]) -> None:
        """Starts a task that awaits `work()` and sends its answer. No other request of the connection runs
        meanwhile."""
        self._pipeline.begin(slot, is_alone=True)
        self._task = self._loop.create_task(self._run(slot, work))

    async def _run(self, slot: Slot, work: Callable[[], Awaitable[tuple[Answer | None, bool]]]) -> None:
        """Awaits the work of a request and sends its answer. An unforeseen exception is logged and closes the
        connection, since the client cannot know the outcome."""
        try:
            slot.answer, slot.has_error = await work()
        except (Malformed, Overloaded) as error:
            self._end(error.message)
            return
        except Exception:
            logger.exception("a request failed in a way that was not foreseen", call=slot.call.api.key.label)
            self._stream.close()
            return
        self._task = None
        self._identity.logged_in()
        self._done(slot)
        sasl = self._identity.sasl
        if sasl is not None and sasl.has_failed:
            self._handlers.refused("login", self._stream.remote, sasl.cause or "no login")
            self._stream.close()

    def _note_software(self, software: str) -> None:
        if software and not self._software:
            self._software = software
            self._parts.metrics.met(software)

    # -- Produce -----------------------------------------------------------------------------------------------------

    def _begin_produce(self, slot: Slot, known: Known | None, waited_s: float) -> bool:
        """Begins a Produce request, whose form may be known. Returns False if it has to wait."""
        if known is not None:
            slot.form, request = known.form, known.request
        else:
            steps = read_produce(slot.call)
            try:
                next(steps)
            except StopIteration as end:
                request = end.value
                self._forms.note(slot.call, request)
            else:
                slot.stats.waiting.observe(waited_s)
                self._spawn(slot, partial(self._produce_in_slices, slot, steps))
                return True
        production = Production(self._parts, slot.call, request, partial(self._produced, slot))
        led = production.led(production.request.entries)
        if waited_s < self._parts.limits.room_s_max and production.wants_room(led, self._held.try_soon):
            self._held.try_later(self._parts.limits.room_s_max)
            return False
        slot.stats.waiting.observe(waited_s)
        slot.production = production
        self._pipeline.begin(slot)
        production.begin(led, self._identity.caller, self._loop.time())
        if production.is_done:
            self._produced(slot, production)
        else:
            self._pipeline.expire_by(production.deadline_s)
        return True

    def _produced(self, slot: Slot, production: Production) -> None:
        slot.production = None  # which references the slot: this frees both without a garbage collection
        if self._is_lost:
            return
        slot.has_error = production.has_failed
        if self._has_answer(production):
            throttle_ms = self._charge_produced(slot)
            slot.answer = (
                drive(write_produced(slot.call, production.request, throttle_ms))
                if slot.form is None
                else slot.form.write(slot.call, production.request, throttle_ms)
            )
        self._done(slot)

    async def _produce_in_slices(self, slot: Slot, steps: Steps[ProduceRequest]) -> tuple[Answer | None, bool]:
        """Serves a Produce request of many partitions in slices, between which the event loop serves other connections.
        Its own connection is not read meanwhile. Returns the answer (None for acks=0), and whether any partition
        failed."""
        work, has_outcomes = self._parts.face.work, asyncio.Event()
        request = await finished(work, steps)
        slot.production = production = Production(self._parts, slot.call, request, lambda _: has_outcomes.set())
        await production.begin_in_slices(self._identity.caller)
        if not production.is_done:
            self._pipeline.expire_by(production.deadline_s)
            await has_outcomes.wait()  # until the deadline at most: then all partitions have an outcome
        if not self._has_answer(production):
            return None, production.has_failed
        answer = write_produced(slot.call, request, self._charge_produced(slot))
        return await finished(work, answer), production.has_failed

    def _has_answer(self, production: Production) -> bool:
        """Returns False for a Produce with acks=0, which has no answer. If a partition refused its records, closes the
        connection as the only way to report that."""
        if production.request.acks == 0 and production.has_failed:
            self._end("records that no answer was asked for were refused")
        return production.request.acks != 0

    def _charge_produced(self, slot: Slot) -> int:
        return self._means.pacing.charge(slot.call, self._identity.caller, slot.size)

    def _done(self, slot: Slot) -> None:
        self._pipeline.done(slot)
        if self._is_draining and self._pipeline.is_empty:
            self._stream.close()
        self._held.try_soon()
