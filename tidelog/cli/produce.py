"""`tidelog produce`: writes lines as records.

The outcome of every record is tracked, because an error that only says "some were lost" cannot be repaired. So a
failure reports how many records are certainly in the log, how many are certainly not, and how many are unknown.
"""

from __future__ import annotations

import asyncio
import os
import signal
import stat
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

from tidelog.cli.connection import ENDING, connected, run
from tidelog.cli.lines import LineReader
from tidelog.cli.options import (
    Acks,
    Bootstrap,
    Codec,
    Json,
    KeySeparator,
    TopicName,
    Transport,
    Way,
    separator_bytes,
)
from tidelog.cli.security import client_arguments
from tidelog.cli.tables import byte_progress
from tidelog.cli.tally import Tally
from tidelog.cli.terminal import EXIT_DONE, EXIT_INTERRUPTED, EXIT_TERMINATED, CommandError, Notices, say
from tidelog.model.errors import InvalidRequest, TidelogError, TooLarge
from tidelog.producer import Delivery, Producer
from tidelog.transport.addresses import DEFAULT_BOOTSTRAP

CHUNKS_MAX = 16
"""Maximum chunks of lines in flight: enough to keep a broker busy, far less than the producer's memory."""
STDIN = 0


def produce(
    topic: TopicName,
    file: Annotated[str, typer.Argument(metavar="[FILE]", help="Default: standard input.", show_default=False)] = "-",
    key_separator: KeySeparator = None,
    acks: Annotated[Acks, typer.Option(help="Wait for: the commit quorum, the leader, nobody.")] = Acks.ALL,
    compression: Annotated[Codec, typer.Option(help="Of whole batches.")] = Codec.NONE,
    partition: Annotated[int | None, typer.Option(min=0, metavar="P", help="All records go to this one.")] = None,
    timeout_ms: Annotated[int, typer.Option(min=1, metavar="MS", help="How long a record may be under way.")] = 30_000,
    transport: Transport = Way.AUTO,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: Json = False,
) -> None:
    """Write records to a topic: each line of a file, or of standard input, is one.

    Records with a key go to the key's partition; those without are spread over all. Retries never write a record twice,
    except with --acks 0, which does not retry.

    \b
    Examples:
      tidelog produce flights flights.ndjson
      echo 'UA:{"to": "IAH"}' | tidelog produce flights --key-separator :
      tail -f access.log | tidelog produce access --acks 1 --compression zstd
    """
    job = _Job(topic, partition, separator_bytes(key_separator))
    with Notices(), _opened(file) as fd:
        producer = Producer(
            bootstrap,
            acks=acks.value,
            compression_type=compression.value,
            delivery_timeout_ms=timeout_ms,
            transport=transport.value,
            **client_arguments(),
        )
        run(job.run(producer, bootstrap, fd))
    say(job.tally.document(topic), f"{topic}: {job.tally.summary()}", as_json=as_json)
    if job.status:
        raise typer.Exit(job.status)


class _Job:
    """Reads lines, keeps a bounded number of them in flight, and counts the outcomes."""

    def __init__(self, topic: str, partition: int | None, separator: bytes | None) -> None:
        self._topic = topic
        self._partition = partition
        self._separator = separator
        self._lines = 0
        self._under_way: asyncio.Queue[tuple[list[Delivery], int] | None] = asyncio.Queue(CHUNKS_MAX)
        self.tally = Tally()
        self.status = EXIT_DONE

    async def run(self, producer: Producer, bootstrap: str, fd: int) -> None:
        """Ends with the input, on a signal, or with the first error, which has a note about the acknowledged
        records."""
        reader = LineReader(fd)
        for number in ENDING:
            asyncio.get_running_loop().add_signal_handler(number, self._interrupt, reader, number)
        async with connected(producer, bootstrap):
            await producer.partitions_for(self._topic)
            if os.isatty(fd):
                print("one record a line; Ctrl-D ends", file=sys.stderr)
            started_s = time.monotonic()
            error = await self._work(producer, reader, os.fstat(fd))
            self.tally.seconds = time.monotonic() - started_s
        if error is not None:
            error.add_note(self.tally.shortfall())
            raise error

    async def _work(self, producer: Producer, reader: LineReader, status: os.stat_result) -> TidelogError | None:
        """Sends until the input ends or a record fails; afterwards every sent record has its outcome. Returns the first
        error."""
        failure: TidelogError | None = None
        with byte_progress(is_shown=stat.S_ISREG(status.st_mode)) as progress:
            bar = progress.add_task(self._topic, total=status.st_size)
            settling = asyncio.create_task(self._settle(reader, lambda size: progress.advance(bar, size)))
            try:
                async for lines in reader:
                    await self._send(producer, lines)
            except TidelogError as error:
                failure = error
            await self._under_way.put(None)
            await settling
        return failure or self.tally.error

    async def _send(self, producer: Producer, lines: list[bytes]) -> None:
        deliveries: list[Delivery] = []
        try:
            for line in lines:
                self._lines += 1
                key, value = self._split(line)
                deliveries.append(await producer.send(self._topic, value, key, self._partition))
        except TooLarge as error:
            raise TooLarge(f"line {self._lines}: {error.message}") from None
        finally:  # what was sent before an error is under way all the same
            await self._under_way.put((deliveries, sum(map(len, lines))))

    async def _settle(self, reader: LineReader, advance: Callable[[int], object]) -> None:
        """Counts outcomes as they arrive. The first error ends the reading, also while it waits for input."""
        while (chunk := await self._under_way.get()) is not None:
            deliveries, size = chunk
            await self.tally.settle(deliveries, size)
            advance(size + len(deliveries))
            if self.tally.error is not None:
                reader.stop()

    def _split(self, line: bytes) -> tuple[bytes | None, bytes]:
        if self._separator is None:
            return None, line
        key, separator, value = line.partition(self._separator)
        if not separator:
            raise InvalidRequest(
                f"line {self._lines} has no key: the separator {self._separator.decode()!r} is not in it"
            )
        return key, value

    def _interrupt(self, reader: LineReader, number: signal.Signals) -> None:
        """Ends the reading on a signal. Lines already read are still delivered; a second signal skips that."""
        self.status = EXIT_INTERRUPTED if number == signal.SIGINT else EXIT_TERMINATED
        reader.stop()
        for ending in ENDING:
            asyncio.get_running_loop().remove_signal_handler(ending)
            signal.signal(ending, signal.SIG_DFL)


@contextmanager
def _opened(file: str) -> Iterator[int]:
    """A context with the descriptor to read from; `-` is standard input."""
    if file == "-":
        yield STDIN
        return
    try:
        fd = os.open(file, os.O_RDONLY)
    except OSError as error:
        raise CommandError(f"cannot read {file}: {error.strerror}") from None
    try:
        if stat.S_ISDIR(os.fstat(fd).st_mode):
            raise CommandError(f"cannot read {file}: it is a directory")
        yield fd
    finally:
        os.close(fd)
