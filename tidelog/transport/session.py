"""`ClusterSession`: a client's requests to one cluster, with the choice of the broker and the retries.

Producer, consumer and admin client each own one `ClusterSession`. It caches the metadata, sends partition requests to
the partition's leader and all others to any broker, and retries: always after a definite, retriable error; after an
indefinite error only if the caller states that repeating is safe.

A broker that is unreachable, or reports that it cannot serve, is avoided for `AVOID_S` in favour of the next known
broker, leader or not, since any broker forwards. So an advertised address that this client cannot reach costs a hop,
not the service. If all brokers have failed, the one that failed longest ago is next: detecting a silent broker takes
longer than `AVOID_S`, and two silent brokers, each retried while the other is avoided, would keep a client from all
others.

A broker that hangs accepts requests without answering. So that it does not use up a request's whole time, it is probed
(`presence.py`): before it is sent a request that must not be repeated, and while a response is awaited that another
broker could give.

Follows Kafka's `NetworkClient` and `Metadata`. One event loop; no tasks of its own.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping, Sequence
from functools import partial
from urllib.parse import quote

from yarl import URL

from tidelog.model.errors import CoordinatorNotAvailable, LeaderNotAvailable, ShuttingDown, TidelogError, UnknownTopic
from tidelog.model.ports import Entropy
from tidelog.transport.addresses import BOOTSTRAP_TIMEOUT_S, HTTPS
from tidelog.transport.backoff import Backoff
from tidelog.transport.connections import Answer, Connections, Pieces
from tidelog.transport.credentials import Credentials
from tidelog.transport.errors import ConnectFailed, NoAnswer, decode_answer, no_broker_answers
from tidelog.transport.metadata import ClusterMetadata, MetadataCache, TopicMetadata, with_scheme
from tidelog.transport.presence import Presence, Silent
from tidelog.transport.retry_budget import RetryBudget
from tidelog.transport.security import PLAIN, Security, scheme_of

AVOID_S = 1.0
LAST_TRY_S = 0.1
"""Minimum seconds left for a retry. A shorter retry would end in "no answer", and hide the known error."""
VERDICT_S = 1.0
"""Seconds that a client waits longer than the broker, so that the broker's result still arrives."""
BOOTSTRAP_STAGGER_S = 0.25
"""Seconds between starting the requests to successive bootstrap addresses (as in RFC 8305)."""
NO_NODE = -1
CANNOT_SERVE = (LeaderNotAvailable, CoordinatorNotAvailable, ShuttingDown)
"""Errors of a broker that cannot serve a request which another broker may be able to serve."""
NO_TOPICS = "/metadata?topics="


