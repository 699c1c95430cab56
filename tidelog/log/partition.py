"""The partition that holds a log, as a client accesses it: requests are repeated until their outcome is known.

A request is repeated, with backoff and new metadata, until its deadline, after transient errors and after unknown
outcomes. All these requests are idempotent. An append is, because its batch has a producer id and a sequence number: a
partition that already has it answers with its offsets.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Final, NamedTuple, TypeVar
from urllib.parse import quote

import msgspec

from tidelog.adapters.secret_file import read_secret
from tidelog.adapters.system import SystemEntropy
from tidelog.model.batch_header import RecordBatch, iter_batches, verify_batch
from tidelog.model.cluster import COMMIT_ORDER, TOTAL
from tidelog.model.errors import (
    DamagedBatch,
    InvalidBatch,
    InvalidRequest,
    RecordsLost,
    TidelogError,
    TotalOrderRequired,
    UnknownPartition,
)
from tidelog.model.ids import OFFSET_MAX, ProducerId
from tidelog.model.lost_ranges import within
from tidelog.model.ports import Buffer, Entropy
from tidelog.transport.connections import Pieces
from tidelog.transport.errors import DeliveryExpired, DeliveryUnknown, NoAnswer, decode_answer
from tidelog.transport.offsets import JSON_HEADERS, OffsetQuery, PartitionOffsets, fetch_offsets
from tidelog.transport.security import Security
from tidelog.transport.session import LAST_TRY_S, ClusterSession, needs_refresh, verdict_ms

T = TypeVar("T")
KEEPS_ALL: Final = {"retention.ms": "-1", "retention.bytes": "-1"}


class _NewProducerId(msgspec.Struct, frozen=True):
    producer_id: int


class _BatchOffsets(msgspec.Struct, frozen=True):
    base_offset: int | None


class _Receipt(msgspec.Struct, frozen=True):
    batches: tuple[_BatchOffsets, ...]
    leader_epoch: int


class _Config(msgspec.Struct, frozen=True):
    name: str
    value: str | None


class _Configs(msgspec.Struct, frozen=True):
    data: list[_Config]


class Extent(NamedTuple):
    """Extent of the log: its first position, the end of what is committed, and the end of the leader's copy."""

    beginning: int
    ending: int
    appended_end: int


