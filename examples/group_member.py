"""One consumer of a group as a program of its own, which says on standard output what it is given, a JSON line each.

    python examples/group_member.py --bootstrap http://127.0.0.1:8082 --group g --topic flights --name c1

`at` is the machine's monotonic clock, which is the same for all its processes:

    {"what": "up", "at": 11.9}                                       from now on SIGTERM ends it in good order
    {"what": "assigned", "at": 12.1, "partitions": [0, 5]}           and `revoked`, `lost`
    {"what": "handed out", "at": 12.5, "asked": 12.3, "records": {"5": [[40, 1007], [41, 1011]]}}
    {"what": "committed", "at": 12.6}
    {"what": "failed", "at": 12.9, "error": "..."}                   a call; the next one goes on

A record is its offset and the number that its value begins with. `at` of a handout is taken as soon as the call has
returned, and the line is written before anything else can happen in the process, a commit above all: whatever a
committed offset of the group covers has been told before.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import Mapping, Sequence

from flights_audit import number_of

from tidelog.consumer import Consumer, ConsumerRebalanceListener, ConsumerRecord
from tidelog.model.errors import TidelogError
from tidelog.model.ids import TopicPartition

POLL_MS = 200
RECORDS_MAX = 500
AUTO_COMMIT_MS = 500
AFTER_FAILURE_S = 0.1


def tell(what: str, **more: object) -> None:
    """One line, in one write: a process that is killed has told it, or not."""
    line = json.dumps({"what": what, "at": time.monotonic(), **more})
    os.write(sys.stdout.fileno(), line.encode() + b"\n")


class Teller(ConsumerRebalanceListener):
    """Tells of rebalances."""

    def on_partitions_assigned(self, assigned: Sequence[TopicPartition]) -> None:
        tell("assigned", partitions=[at.partition for at in assigned])

    def on_partitions_revoked(self, revoked: Sequence[TopicPartition]) -> None:
        tell("revoked", partitions=[at.partition for at in revoked])

    def on_partitions_lost(self, lost: Sequence[TopicPartition]) -> None:
        tell("lost", partitions=[at.partition for at in lost])


async def consume(consumer: Consumer, over: asyncio.Event, *, commits: bool) -> None:
    """Reads until it is `over`; with `commits` it commits by itself what it was given, after each handout."""
    while not over.is_set():
        try:
            called_s = time.monotonic()
            batches = await consumer.getmany(timeout_ms=POLL_MS, max_records=RECORDS_MAX)
            if batches:
                tell("handed out", asked=called_s, records=_shown(batches))
            if batches and commits:
                await consumer.commit()
                tell("committed")
        except TidelogError as error:
            tell("failed", error=f"{type(error).__name__}: {error}")
            await asyncio.sleep(AFTER_FAILURE_S)


def _shown(batches: Mapping[TopicPartition, Sequence[ConsumerRecord]]) -> dict[int, list[tuple[int, int]]]:
    return {
        at.partition: [(record.offset, number_of(record.value)) for record in records]
        for at, records in batches.items()
    }


async def run(options: argparse.Namespace) -> None:
    """From joining to leaving. What it was given last is processed, too, when it is told to end."""
    over = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, over.set)
    tell("up")
    consumer = Consumer(
        bootstrap_servers=options.bootstrap,
        group_id=options.group,
        client_id=options.name,
        auto_offset_reset="earliest",
        session_timeout_ms=options.session_ms,
        enable_auto_commit=not options.commits,
        auto_commit_interval_ms=AUTO_COMMIT_MS,
    )
    consumer.subscribe([options.topic], listener=Teller())
    async with consumer:
        await consume(consumer, over, commits=options.commits)
        try:
            await consumer.commit()
        except TidelogError as error:
            tell("failed", error=f"{type(error).__name__}: {error}")


def main() -> None:
    """Runs the program."""
    parser = argparse.ArgumentParser(description="One consumer of a group, which tells what it is given.")
    parser.add_argument("--bootstrap", required=True, metavar="URLS")
    parser.add_argument("--group", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--name", default="member", help="the group's description shows it; default: %(default)s")
    parser.add_argument("--session-ms", type=int, default=6_000, metavar="MS", help="default: %(default)s")
    parser.add_argument("--commits", action="store_true", help="commit after each handout, not at intervals")
    asyncio.run(run(parser.parse_args()))


if __name__ == "__main__":
    main()
