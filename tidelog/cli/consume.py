"""`tidelog consume`: prints records to standard output.

Output is flushed after every batch, so that a pipe gets records at once. The command ends as its options say
(`--max-records`, `--until-end`, `--timeout-ms`), on Ctrl-C or SIGTERM, or when the reader of the pipe has closed it.
"""

from __future__ import annotations

import asyncio
import enum
import math
import os
import re
import stat
import sys
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated

import typer
from aiofiles import stdout_bytes

from tidelog.adapters.heap import collect_seldom
from tidelog.cli.connection import Terminated, connected, run
from tidelog.cli.consume_by_key import Printer, consume_by_key
from tidelog.cli.options import Bootstrap, KeySeparator, TopicName, Transport, Way, separator_bytes
from tidelog.cli.record_text import Show, as_json, as_line
from tidelog.cli.security import client_arguments
from tidelog.cli.terminal import EXIT_INTERRUPTED, Notices, ReaderGone, UsageError, counted
from tidelog.consumer import Consumer, ConsumerRecord, TopicPartition
from tidelog.model.cluster import TOTAL
from tidelog.model.errors import RecordsLost, UnknownPartition
from tidelog.model.ids import OFFSET_MAX
from tidelog.transport.addresses import DEFAULT_BOOTSTRAP

POLL_S = 0.5
"""Seconds to wait for records before checking whether the end was reached."""
JOIN_S = 10.0
"""Seconds to wait for a member's first assignment before `--timeout-ms` counts."""
RECORDS_MAX = 10_000
"""Maximum records to decode and print at a time."""


class OnLoss(enum.Enum):
    """The reaction to lost records that an operator has given up."""

    FAIL = "fail"
    SKIP = "skip"


class Order(enum.Enum):
    """The order in which a partition's records are printed."""

    TOTAL = "total"
    KEY = "key"
    NONE = "none"