class LogPartition:
    """The partition that holds a log. Deadlines are in loop time; `request_timeout_ms` limits one try."""

    def __init__(
        self,
        bootstrap: str | Sequence[str],
        topic: str,
        partition: int,
        *,
        request_timeout_ms: float,
        entropy: Entropy | None,
        security: Security,
    ) -> None:
        self._session = ClusterSession(
            bootstrap,
            request_timeout_s=request_timeout_ms / 1000,
            credentials=security.credentials(read_secret),
            entropy=entropy or SystemEntropy(),
            security=security,
        )
        self._topic = topic
        self._partition = partition
        self._path = f"/topics/{quote(topic, safe='')}/partitions/{partition}"

    def __str__(self) -> str:
        return f"{self._topic}-{self._partition}"

    async def open(self) -> None:
        """Connects to the cluster. Raises `ConnectFailed`, `UnknownTopic` or `UnknownPartition`."""
        await self._session.open()
        try:
            count = len((await self._session.topic(self._topic)).partitions)
            if not 0 <= self._partition < count:
                raise UnknownPartition(f"topic {self._topic!r} has {count} partitions, and no {self._partition}")
        except BaseException:
            await self._session.close()
            raise

    async def close(self) -> None:
        """Closes all connections at once. May be called again."""
        await self._session.close()

    # -- what a writer needs -----------------------------------------------------------------------------------------

    async def entry_bytes_max(self, deadline_s: float) -> int:
        """Returns the topic's `max.message.bytes`. Raises `InvalidRequest` if the topic's retention may delete entries,
        and `TotalOrderRequired` if it does not commit them in total order."""

        async def attempt(timeout_s: float) -> dict[str, str | None]:
            target = self._cluster_path(f"/topics/{quote(self._topic, safe='')}/configs")
            answer = await self._session.call("GET", target, timeout_s=timeout_s)
            return {config.name: config.value for config in decode_answer(_Configs, answer).data}

        configs = await self.persist(attempt, deadline_s)
        order = configs.get(COMMIT_ORDER, TOTAL)  # brokers that do not have the setting commit in total order
        if order != TOTAL:
            raise TotalOrderRequired(
                f"a log needs a topic with commit.order=total, and topic {self._topic!r} was created with "
                f"commit.order={order}; nothing was appended: use another topic"
            )
        # With an empty `cleanup.policy` nothing is deleted, whatever the limits say.
        wrong = [f"{name}={configs.get(name)}" for name, value in KEEPS_ALL.items() if configs.get(name) != value]
        if configs.get("cleanup.policy") and wrong:
            raise InvalidRequest(
                f"topic {self._topic!r} has {' and '.join(wrong)}, which deletes entries of a log behind its writer's "
                "back; set retention.ms=-1 and retention.bytes=-1"
            )
        return int(configs["max.message.bytes"] or 0)

    async def new_producer_id(self, deadline_s: float) -> ProducerId:
        """Returns a new unique producer id. If a try has an unknown outcome, its id stays unused."""

        async def attempt(timeout_s: float) -> int:
            body = await self._session.call("POST", self._cluster_path("/producer-ids"), timeout_s=timeout_s)
            return decode_answer(_NewProducerId, body).producer_id

        return ProducerId(await self.persist(attempt, deadline_s))

    async def append(self, batch: Buffer, deadline_s: float, *, expected_end: int | None = None) -> int:
        """Appends a batch that has a producer id and sequence number, and waits until it is committed; returns its base
        offset.

        Raises `EndOffsetMoved` (the log end is not `expected_end`), another definite error of the broker, or
        `DeliveryExpired`: the batch is not in the log and will never be. Raises `DeliveryUnknown`: it may be in the
        log, or may still get there.
        """
        is_uncertain = False

        async def attempt(timeout_s: float) -> int:
            nonlocal is_uncertain
            try:
                return await self._post(batch, timeout_s, expected_end)
            except TidelogError as error:
                # One open outcome among the tries decides. A later refusal says that *this* try is not in the log; the
                # earlier one may be, or may still arrive, and may even be what moved the end.
                is_uncertain = is_uncertain or not error.definite
                raise

        try:
            return await self.persist(attempt, deadline_s)
        except TidelogError as error:
            if is_uncertain:
                raise DeliveryUnknown(f"sent to {self}, and whether it is there is unknown: {error.message}") from error
            if error.retriable:
                raise DeliveryExpired(f"not appended to {self} in time; the last error: {error.message}") from error
            raise

    async def _post(self, batch: Buffer, timeout_s: float, expected_end: int | None) -> int:
        query = f"?acks=all&timeout_ms={verdict_ms(timeout_s)}"
        if expected_end is not None:
            # The leader appends the batch directly behind this end or refuses it, in the same step in which it gives
            # out offsets. A writer that was deposed expects an end before the claim of the other one, so it is refused
            # wherever and whenever it arrives.
            query += f"&expected_end_offset={expected_end}"
        answer = await self._session.attempt(
            "POST", self._leader(), f"{self._path}/batches{query}", body=Pieces([batch]), timeout_s=timeout_s
        )
        if answer.error is not None:
            raise answer.error
        receipt = decode_answer(_Receipt, answer.body)
        # A newer epoch than this client knows of means that a broker has forwarded the batch; the next one goes to the
        # leader directly.
        self._session.note_leader_epoch(self._topic, self._partition, receipt.leader_epoch)
        # The entry is in the log, but a writer that does not know where it ends cannot name its end with the next one.
        if len(receipt.batches) != 1 or receipt.batches[0].base_offset is None:
            raise NoAnswer(f"the receipt does not say where in {self} the batch is")
        return receipt.batches[0].base_offset

    async def delete_before(self, position: int, deadline_s: float) -> None:
        """Deletes the records before a position, on all replicas."""

        async def attempt(timeout_s: float) -> None:
            target = f"{self._cluster_path(self._path)}/records:delete?timeout_ms={verdict_ms(timeout_s)}"
            body = msgspec.json.encode({"before_offset": position})
            answer = await self._session.attempt(
                "POST", self._leader(), target, body=body, headers=JSON_HEADERS, timeout_s=timeout_s
            )
            if answer.error is not None:
                raise answer.error

        await self.persist(attempt, deadline_s)

    # -- what a reader needs -----------------------------------------------------------------------------------------

    async def extent(self, deadline_s: float) -> Extent:
        """Returns the log's current extent, from the leader."""

        async def attempt(timeout_s: float) -> PartitionOffsets:
            query = OffsetQuery(self._topic, self._partition)
            (offsets,) = await fetch_offsets(self._session, [query], timeout_s=timeout_s)
            offsets.extent()
            return offsets

        offsets = await self.persist(attempt, deadline_s)
        beginning, ending = offsets.extent()
        assert offsets.log_end_offset is not None
        return Extent(beginning, ending, offsets.log_end_offset)

    async def fetch(self, offset: int, timeout_s: float, *, bytes_max: int, wait_s: float) -> list[RecordBatch]:
        """Fetches once: returns committed batches, beginning with the one that contains `offset`, and ending before
        lost records. Returns none if none came within `wait_s` seconds.

        Raises `OffsetOutOfRange`; `DamagedBatch`; `RecordsLost` if the records at `offset` are lost; `ConnectFailed`,
        `NoAnswer` or another error in the response, such as `LeaderNotAvailable`.
        """
        query = f"?offset={offset}&max_bytes={bytes_max}&wait_ms={int(1000 * wait_s)}"
        answer = await self._session.attempt("GET", self._leader(), f"{self._path}/batches{query}", timeout_s=timeout_s)
        if answer.error is not None:
            raise answer.error
        lost = within(answer.lost, offset, OFFSET_MAX)
        batches = list(iter_batches(answer.body))
        if lost:
            # What lies behind lost entries is not shown: applied without them it leads to a state that nobody else is
            # in.
            batches = [batch for batch in batches if batch.header.base_offset < lost[0].start]
        # First everything before the loss is given; the error comes when the reader stands in front of it.
        if lost and (not batches or batches[-1].header.next_offset <= offset):
            raise RecordsLost(
                f"{self}: the entries {lost[0]} are lost, and that was accepted; without them nobody knows the state "
                f"that the log leads to. To read what is behind them, begin at {lost[0].end}",
                self._topic,
                self._partition,
                lost[:1],
            )
        try:
            for batch in batches:
                # By the checksum that the writer has computed: what disks and networks in between did to the bytes
                # shows here.
                verify_batch(batch.data)
        except InvalidBatch as error:
            raise DamagedBatch(f"{self}: what was read at offset {offset} is damaged ({error.message})") from error
        return batches

    # -- inside ------------------------------------------------------------------------------------------------------

    async def persist(self, attempt: Callable[[float], Awaitable[T]], deadline_s: float) -> T:
        """Calls `attempt` with its timeout in seconds until it succeeds, and returns its result. Raises its first
        permanent error, or its last error when less than `LAST_TRY_S` is left."""
        backoff = self._session.backoff()
        failure: TidelogError | None = None
        while True:
            # At least one try, also if the deadline has passed on the way here.
            left_s = max(0.001, deadline_s - self._now_s())
            if failure is not None and left_s <= LAST_TRY_S:
                raise failure
            try:
                return await attempt(min(left_s, self._session.request_timeout_s))
            except TidelogError as error:
                failure = error
            wait_s = backoff.next_s()
            # An unknown outcome is tried again as well: repeating any of these requests is harmless.
            if (failure.definite and not failure.retriable) or self._now_s() + wait_s >= deadline_s - LAST_TRY_S:
                raise failure
            await asyncio.sleep(wait_s)
            if needs_refresh(failure):
                with suppress(TidelogError):  # the next try will meet it
                    await self._session.refresh(self._topic, timeout_s=deadline_s - self._now_s())

    def _leader(self) -> str:
        return self._session.leader(self._topic, self._partition)

    def _cluster_path(self, path: str) -> str:
        return f"/v3/clusters/{self._session.cluster_id}{path}"

    @staticmethod
    def _now_s() -> float:
        return asyncio.get_running_loop().time()
