"""Reads of consumer instances, from the request to the JSON of its answer.

A read that finds no records waits without the instance's lock, so that commits do not wait for it; once it has the lock
again it starts from the current state. A newer read replaces an older one, which ends without records: a client that
reads again has given the older request up.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from tidelog.broker.rest_consumers.beginnings import Beginnings
from tidelog.broker.rest_consumers.commits import Commits
from tidelog.broker.rest_consumers.instance import Instance
from tidelog.broker.rest_consumers.reading import READ_BYTES_MAX, Look, Reader, Ready
from tidelog.broker.rest_consumers.registry import Registry
from tidelog.broker.rest_consumers.requests import ReadRecords, RecordsRead, TakeBack
from tidelog.broker.rest_consumers.turns import Turns
from tidelog.broker.routing.json_reads import array_of
from tidelog.model.errors import CoordinatorNotAvailable, FencedMember, FormatMismatch, UnknownMember
from tidelog.transport.peer import Answer

NOTHING: Final = b"[]"


class Shown(NamedTuple):
    """Records as JSON, and the accepted losses (ranges of lost offsets) that were skipped on the way to them."""

    text: bytes = NOTHING
    lost: tuple[tuple[str, int, int, int], ...] = ()

    def __bool__(self) -> bool:
        return self.text != NOTHING or bool(self.lost)


@dataclass(eq=False)
class Reads:
    """The reads of all instances of a broker."""

    _registry: Registry
    _turns: Turns
    _commits: Commits
    _beginnings: Beginnings
    _reader: Reader

    async def read(self, request: ReadRecords) -> Answer:
        """Returns `RecordsRead` and the next records as JSON, without records after the wait or if a newer read has
        begun. Raises `IllegalState` without a subscription or assignment; `FormatMismatch`, `DamagedBatch`,
        `RecordsLost` at a record that cannot be returned; `UnknownInstance`, `CoordinatorNotAvailable`, `Overloaded`.
        """
        loop = asyncio.get_running_loop()
        async with self._turns.of(request) as instance:
            self._begin_read(instance, request)
            await self._commits.keep_unasked(instance, instance.positions.processed())
            settings = instance.what.settings
        wait_ms = settings.request_timeout_ms if request.wait_ms is None else request.wait_ms
        deadline_s = loop.time() + wait_ms / 1000
        has_reset = False
        while True:
            is_last = loop.time() >= deadline_s
            try:
                look, records = await self._look(instance, request, 1 if is_last else settings.fetch_bytes_min)
            except (UnknownMember, FencedMember):  # expelled, just now: it joins again in its next turn
                if is_last:
                    raise
                continue
            if look.lost and not records and not has_reset:
                has_reset = True  # there may be something where it begins now
                continue
            if records or is_last or instance.read != request.attempt:
                return Answer(RecordsRead(settings.format, records.lost), (records.text,))
            if look.ready or look.lost:
                look.is_whole = False  # there is something, which cannot be had now, or is not enough yet
            await self._reader.wait(instance, look, deadline_s)

    async def _look(self, instance: Instance, request: ReadRecords, bytes_min: int) -> tuple[Look, Shown]:
        """Asks the leaders once for records. Returns what they answered, and the records as JSON if there are at least
        `bytes_min` bytes; both empty if a newer read has begun. Raises `CoordinatorNotAvailable` if the instance was
        made anew from its record.
        """
        async with self._turns.of(request) as current:
            if current is not instance:
                raise CoordinatorNotAvailable(f"consumer instance {instance.name} has begun anew; read again")
            if instance.read != request.attempt:
                return Look(), Shown()
            instance.require_reading()
            await self._beginnings.find(instance)
            look = await self._reader.look(instance)
            await self._beginnings.reset(instance, look.lost)
            return look, await self._records(instance, look.ready, request.bytes_max, bytes_min)

    def _begin_read(self, instance: Instance, request: ReadRecords) -> None:
        requested, has = request.format, instance.what.settings.format
        if requested not in (None, has):
            raise FormatMismatch(
                f"consumer instance {instance.name} has format {has}; read it with Accept: "
                f"application/vnd.kafka.{has}.v2+json"
            )
        instance.require_reading()
        instance.positions.begin_read(request.attempt)
        instance.read = request.attempt
        instance.wake()

    async def _records(self, instance: Instance, ready: Sequence[Ready], bytes_max: int, bytes_min: int) -> Shown:
        """Returns the records as JSON and advances the positions past them; returns nothing if there are less than
        `bytes_min` bytes. A skipped loss is returned at once, however few records there are.
        """
        if not ready:
            return Shown()
        collected = await self._reader.collect(ready, min(bytes_max, READ_BYTES_MAX), instance.what.settings)
        try:
            if collected.size < bytes_min and collected.size < bytes_max and not collected.lost:
                return Shown()
            text = array_of(collected.pieces)
        finally:
            self._reader.budget.give_back(collected.taken_bytes)
        instance.positions.move(collected.advanced)
        return Shown(text, tuple(collected.lost))

    def take_back(self, request: TakeBack) -> None:
        """Resets positions to before the read `request.attempt`, whose records did not reach the client."""
        instance = self._registry.find(request.group, request.instance)
        if instance is not None:
            instance.positions.take_back(request.attempt)