def consume(
    topic: TopicName,
    from_beginning: Annotated[bool, typer.Option("--from-beginning", help="Begin with the oldest record.")] = False,
    partitions: Annotated[
        list[int] | None, typer.Option("--partition", min=0, metavar="P", help="Only this one. Repeatable.")
    ] = None,
    offset: Annotated[
        str | None, typer.Option(metavar="N", help="Begin at offset N; at -N, so many before the end.")
    ] = None,
    max_records: Annotated[int | None, typer.Option(min=1, metavar="N", help="Stop after N records.")] = None,
    until_end: Annotated[bool, typer.Option("--until-end", help="Stop at what is the end now.")] = False,
    timeout_ms: Annotated[
        int | None, typer.Option(min=1, metavar="MS", help="Stop when nothing comes for so long.")
    ] = None,
    key_separator: KeySeparator = None,
    show_json: Annotated[
        bool, typer.Option("--json", help="Print a JSON object a line, with all a record has.")
    ] = False,
    on_loss: Annotated[
        OnLoss, typer.Option(help="Where records are lost, and an operator has accepted that: stop, or go on behind.")
    ] = OnLoss.FAIL,
    group: Annotated[
        str | None, typer.Option(metavar="G", help="As one of this consumer group; go on where it is, and commit.")
    ] = None,
    order: Annotated[
        Order,
        typer.Option(
            help="With --group: print the records of a key in their order, or in none, and do not wait for others. "
            "Topics with that commit.order are read above their high watermark."
        ),
    ] = Order.TOTAL,
    transport: Transport = Way.AUTO,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Print a topic's records, one per line; by default those produced from now on.

    In JSON, keys and values are text if they are valid UTF-8, else base64 in key_base64 and value_base64. Header values
    are base64.

    With --group the partitions are shared with the group's other consumers. Reading starts at the group's committed
    offsets; where there is none, at the end, or with --from-beginning at the oldest record. Printed records are
    committed.

    \b
    Examples:
      tidelog consume flights
      tidelog consume flights --from-beginning --max-records 10
      tidelog consume flights --partition 0 --offset -10 --until-end --json
      tidelog consume flights --group billing --from-beginning
      tidelog consume clicks --group billing --order key
    """
    if group is not None and (partitions or offset is not None or until_end):
        raise UsageError(
            "--group: a group's consumers are given their partitions and go on where it is, so leave out --partition, "
            "--offset and --until-end; `tidelog group reset` puts a group elsewhere"
        )
    if order is not Order.TOTAL and group is None:
        raise UsageError(f"--order {order.value} is for consumers in a group, so give --group")
    if offset is not None and from_beginning:
        raise UsageError("--offset and --from-beginning both say where to begin; keep one")
    show = as_json if show_json else as_line(separator_bytes(key_separator), is_for_screen=sys.stdout.isatty())
    reading = _Reading(
        topic,
        partitions or [],
        group=group,
        reset="earliest" if from_beginning else "latest",
        offset=None if offset is None else _parse_offset(offset),
        records_max=OFFSET_MAX if max_records is None else max_records,
        until_end=until_end,
        idle_s_max=math.inf if timeout_ms is None else timeout_ms / 1000,
        on_loss=on_loss.value,
        order=order.value,
        transport=transport.value,
    )
    collect_seldom()
    try:
        with Notices():
            run(_consume(reading, show, bootstrap))
    except KeyboardInterrupt:
        if reading.has_end:
            raise typer.Exit(EXIT_INTERRUPTED) from None
    except Terminated:
        if reading.has_end:
            raise


@dataclass(frozen=True, slots=True)
class _Reading:
    """The options of reading: where to start and when to end."""

    topic: str
    partitions: Sequence[int]
    group: str | None
    reset: str
    offset: int | None
    records_max: int
    until_end: bool
    idle_s_max: float
    on_loss: str
    order: str
    transport: str

    @property
    def has_end(self) -> bool:
        """False if only a signal ends the reading; a signal is then no error."""
        return self.until_end or self.records_max < OFFSET_MAX or self.idle_s_max < math.inf


async def _consume(reading: _Reading, show: Show, bootstrap: str) -> None:
    # An offset that was asked for and does not exist is an error, not a reason to begin elsewhere.
    reset = reading.reset if reading.offset is None else "none"
    topics = () if reading.partitions else (reading.topic,)
    client = Consumer(
        *topics,
        bootstrap_servers=bootstrap,
        group_id=reading.group,
        auto_offset_reset=reset,
        client_id="tidelog-consume",
        on_loss=reading.on_loss,
        order=reading.order,
        transport=reading.transport,
        **client_arguments(),
    )
    async with connected(client, bootstrap) as consumer:
        await _seek(consumer, reading)
        with _reader_watched():
            try:
                await _print(consumer, reading, show)
            except RecordsLost as error:
                error.add_note("hint: --on-loss skip goes on behind what is lost")
                raise
        if reading.group is not None and reading.order == TOTAL:
            await consumer.commit()


async def _print(consumer: Consumer, reading: _Reading, show: Show) -> None:
    if reading.order == TOTAL:
        async for records in _batches(consumer, reading):
            await _write(b"".join(map(show, records)))
    else:
        await consume_by_key(consumer, Printer(consumer, show, _write, reading.records_max), reading.idle_s_max, JOIN_S)


async def _write(output: bytes) -> None:
    """Writes in a thread, so that a full pipe does not block the heartbeats of a group member."""
    try:
        await stdout_bytes.write(output)
        await stdout_bytes.flush()
    except BrokenPipeError:
        raise ReaderGone from None


async def _seek(consumer: Consumer, reading: _Reading) -> None:
    """Assigns the given partitions, if any, and moves to the start of reading."""
    if reading.group is not None:
        await consumer.partitions_for_topic(reading.topic)  # a group would wait for a topic that does not exist
        return
    if reading.partitions:
        partitions = await consumer.partitions_for_topic(reading.topic)
        for partition in reading.partitions:
            if partition not in partitions:
                raise UnknownPartition(
                    f"topic {reading.topic} has {counted(len(partitions), 'partition')}, and no {partition}"
                )
        consumer.assign([TopicPartition(reading.topic, partition) for partition in reading.partitions])
        if reading.offset is None and reading.reset == "latest":
            await consumer.seek_to_end()  # the end as it is now, not when the first fetch gets there
    if reading.offset is None:
        return
    begins = await consumer.beginning_offsets(consumer.assignment())
    ends = await consumer.end_offsets(consumer.assignment())
    for assigned, end in ends.items():
        consumer.seek(assigned, reading.offset if reading.offset >= 0 else max(begins[assigned], end + reading.offset))


async def _batches(consumer: Consumer, reading: _Reading) -> AsyncIterator[list[ConsumerRecord]]:
    """Yields records until the end of reading."""
    loop = asyncio.get_running_loop()
    ends = await consumer.end_offsets(consumer.assignment()) if reading.until_end else {}
    left = reading.records_max
    idle_deadline_s = loop.time() + reading.idle_s_max
    join_deadline_s = loop.time() + (JOIN_S if reading.group else 0.0)
    while left and not await _is_at_end(consumer, ends):
        if not consumer.assignment() and loop.time() < join_deadline_s:
            idle_deadline_s = loop.time() + reading.idle_s_max
        wait_s = min(POLL_S, idle_deadline_s - loop.time())
        if wait_s <= 0:
            return
        batches = await consumer.getmany(timeout_ms=wait_s * 1000, max_records=min(left, RECORDS_MAX))
        for partition, records in batches.items():
            selected = [record for record in records if record.offset < ends.get(partition, OFFSET_MAX)]
            left -= len(selected)
            yield selected
        if batches:
            idle_deadline_s = loop.time() + reading.idle_s_max


async def _is_at_end(consumer: Consumer, ends: Mapping[TopicPartition, int]) -> bool:
    """Returns True if an end is set and reached in all partitions; pauses partitions that have reached it."""
    arrived = [partition for partition, end in ends.items() if await consumer.position(partition) >= end]
    if arrived:
        consumer.pause(*arrived)
    return bool(ends) and len(arrived) == len(ends)


@contextmanager
def _reader_watched() -> Iterator[None]:
    """A context that raises `ReaderGone` as soon as standard output's reader is gone, even if nothing is written: `|
    head -1` must not wait for another record."""
    if not stat.S_ISFIFO(os.fstat(sys.stdout.fileno()).st_mode):
        yield
        return
    loop = asyncio.get_running_loop()
    task = asyncio.current_task()
    assert task is not None
    is_gone = asyncio.Event()

    def end() -> None:
        loop.remove_reader(sys.stdout.fileno())
        is_gone.set()
        task.cancel()

    loop.add_reader(sys.stdout.fileno(), end)  # the writing end of a pipe is readable only by its error
    try:
        yield
    except asyncio.CancelledError:
        if is_gone.is_set():
            raise ReaderGone from None
        raise
    finally:
        loop.remove_reader(sys.stdout.fileno())


def _parse_offset(text: str) -> int:
    if not re.fullmatch(r"[+-]?[0-9]{1,19}", text):
        raise UsageError(f"--offset {text}: give a number; -10 means ten before the end")
    if abs(int(text)) > OFFSET_MAX:
        raise UsageError(f"--offset {text} is beyond what an offset can be, {OFFSET_MAX}")
    return int(text)
