"""MIX: everything at once, at one broker, while a small write goes on every 10 ms and others ask after its health.

The crowd stands for many machines, and so takes only the processor time of this one that nobody else wants.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Final

from tests.e2e.overload.books import JOB_SHIFT, Ledger, Numbered, Target
from tests.e2e.overload.crew import CROWD_NICE, Crew
from tests.e2e.overload.crowds import idle
from tests.e2e.overload.ground import MIB, Ground, Watch, soon
from tests.e2e.overload.large import BATCH_BYTES, PRODUCES, produce_large
from tests.e2e.overload.load import OPENED_AT_ONCE, Pace, paced
from tests.e2e.overload.rates import TOPIC
from tests.e2e.overload.wire import Answer, Link, Place, get, named, plain
from tidelog.broker.runtime.heavy_work import JOBS_MAX
from tidelog.model.batch_codec import DECOMPRESSED_BYTES_MAX, encode_batch
from tidelog.model.batch_header import Compression

LARGE: Final = "large"
CHUNKED: Final = "chunked"
PACKED: Final = "packed"
JSON_MEDIA: Final = "Accept: application/vnd.kafka.json.v2+json"
RATE: Final = 100.0
SECONDS: Final = 20.0
IDLE: Final = 2_000
IDLE_BEFORE_S: Final = 2.0
DRIPPING: Final = 500
DRIP_S: Final = 0.5
DRIPPED_HEAD: Final = b"GET /topics HTTP/1.1\r\nHost: x\r\nX-Long: " + b"x" * 4_000
READERS: Final = 16
PACKED_BYTES: Final = 60 * MIB
CHUNKS: Final = 300_000
CHUNKED_TRIES: Final = 10
WRITE_LINKS: Final = 60
"""The writer has so many connections: a write every 10 ms finds a free one, also while others wait `WRITE_S_MAX`."""
PROBE_S: Final = 0.1
WRITE_S_MAX: Final = 0.5
PROBE_S_MAX: Final = 0.2


async def drip(place: Place, clients: int, seconds: float) -> Counter[str]:
    """Job: connections whose heads come byte by byte. Returns what became of them."""
    links = [Link(place) for _ in range(clients)]
    end_s = time.monotonic() + seconds
    for at in range(0, clients, OPENED_AT_ONCE):
        await asyncio.gather(*(link.open() for link in links[at : at + OPENED_AT_ONCE]))
    for at in range(len(DRIPPED_HEAD)):
        if time.monotonic() >= end_s:
            break
        for link in links:
            if not link.unasked:
                link.write(DRIPPED_HEAD[at : at + 1])
        await asyncio.sleep(DRIP_S)
    ended = Counter(
        f"told {link.unasked}"
        if link.unasked
        else "reset"
        if link.was_reset
        else "gave way"
        if link.is_lost
        else "open"
        for link in links
    )
    for link in links:
        link.close()
    return ended


async def send_chunks(target: Target, chunks: int, begin_s: float, job: int) -> Ledger:
    """Job: a batch whose body comes in chunks of one byte; another one a second later, as long as it is refused."""
    ledger, batches = Ledger(), Numbered(chunks)
    start = target.head("Transfer-Encoding: chunked\r\nConnection: close")
    await asyncio.sleep(max(0.0, begin_s - time.monotonic()))
    for number in range(job << JOB_SHIFT, (job << JOB_SHIFT) + CHUNKED_TRIES):
        framed = b"".join(b"1\r\n%c\r\n" % byte for byte in batches.whole(number)) + b"0\r\n\r\n"
        answer = await asyncio.to_thread(plain, target.place, [start, framed])
        ledger.add(number, answer.outcome)
        if answer.outcome != 503:
            break
        await asyncio.sleep(1.0)
    return ledger


async def read_packed(targets: list[Target], readers: int, begin_s: float, seconds: float) -> Counter[int]:
    """Job: readers of records that are small on the disk and large as JSON, again and again."""
    outcomes: Counter[int] = Counter()

    def read(reader: int) -> None:
        target = targets[reader % len(targets)]
        path = f"/topics/{target.topic}/partitions/{target.partition}/records?offset=0"
        while time.monotonic() < begin_s + seconds:
            answer = get(target.place, path, JSON_MEDIA)
            outcomes[answer.outcome] += 1
            time.sleep(1.0 if answer.outcome == 503 else 0.0)  # as it was told

    await asyncio.sleep(max(0.0, begin_s - time.monotonic()))
    with ThreadPoolExecutor(readers) as pool:
        await asyncio.to_thread(list, pool.map(read, range(readers)))
    return outcomes


@dataclass(slots=True)
class Probed:
    """The answers to whoever asks whether the broker is well."""

    outcomes: Counter[int] = field(default_factory=Counter)
    longest_s: float = 0.0

    def add(self, answer: Answer) -> None:
        """Counts one."""
        self.outcomes[answer.outcome] += 1
        self.longest_s = max(self.longest_s, answer.seconds)


async def probe(place: Place, path: str, begin_s: float, seconds: float) -> Probed:
    """Job: asks every `PROBE_S`, on a connection of its own."""
    found = Probed()
    await asyncio.sleep(max(0.0, begin_s - time.monotonic()))
    while time.monotonic() < begin_s + seconds:
        found.add(await asyncio.to_thread(get, place, path))
        await asyncio.sleep(PROBE_S)
    return found


def mix(ground: Ground) -> None:
    """All of it to broker 1, which leads all partitions."""
    configs = {"max.message.bytes": str(BATCH_BYTES)}
    writes, [large] = ground.topic(TOPIC, leader=1), ground.topic(LARGE, partitions=1, leader=1, configs=configs)
    [chunked], packed = ground.topic(CHUNKED, partitions=1, leader=1), ground.topic(PACKED, partitions=2, leader=1)
    del ground.ledgers[PACKED]  # its records have no numbers
    _pack(ground, packed)
    seconds, crew, place = ground.spent(SECONDS, 6.0), ground.crew, ground.place(1)
    with Watch(ground, TOPIC, jobs_bytes=JOBS_MAX * DECOMPRESSED_BYTES_MAX) as watch, Crew(CROWD_NICE) as crowd:
        begin_s = soon() + IDLE_BEFORE_S
        wait = crowd.start(idle, place, ground.scaled(IDLE), seconds + 2 * IDLE_BEFORE_S)
        writer = crew.start(paced, Pace(writes, RATE, seconds, begin_s, next(ground.jobs), links=WRITE_LINKS))
        health = {path: crew.start(probe, place, path, begin_s, seconds) for path in ("/readyz", "/metrics")}
        time.sleep(IDLE_BEFORE_S)
        dripping = crowd.start(drip, place, ground.scaled(DRIPPING), seconds)
        reading = crowd.start(read_packed, packed, READERS, begin_s, seconds)
        chunks = crowd.start(send_chunks, chunked, ground.scaled(CHUNKS), begin_s, next(ground.jobs))
        flood = crowd.start(produce_large, large, BATCH_BYTES, ground.scaled(PRODUCES), begin_s, next(ground.jobs))
        _say_crowds(ground, {"idle connections": wait, "dripping heads": dripping})
        _say_health(ground, health)
        ground.ledgers[LARGE].merge(flood.result())
        ground.ledgers[CHUNKED].merge(chunks.result())
        report = writer.result()
        ground.ledgers[TOPIC].merge(report.ledger)
        outcomes = reading.result()
    ground.answered(f"a write every {1000 / RATE:.0f} ms", report.ledger)
    measured, bound = f"{1000 * report.longest_s:.0f} ms", f"{1000 * WRITE_S_MAX:.0f} ms"
    ground.figure("the longest wait of a write", measured, bound, report.longest_s <= WRITE_S_MAX)
    refused = report.sent - report.ledger.outcomes[200] + report.held_back
    ground.figure("writes that were refused, or could not be sent", str(refused), "0", refused == 0)
    ground.answered(f"{ground.scaled(PRODUCES)} produces of {BATCH_BYTES // MIB} MiB", ground.ledgers[LARGE])
    ground.answered(f"a body of {ground.scaled(CHUNKS):,} chunks", ground.ledgers[CHUNKED])
    ground.answered(f"{READERS} readers of {PACKED_BYTES // MIB} MiB of JSON", Ledger(outcomes=outcomes))
    watch.say_memory()
    watch.say_roles()
    ground.read_back()


def _pack(ground: Ground, targets: list[Target]) -> None:
    """Writes one record of that much JSON, longer than any that is shown, and the same in eight records."""
    item = b'{"sensor":"north","at":1700000000000,"value":21.5},'
    for target, records in zip(targets, (1, 8), strict=True):
        value = b"[" + item * (PACKED_BYTES // records // len(item)) + b"0]"
        at_ms = int(time.time() * 1000)
        batch = bytes(encode_batch([(at_ms, None, value)] * records, compression=Compression.ZSTD))
        start = target.head(f"Content-Length: {len(batch)}\r\nConnection: close")
        outcome = plain(target.place, [start, batch]).outcome
        ground.correct(
            f"{records} packed records, {len(batch):,} bytes", named(outcome), "acknowledged", outcome == 200
        )


def _say_crowds(ground: Ground, crowds: dict[str, Future[Counter[str]]]) -> None:
    for name, job in crowds.items():
        ended = job.result()
        told = ", ".join(f"{count:,} {what}" for what, count in sorted(ended.items()))
        ground.correct(f"{ended.total():,} {name}", told, "none is reset", not ended["reset"])


def _say_health(ground: Ground, health: dict[str, Future[Probed]]) -> None:
    for path, job in health.items():
        found = job.result()
        told = Ledger(outcomes=found.outcomes).told()
        ground.correct(f"{path} all the while", told, "200", set(found.outcomes) == {200})
        is_soon = found.longest_s <= PROBE_S_MAX
        bound = f"{1000 * PROBE_S_MAX:.0f} ms"
        ground.figure(f"{path}: the longest wait", f"{1000 * found.longest_s:.0f} ms", bound, is_soon)
