"""Quota enforcement: what one broker lets its clients use, by the cluster's quotas (`model/quotas.py`).

Each broker enforces a quota by itself, as in Kafka: a client of three brokers may use it three times. A use is judged
by the debt of its token bucket: without debt it passes at once; with a debt that is paid off within `DELAY_S_MAX` it is
charged now and waits until then; with a longer one it is refused and not charged. So the use within t seconds, over any
number of connections, is

    at most  rate x (t + BURST_S)  and the last use that passed

The number of buckets is bounded: the least recently used one is dropped, and starts full again. Without quotas only
`are_set` is called. The connections of each user are counted as they are used (`hold`), once there is any quota.
"""

from __future__ import annotations

import asyncio
import math
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple

from tidelog.model.access import Principal
from tidelog.model.errors import QuotaExceeded, TooManyConnections
from tidelog.model.quotas import (
    CONNECTION_CREATION_RATE,
    CONNECTIONS,
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    PRODUCER_BYTE_RATE,
    BucketName,
    Quota,
    QuotaTable,
    canonical_address,
)
from tidelog.replication.token_bucket import TokenBucket

BURST_S: Final = 1.0
DELAY_S_MAX: Final = 1.0
PACE_S_MAX: Final = 30.0
"""Longest delay in seconds of one piece of a stream that has begun, which cannot be refused any more."""


class Client(NamedTuple):
    """The principal and client id that a request's use is charged to."""

    principal: Principal
    client_id: str = ""
    """The client id that the client sent; empty if it sent none."""