class ClusterSession:
    """Requests to the brokers of one cluster.

    `bootstrap` are URLs or `host:port` of some of its brokers, comma-separated or as a list; `request_timeout_s` bounds
    one attempt. `client_id` is sent with each request; `security` configures TLS and authentication.
    """

    def __init__(
        self,
        bootstrap: str | Sequence[str],
        *,
        request_timeout_s: float = 30.0,
        connections_max: int = 64,
        metadata_max_age_s: float = 300.0,
        client_id: str = "",
        credentials: Credentials | None = None,
        entropy: Entropy,
        security: Security = PLAIN,
    ) -> None:
        """Raises `ValueError` for a client id that is no valid header value."""
        self._bootstrap = security.addresses(bootstrap)
        self.scheme = scheme_of(self._bootstrap)
        """`http` or `https`, the same for all brokers."""
        context = security.context() if self.scheme == HTTPS else None
        self._connections = Connections(
            connections_max=connections_max, client_id=client_id, context=context, credentials=credentials
        )
        self._cache = MetadataCache(max_age_s=metadata_max_age_s)
        self._entropy = entropy
        self._retries = RetryBudget()
        self._share = entropy.uniform(0, 1)
        self._turn = 0
        self._failed_s: dict[str, float] = {}
        """The time of a broker's last failure, by address, until its next response."""
        self._presences: dict[str, Presence] = {}
        self._refreshing = asyncio.Lock()
        self.request_timeout_s = request_timeout_s
        self.metadata_max_age_s = metadata_max_age_s
        self.cluster_id = ""

    async def open(self) -> None:
        """Opens the connection pool and contacts the cluster.

        Raises `ConnectFailed` with the addresses if no bootstrap broker answers within `BOOTSTRAP_TIMEOUT_S`.
        """
        await self._connections.open()
        try:
            await self._find_cluster(min(BOOTSTRAP_TIMEOUT_S, self.request_timeout_s))
        except BaseException:
            await self.close()
            raise

    async def _find_cluster(self, timeout_s: float) -> None:
        """Requests metadata from the bootstrap addresses, started `BOOTSTRAP_STAGGER_S` apart, until one answers. So an
        unresponsive address does not delay the others."""

        async def ask(turn: int, address: str) -> None:
            await asyncio.sleep(turn * stagger_s)
            left_s = timeout_s - turn * stagger_s
            try:
                body = await self.call("GET", NO_TOPICS, address=address, timeout_s=left_s)
            except (ConnectFailed, NoAnswer) as error:
                raise no_broker_answers(self._bootstrap, timeout_s, error) from error
            self._remember(decode_answer(ClusterMetadata, body))
            for task in (*tasks[:turn], *tasks[turn + 1 :]):
                task.cancel()

        stagger_s = min(BOOTSTRAP_STAGGER_S, timeout_s / len(self._bootstrap))
        tasks = [asyncio.create_task(ask(turn, address)) for turn, address in enumerate(self._bootstrap)]
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        failures = [outcome for outcome in outcomes if outcome is not None]
        if len(failures) == len(outcomes):
            # An address that says why no connection opens tells more than one from which nothing comes.
            raise min(failures, key=lambda failure: isinstance(failure.__cause__, NoAnswer))

    async def close(self) -> None:
        """Closes all connections; requests in flight fail. Idempotent."""
        await self._connections.close()
        probes = [task for presence in self._presences.values() for task in presence.close()]
        await asyncio.gather(*probes, return_exceptions=True)

    def backoff(self) -> Backoff:
        """Returns a new backoff for a caller with its own retry loop, on the client's common retry budget."""
        return Backoff(self._entropy, may_retry=lambda: self._retries.take(self._now_s()))

    # -- metadata ------------------------------------------------------------------------------------------------

    async def metadata(self, *topics: str, timeout_s: float | None = None) -> ClusterMetadata:
        """Fetches and caches the metadata of the cluster and the named topics, from any broker."""
        target = NO_TOPICS + ",".join(quote(name, safe="") for name in topics)
        return self._remember(await self._ask_metadata(target, timeout_s), topics)

    async def all_metadata(self, *, timeout_s: float | None = None) -> ClusterMetadata:
        """Fetches and caches the metadata of the cluster and all topics, from any broker."""
        return self._remember(await self._ask_metadata("/metadata", timeout_s))

    async def _ask_metadata(self, target: str, timeout_s: float | None) -> ClusterMetadata:
        return decode_answer(ClusterMetadata, await self.call("GET", target, timeout_s=timeout_s))

    def _remember(self, answer: ClusterMetadata, topics: tuple[str, ...] = ()) -> ClusterMetadata:
        answer = with_scheme(answer, self.scheme)
        self.cluster_id = answer.cluster_id
        self._cache.apply(answer, topics, self._now_s())
        return answer

    async def topic(self, name: str, *, timeout_s: float | None = None) -> TopicMetadata:
        """Returns the metadata of a topic, from the cache if it is fresh. Raises `UnknownTopic`."""
        if not self.is_fresh(name):
            await self.refresh(name, timeout_s=timeout_s)
        topic = self._cache.topic(name)
        if topic is None:
            raise UnknownTopic(f"topic {name!r} does not exist; create it first, topics are never created by use")
        return topic

    def is_fresh(self, name: str) -> bool:
        """Returns True if the topic's cached metadata is neither too old nor invalidated."""
        return self._cache.is_fresh(name, self._now_s())

    def invalidate(self, name: str) -> None:
        """Marks the cached metadata of a topic as stale; it is fetched again at its next use."""
        self._cache.invalidate(name)

    def note_leader_epoch(self, topic: str, partition: int, leader_epoch: int) -> None:
        """Compares the leader epoch of a response with the cached one. A newer epoch means that a broker forwarded the
        request: the topic's metadata is fetched again at its next use."""
        if not self._cache.is_led_since(topic, partition, leader_epoch):
            self._cache.invalidate(topic)

    async def refresh(self, name: str, *, timeout_s: float | None = None) -> None:
        """Fetches the metadata of a topic again, unless another call did since this one began."""
        began_s = self._now_s()
        async with self._refreshing:
            if not self._cache.fetched_since(name, began_s):
                before = self._cache.topic(name)
                await self.metadata(name, timeout_s=timeout_s)
                if self._cache.topic(name) == before:
                    self._turn += 1  # whom we asked may be cut off, and will say this for ever: another one next time

    def leader(self, topic: str, partition: int) -> str:
        """Returns the base URL for requests of a partition: its leader's, or another broker's while the leader is
        avoided.

        Raises `UnknownPartition` or `LeaderNotAvailable`: then `refresh` and retry.
        """
        address = self._cache.leader_address(topic, partition)
        return self._any_address() if self._is_avoided(address) else address

    def broker(self, node_id: int) -> str:
        """Returns the base URL of a broker, or of any other one while it is avoided or unknown."""
        address = self._cache.broker_address(node_id)
        return self._any_address() if address is None or self._is_avoided(address) else address

    # -- requests ------------------------------------------------------------------------------------------------

    async def attempt(
        self,
        method: str,
        address: str,
        target: str,
        *,
        body: bytes | Pieces | None = None,
        headers: Mapping[str, str] | None = None,
        timeout_s: float | None = None,
        expects_s: float | None = None,
    ) -> Answer:
        """Sends a request to one broker, without retries; `target` is the encoded path and query. Raises
        `ConnectFailed` or `NoAnswer`.

        `expects_s` is given if another broker could serve the request: after so many seconds, the time that the request
        itself may wait at the broker, the broker is probed, and given up if it is silent. None waits for all of
        `timeout_s`.
        """
        limit_s = self.request_timeout_s if timeout_s is None else timeout_s
        asking = partial(self._connections.request, method, URL(address + target, encoded=True))
        try:
            if expects_s is None:
                answer = await asking(body=body, headers=headers, timeout_s=limit_s)
            else:
                async with self._presence(address).required(expects_s):
                    answer = await asking(body=body, headers=headers, timeout_s=limit_s)
        except (ConnectFailed, NoAnswer):
            self.avoid(address)
            raise
        except Silent as error:
            self.avoid(address)
            raise NoAnswer(f"{error}; another broker is asked") from error
        self._failed_s.pop(address, None)
        if answer.status < 300:
            self._retries.succeeded()
        return answer

    def _presence(self, address: str) -> Presence:
        presence = self._presences.get(address)
        if presence is None:
            presence = self._presences[address] = Presence(address, partial(self._is_there, address))
        return presence

    async def _is_there(self, address: str, seconds: float) -> bool:
        try:
            await self._connections.request("GET", URL(address + NO_TOPICS, encoded=True), timeout_s=seconds)
        except (ConnectFailed, NoAnswer):
            return False
        return True

    async def call(
        self,
        method: str,
        target: str,
        *,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        address: str | None = None,
        node_id: int = NO_NODE,
        safe: bool = True,
        tells_timeout: bool = False,
        timeout_s: float | None = None,
    ) -> bytes:
        """Returns the body of a successful response of `address`, or of any broker (`node_id` preferred), with retries
        for `timeout_s` seconds.

        `safe`: the request is idempotent, so it is retried after an indefinite error as well. `tells_timeout`: the
        broker gets a `timeout_ms` in which to respond. Raises the last error unchanged.
        """
        deadline_s = self._now_s() + (self.request_timeout_s if timeout_s is None else timeout_s)
        last_try_s = deadline_s - (VERDICT_S if tells_timeout else LAST_TRY_S)
        backoff = self.backoff()
        error: TidelogError | None = None
        while True:
            if error is not None and self._now_s() >= last_try_s:
                raise error  # this process had no time when its wait was over
            wait_at_least_s = 0.0
            broker = address or self.broker(node_id)
            try:
                if not safe and address is None:
                    await self._require_there(broker, deadline_s)
                limit_s = min(self.request_timeout_s, deadline_s - self._now_s())
                full_target = f"{target}?timeout_ms={verdict_ms(limit_s)}" if tells_timeout else target
                expects_s = 0.0 if safe and address is None else None
                answer = await self.attempt(
                    method, broker, full_target, body=body, headers=headers, timeout_s=limit_s, expects_s=expects_s
                )
                error = answer.error
                if error is None:
                    return answer.body
                if address is None and isinstance(error, CANNOT_SERVE):
                    self.avoid(broker)  # it is starting or stopping, or cut off from the others
                if address is not None or self.broker(node_id) == broker:
                    wait_at_least_s = answer.retry_after_s
            except (ConnectFailed, NoAnswer) as failure:
                error = failure
            wait_s = backoff.next_s(wait_at_least_s)
            may_repeat = error.retriable if error.definite else safe
            if not may_repeat or self._now_s() + wait_s >= last_try_s:
                raise error
            await asyncio.sleep(wait_s)

    async def _require_there(self, address: str, deadline_s: float) -> None:
        """Raises `ConnectFailed` if the broker is silent; only a probe was sent."""
        try:
            limit_s = min(self._presence(address).patience_s, deadline_s - self._now_s())
            await self.attempt("GET", address, NO_TOPICS, timeout_s=limit_s)
        except NoAnswer as error:
            raise ConnectFailed(error.message) from error

    # -- which broker --------------------------------------------------------------------------------------------

    def _any_address(self) -> str:
        """Returns the first broker without a failure, of those in the metadata, then of the bootstrap list; if all have
        failed, the one that failed longest ago. Clients start at different brokers, and move on when a broker has no
        newer metadata."""
        addresses = self._cache.addresses()
        first = (int(self._share * len(addresses)) + self._turn) % max(1, len(addresses))
        candidates = dict.fromkeys((*addresses[first:], *addresses[:first], *self._bootstrap))
        return min(candidates, key=lambda address: self._failed_s.get(address, -math.inf))

    def avoid(self, address: str) -> None:
        """Avoids a broker for `AVOID_S`: it does not answer, or reports that it cannot serve."""
        self._failed_s[address] = self._now_s()

    def _is_avoided(self, address: str) -> bool:
        failed_s = self._failed_s.get(address)
        return failed_s is not None and self._now_s() < failed_s + AVOID_S

    def _now_s(self) -> float:
        return asyncio.get_running_loop().time()


def verdict_ms(timeout_s: float) -> int:
    """Returns the `timeout_ms` for a broker whose response is awaited for `timeout_s`."""
    return int(1000 * (timeout_s - min(VERDICT_S, timeout_s / 4)))


def needs_refresh(error: TidelogError) -> bool:
    """Returns True if the error suggests stale metadata: the leader has changed, or its broker is gone or shutting
    down."""
    return isinstance(error, (LeaderNotAvailable, ShuttingDown, ConnectFailed, NoAnswer))
