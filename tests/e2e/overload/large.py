"""F89: two hundred produces of the largest batch come at once; each gets an answer, and the brokers keep their memory.

Each client is a thread with a plain connection, which sends its whole body before it reads.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from tests.e2e.overload.books import JOB_SHIFT, Ledger, Numbered, Target
from tests.e2e.overload.ground import MIB, Ground, Watch, soon
from tests.e2e.overload.wire import Answer, plain

TOPIC: Final = "large"
BATCH_BYTES: Final = 8 * MIB
PRODUCES: Final = 200
ANSWER_S_MAX: Final = 90.0
"""Such bodies take their time where two hundred share a disk; they are slow, not lost."""


async def produce_large(target: Target, size: int, clients: int, begin_s: float, job: int) -> Ledger:
    """Job: as many batches at one time."""
    batches, ledger = Numbered(size), Ledger()
    start = target.head(f"Content-Length: {batches.size}\r\nConnection: close", "acks=all&timeout_ms=30000")
    bodies = [(number, batches.pieces(number)) for number in range(job << JOB_SHIFT, (job << JOB_SHIFT) + clients)]
    await asyncio.sleep(max(0.0, begin_s - time.monotonic()))
    with ThreadPoolExecutor(clients) as pool:
        for number, answer in await asyncio.to_thread(list, _answers(pool, target, start, bodies)):
            ledger.add(number, answer.outcome)
    return ledger


def _answers(
    pool: ThreadPoolExecutor, target: Target, start: bytes, bodies: list[tuple[int, tuple[bytes, memoryview]]]
) -> Iterator[tuple[int, Answer]]:
    def post(body: tuple[int, tuple[bytes, memoryview]]) -> tuple[int, Answer]:
        number, (first, rest) = body
        return number, plain(target.place, [start, first, rest], ANSWER_S_MAX)

    return pool.map(post, bodies)


def f89(ground: Ground) -> None:
    """All of them to partitions of one broker, whose memory for bodies is a sixth of that."""
    targets = ground.topic(TOPIC, partitions=1, leader=1, configs={"max.message.bytes": str(BATCH_BYTES)})
    clients = ground.scaled(PRODUCES)
    with Watch(ground, TOPIC) as watch:
        begun_s = soon()
        job = ground.crew.start(produce_large, targets[0], BATCH_BYTES, clients, begun_s, next(ground.jobs))
        ledger = job.result()
        took_s = time.monotonic() - begun_s
    ground.ledgers[TOPIC].merge(ledger)
    done = f"{clients} produces of {BATCH_BYTES / MIB:.0f} MiB at once"
    ground.answered(done, ledger)
    ground.figure(f"{done}: until the last answer", f"{took_s:.1f} s")
    watch.say_memory()
    watch.say_roles()
    ground.read_back()