class Shares:
    """Quota enforcement at one broker, over all its listeners."""

    def __init__(
        self,
        now_s: Callable[[], float],
        buckets_max: int,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """`buckets_max` bounds the number of token buckets."""
        self.are_set = False
        """True if there is any quota."""
        self._now_s = now_s
        self._buckets_max = buckets_max
        self._sleep = sleep
        self._quotas: tuple[Quota, ...] = ()
        self._table = QuotaTable(())
        self._buckets: OrderedDict[BucketName, TokenBucket] = OrderedDict()
        self._held: dict[str, int] = {}
        """Number of open connections by user."""
        self.delayed: dict[str, int] = {}
        """Number of uses that were delayed, by quota key."""
        self.refused: dict[str, int] = {}
        """Number of uses that were refused, by quota key."""

    def follow(self, quotas: tuple[Quota, ...]) -> None:
        """Takes over the cluster's quotas from this broker's metadata. Token buckets keep their debts, unless there is
        no quota any more."""
        if quotas is self._quotas:
            return
        self._quotas, self._table, self.are_set = quotas, QuotaTable(quotas), bool(quotas)
        if not quotas:
            self._buckets.clear()

    @property
    def buckets(self) -> int:
        """Number of token buckets in memory."""
        return len(self._buckets)

    async def use(self, key: str, caller: Client, amount: float, wait_s_max: float = DELAY_S_MAX) -> float:
        """Charges a client for what it is about to use, waits until its debt is paid off, and returns the seconds
        waited. Raises `QuotaExceeded`, without charging, if that would take longer than `wait_s_max`.
        """
        bucket_and_name = self._of_client(key, caller)
        if bucket_and_name is None:
            return 0.0
        bucket, name = bucket_and_name
        now_s = self._now_s()
        owed_s = bucket.owed_s(now_s)
        if owed_s > wait_s_max:
            raise self._refusal(name, bucket, owed_s)
        bucket.spend(amount, now_s)
        if owed_s > 0:
            self.delayed[key] = self.delayed.get(key, 0) + 1
            await self._sleep(owed_s)
        return owed_s

    def charge(self, key: str, caller: Client, amount: float) -> None:
        """Charges a client for further use by a request that was already admitted, without waiting."""
        bucket_and_name = self._of_client(key, caller)
        if bucket_and_name is not None:
            bucket_and_name[0].spend(amount, self._now_s())

    def owed_s(self, key: str, caller: Client) -> float:
        """Returns the seconds until a client's debt under the quota `key` is paid off. A listener that does not read
        the client's connection for so long need not refuse its requests.
        """
        bucket_and_name = self._of_client(key, caller)
        owed_s = 0.0 if bucket_and_name is None else bucket_and_name[0].owed_s(self._now_s())
        if owed_s > 0:
            self.delayed[key] = self.delayed.get(key, 0) + 1
        return owed_s

    def refuse_if_owing(self, key: str, caller: Client) -> None:
        """Raises `QuotaExceeded` for a client whose debt is longer than `DELAY_S_MAX`."""
        bucket_and_name = self._of_client(key, caller)
        if bucket_and_name is not None and (owed_s := bucket_and_name[0].owed_s(self._now_s())) > DELAY_S_MAX:
            raise self._refusal(bucket_and_name[1], bucket_and_name[0], owed_s)

    def admits_connection(self, address: str) -> bool:
        """Charges an address for a connection that it has opened. Returns False if it has opened connections too
        often.
        """
        quota = self._table.of_address(CONNECTION_CREATION_RATE, canonical_address(address))
        if quota is None:
            return True
        bucket = self._bucket(*quota)
        now_s = self._now_s()
        if bucket.owed_s(now_s) > 0:
            self.refused[CONNECTION_CREATION_RATE] = self.refused.get(CONNECTION_CREATION_RATE, 0) + 1
            return False
        bucket.spend(1, now_s)
        return True

    def hold(self, user: str) -> None:
        """Counts a connection for a user, until `release`. Raises `TooManyConnections`, without counting, if the user
        has as many as its quota allows.
        """
        count, quota = self._held.get(user, 0), self._table.of_client(CONNECTIONS, user, "")
        if quota is not None and count >= quota[1]:
            self.refused[CONNECTIONS] = self.refused.get(CONNECTIONS, 0) + 1
            raise TooManyConnections(
                f"user {user} has {count} connections open, as many as its quota {CONNECTIONS} allows at each broker; "
                "close some, or ask the cluster's administrator for more (tidelog quota)"
            )
        self._held[user] = count + 1

    def release(self, user: str) -> None:
        """Subtracts a connection of a user, which is closed or has another user now."""
        self._held[user] -= 1
        if not self._held[user]:
            del self._held[user]

    def _of_client(self, key: str, caller: Client) -> tuple[TokenBucket, BucketName] | None:
        quota = self._table.of_client(key, caller.principal.name, caller.client_id)
        return None if quota is None else (self._bucket(*quota), quota[0])

    def _bucket(self, name: BucketName, rate: float) -> TokenBucket:
        """Returns the token bucket of this name and sets its rate, keeping its debt."""
        now_s = self._now_s()
        bucket = self._buckets.get(name)
        if bucket is None:
            bucket = self._buckets[name] = TokenBucket(BURST_S)
            bucket.set_rate(rate, now_s)
            bucket.fill(now_s)
            if len(self._buckets) > self._buckets_max:
                self._buckets.popitem(last=False)
        else:
            self._buckets.move_to_end(name)
            bucket.set_rate(rate, now_s)
        return bucket

    def _refusal(self, name: BucketName, bucket: TokenBucket, owed_s: float) -> QuotaExceeded:
        self.refused[name.key] = self.refused.get(name.key, 0) + 1
        whose = "this client" if name.user is None else f"user {name.user}"
        return QuotaExceeded(
            f"{name.key} of {whose} is {bucket.rate:g} per second at each broker, which is used up for {owed_s:.1f} s; "
            "send less, or ask the cluster's administrator for more (tidelog quota)",
            retry_after_s=max(1, math.ceil(owed_s - DELAY_S_MAX)),
        )


class Share:
    """The quota use of one request."""

    __slots__ = ("_caller", "_produces", "_shares", "waited_s")

    def __init__(self, shares: Shares, caller: Client, *, produces: bool) -> None:
        """`produces` is True if the request's body counts as produced bytes."""
        self._shares = shares
        self._caller = caller
        self._produces = produces
        self.waited_s = 0.0
        """Seconds for which the request was delayed so far."""

    @property
    def waited_ms(self) -> str:
        """Returns `waited_s` in ms, rounded up, as Kafka reports it (`throttle_time_ms`)."""
        return str(math.ceil(self.waited_s * 1000))

    async def use(self, key: str, amount: float) -> None:
        """Charges the client for `amount` under the quota `key`, and waits until its debt is paid off. Raises
        `QuotaExceeded`.
        """
        self.waited_s += await self._shares.use(key, self._caller, amount)

    async def mutate(self, count: int) -> None:
        """Charges for the creation or deletion of topics, partitions or groups. Raises `QuotaExceeded`."""
        await self.use(CONTROLLER_MUTATION_RATE, count)

    async def send(self, size: int) -> None:
        """Charges for record data to be sent to the client. Raises `QuotaExceeded`."""
        await self.use(CONSUMER_BYTE_RATE, size)

    async def send_more(self, size: int) -> None:
        """Charges for a further piece of a streamed answer. Raises `QuotaExceeded` if it would have to wait longer than
        `PACE_S_MAX`.
        """
        self.waited_s += await self._shares.use(CONSUMER_BYTE_RATE, self._caller, size, PACE_S_MAX)

    def refuse_to_send(self) -> None:
        """Raises `QuotaExceeded` if the client's debt is too long to send it record data."""
        self._shares.refuse_if_owing(CONSUMER_BYTE_RATE, self._caller)

    async def take(self, size: int) -> None:
        """Charges for a request body before it is read, or for the first piece of a chunked one, if the request
        produces. Raises `QuotaExceeded`.
        """
        if self._produces:
            await self.use(PRODUCER_BYTE_RATE, size)

    def take_more(self, size: int) -> None:
        """Charges for a further piece of a chunked request body, without waiting: the body was admitted with its first
        piece.
        """
        if self._produces:
            self._shares.charge(PRODUCER_BYTE_RATE, self._caller, size)

    async def take_on(self, size: int) -> None:
        """Charges for a further piece of a streamed body. Raises `QuotaExceeded` if it would have to wait longer than
        `PACE_S_MAX`.
        """
        self.waited_s += await self._shares.use(PRODUCER_BYTE_RATE, self._caller, size, PACE_S_MAX)
