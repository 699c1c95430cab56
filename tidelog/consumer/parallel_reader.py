"""Processing records by a handler, several at a time: `run`, beside the calls that hand records out."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Final

from tidelog.consumer.options import FetchOptions
from tidelog.consumer.parallel_run import Handler, ParallelRun, RunOptions
from tidelog.consumer.partition_dispatcher import Order
from tidelog.consumer.reader import PartitionReader
from tidelog.model.errors import InvalidRequest
from tidelog.model.ids import TopicPartition
from tidelog.transport.frames.session import RecordSession

WORKERS_MAX: Final = 256
"""The most records that a consumer processes at a time; each may become an interval of a commit."""


class ParallelReader(PartitionReader):
    """A reader of the assigned partitions whose records are handed out, or processed by a handler."""

    def __init__(self, session: RecordSession, options: FetchOptions, *, check_crcs: bool, skips_losses: bool) -> None:
        super().__init__(session, options, check_crcs=check_crcs, skips_losses=skips_losses)
        self._order: Order = options.order
        self._buffer_bytes = options.buffer_bytes
        self._run: ParallelRun | None = None

    async def run(self, handler: Handler, *, workers: int = 16, drain_timeout_ms: float = 30_000) -> None:
        """Processes records: calls `handler(record)`, which is async, for each, for at most `workers` at a time.

        The `order` of the consumer says which records are processed one after the other. A record is processed when its
        handler returns, and is committed then, every `auto_commit_interval_ms`, when its partition is given up, and at
        the end. Returns after `stop` was called by another task. Raises what a handler raises, or what reading raises:
        the first error ends the run, and its record comes again in the next one.

        - `workers`: 1 to 256.
        - `drain_timeout_ms`: how long records that are being processed are waited for at the end, and when their
          partition is given up (then at most half of `max_poll_interval_ms`). At the end they are cancelled after that.

        Raises `InvalidRequest` if the consumer runs already.
        """
        self._check_usable()
        if self._run is not None:
            raise InvalidRequest("this consumer runs already; `stop` ends that")
        if not 1 <= workers <= WORKERS_MAX or drain_timeout_ms < 0:
            raise InvalidRequest(f"workers must be 1 to {WORKERS_MAX}, and drain_timeout_ms not negative")
        group = self._group
        give_up_s = math.inf if group is None else group.give_up_s
        options = RunOptions(
            order=self._order,
            workers=workers,
            patience_s=min(drain_timeout_ms / 1000, give_up_s),
            buffer_bytes=self._buffer_bytes,
        )
        self._current = None
        with super()._call():
            run = self._run = ParallelRun(
                handler, options, self._subscription, self._fetcher, group, self._check_usable, self._news
            )
            try:
                await run.until_ended()
            finally:
                self._run = None
                self._begin_again(run.rewind())

    def _call(self) -> AbstractContextManager[None]:
        if self._order != "total":
            raise InvalidRequest(
                f'a consumer with order="{self._order}" hands out no records: give `run` a handler for them'
            )
        if self._run is not None:
            raise InvalidRequest("this consumer runs: its records go to the handler, and none are handed out beside it")
        return super()._call()

    async def _give_up(self, partitions: Sequence[TopicPartition]) -> None:
        if self._run is not None:
            await self._run.give_up(partitions)
