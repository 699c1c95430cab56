"""A client's view of one cluster: which broker to ask, what to do when it does not answer.

Producer, consumer and admin client each own one `ClusterSession`. It keeps the metadata, sends partition requests
straight to the partition's leader and everything else to any broker, and repeats what may be repeated: after a
definite, retriable error always; after an indefinite one only if the caller says that repeating is safe.

A broker that cannot be reached, or says that it cannot serve, is passed over for `AVOID_S` in favour of the next one
known, leader or not, since any broker forwards. So an address that the cluster advertises and this client cannot reach
costs a hop, not the service. What any broker can answer is asked of those who have failed only when nobody else is
left, the last to fail last: to find out that a broker is silent takes longer than `AVOID_S`, and two of them, each
asked again while the other is passed over, would keep a client from all the others.

A broker that hangs takes what it is sent, and says nothing. So that it does not take all the time of a request, the one
that is asked has to show that it is there (`presence.py`): before it is sent what may not be repeated; while its answer
is waited for, if another may be asked the same. It need not be quick otherwise.

Follows Kafka's `NetworkClient` and `Metadata`. One event loop; no tasks of its own.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping, Sequence
from functools import partial
from urllib.parse import quote

import msgspec
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
"""With less than this left nothing is tried again: it would say "no answer" in place of what is known by then."""
VERDICT_S = 1.0
"""How much longer than the broker a client waits, so that its verdict, done or not, still arrives."""
BOOTSTRAP_STAGGER_S = 0.25
"""How long a bootstrap address is asked alone before the next one is asked beside it (as in RFC 8305)."""
NO_NODE = -1
CANNOT_SERVE = (LeaderNotAvailable, CoordinatorNotAvailable, ShuttingDown)
"""A broker that says one of these may know less, or be able to less, than the next one."""
NO_TOPICS = "/metadata?topics="
_METADATA = msgspec.json.Decoder(ClusterMetadata)


class ClusterSession:
    """Requests to the brokers of one cluster.

    `bootstrap` are URLs or `host:port` of any of its brokers, as a comma list or a list; `request_timeout_s` bounds one
    try. `client_id` is said with each request, if there is one; `security` says how connections are made.
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
        """Raises `ValueError` for a client id that no header can hold."""
        self._bootstrap = security.addresses(bootstrap)
        self.scheme = scheme_of(self._bootstrap)
        """`http` or `https`, of all brokers."""
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
        """When a broker failed that has not answered since."""
        self._presences: dict[str, Presence] = {}
        self._refreshing = asyncio.Lock()
        self.request_timeout_s = request_timeout_s
        self.metadata_max_age_s = metadata_max_age_s
        self.cluster_id = ""

    async def open(self) -> None:
        """Opens the pool and finds the cluster.

        Raises `ConnectFailed`, which names the addresses, if no bootstrap broker answers within `BOOTSTRAP_TIMEOUT_S`.
        """
        await self._connections.open()
        try:
            await self._find_cluster(min(BOOTSTRAP_TIMEOUT_S, self.request_timeout_s))
        except BaseException:
            await self.close()
            raise

    async def _find_cluster(self, timeout_s: float) -> None:
        """Asks the bootstrap addresses, one a little after the other, until one answers. An address that swallows what
        is sent takes as long as there is, so the others are not made to wait for it."""

        async def ask(turn: int, address: str) -> None:
            await asyncio.sleep(turn * stagger_s)
            left_s = timeout_s - turn * stagger_s
            try:
                body = await self.call("GET", NO_TOPICS, address=address, timeout_s=left_s)
            except (ConnectFailed, NoAnswer) as error:
                raise no_broker_answers(self._bootstrap, timeout_s, error) from error
            self._remember(decode_answer(_METADATA, body))
            for task in (*tasks[:turn], *tasks[turn + 1 :]):
                task.cancel()

        stagger_s = min(BOOTSTRAP_STAGGER_S, timeout_s / len(self._bootstrap))
        tasks = [asyncio.create_task(ask(turn, address)) for turn, address in enumerate(self._bootstrap)]
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        if None not in outcomes:
            raise next(outcome for outcome in outcomes if outcome is not None)

    async def close(self) -> None:
        """Cuts all connections; requests under way end with an error. Idempotent."""
        await self._connections.close()
        for presence in self._presences.values():
            presence.close()

    def backoff(self) -> Backoff:
        """Returns a fresh backoff, for a caller with a retry loop of its own; all share the client's budget for
        retries."""
        return Backoff(self._entropy, may_retry=lambda: self._retries.take(self._now_s()))

    # -- metadata ------------------------------------------------------------------------------------------------

    async def metadata(self, *topics: str, timeout_s: float | None = None) -> ClusterMetadata:
        """Asks any broker for the cluster and the named topics, and remembers the answer."""
        target = NO_TOPICS + ",".join(quote(name, safe="") for name in topics)
        return self._remember(await self._ask_metadata(target, timeout_s), topics)

    async def all_metadata(self, *, timeout_s: float | None = None) -> ClusterMetadata:
        """Asks any broker for the cluster and every topic there is, and remembers the answer."""
        return self._remember(await self._ask_metadata("/metadata", timeout_s))

    async def _ask_metadata(self, target: str, timeout_s: float | None) -> ClusterMetadata:
        return decode_answer(_METADATA, await self.call("GET", target, timeout_s=timeout_s))

    def _remember(self, answer: ClusterMetadata, topics: tuple[str, ...] = ()) -> ClusterMetadata:
        answer = with_scheme(answer, self.scheme)
        self.cluster_id = answer.cluster_id
        self._cache.apply(answer, topics, self._now_s())
        return answer

    async def topic(self, name: str, *, timeout_s: float | None = None) -> TopicMetadata:
        """Returns a topic, from the cache if it is fresh there. Raises `UnknownTopic`."""
        if not self.is_fresh(name):
            await self.refresh(name, timeout_s=timeout_s)
        topic = self._cache.topic(name)
        if topic is None:
            raise UnknownTopic(f"topic {name!r} does not exist; create it first, topics are never created by use")
        return topic

    def is_fresh(self, name: str) -> bool:
        """Returns True if the topic is known and nothing speaks against what is known."""
        return self._cache.is_fresh(name, self._now_s())

    def invalidate(self, name: str) -> None:
        """Has a topic asked for anew at the next use, since an error said that it is not what it was."""
        self._cache.invalidate(name)

    def note_leader_epoch(self, topic: str, partition: int, leader_epoch: int) -> None:
        """Notes the leader epoch of an answer. A newer one than is known means that a broker forwarded the request: the
        topic is asked for anew at the next use, so that requests go to the leader directly again."""
        if not self._cache.is_led_since(topic, partition, leader_epoch):
            self._cache.invalidate(topic)

    async def refresh(self, name: str, *, timeout_s: float | None = None) -> None:
        """Asks anew for a topic, unless somebody else did since this call began."""
        asked_s = self._now_s()
        async with self._refreshing:
            if not self._cache.fetched_since(name, asked_s):
                before = self._cache.topic(name)
                await self.metadata(name, timeout_s=timeout_s)
                if self._cache.topic(name) == before:
                    self._turn += 1  # whom we asked may be cut off, and will say this for ever: another one next time

    def leader(self, topic: str, partition: int) -> str:
        """Returns the base URL to send a partition's requests to: its leader's, or any other broker's while that is out
        of reach.

        Raises `UnknownPartition` or `LeaderNotAvailable`: then `refresh` and try again.
        """
        address = self._cache.leader_address(topic, partition)
        return self._any_address() if self._is_avoided(address) else address

    def broker(self, node_id: int) -> str:
        """Returns the base URL of a broker, or of any other one while it is out of reach, or unknown."""
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
        """Asks one broker once; `target` is the encoded path and query. Raises `ConnectFailed` or `NoAnswer`.

        `expects_s`: another broker may be asked the same, so this one is given up as soon as it turns out to be silent;
        it is not asked whether it is there before so many seconds, for which the request itself may have it wait. None:
        its answer is waited for, for all of `timeout_s`.
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
        """Returns the body of a successful answer of `address`, or of any broker (best of `node_id`), tried until
        `timeout_s` has passed.

        `safe`: doing it twice is the same as doing it once, so an indefinite error is tried again as well.
        `tells_timeout`: the broker is told (`timeout_ms`) by when to give its verdict. Raises the last error as it
        came.
        """
        deadline_s = self._now_s() + (self.request_timeout_s if timeout_s is None else timeout_s)
        backoff = self.backoff()
        while True:
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
            left_s = deadline_s - self._now_s() - wait_s
            if not _may_repeat(error, safe=safe) or left_s <= (VERDICT_S if tells_timeout else LAST_TRY_S):
                raise error
            await asyncio.sleep(wait_s)

    async def _require_there(self, address: str, deadline_s: float) -> None:
        """Raises `ConnectFailed` if a broker is silent: nothing that matters was sent."""
        try:
            limit_s = min(self._presence(address).patience_s, deadline_s - self._now_s())
            await self.attempt("GET", address, NO_TOPICS, timeout_s=limit_s)
        except NoAnswer as error:
            raise ConnectFailed(error.message) from error

    # -- which broker --------------------------------------------------------------------------------------------

    def _any_address(self) -> str:
        """Returns the first broker that has not failed: of those in the metadata, then of the bootstrap list; without
        any, the one that failed longest ago. Each client begins with another one, and goes on to the next when one has
        nothing new to say."""
        addresses = self._cache.addresses()
        first = (int(self._share * len(addresses)) + self._turn) % max(1, len(addresses))
        candidates = dict.fromkeys((*addresses[first:], *addresses[:first], *self._bootstrap))
        return min(candidates, key=lambda address: self._failed_s.get(address, -math.inf))

    def avoid(self, address: str) -> None:
        """Passes a broker over for a while: it does not answer, or says that it cannot serve."""
        self._failed_s[address] = self._now_s()

    def _is_avoided(self, address: str) -> bool:
        failed_s = self._failed_s.get(address)
        return failed_s is not None and self._now_s() < failed_s + AVOID_S

    def _now_s(self) -> float:
        return asyncio.get_running_loop().time()


def verdict_ms(timeout_s: float) -> int:
    """Returns the `timeout_ms` that a broker is told by who waits `timeout_s` for its answer."""
    return int(1000 * (timeout_s - min(VERDICT_S, timeout_s / 4)))


def _may_repeat(error: TidelogError, *, safe: bool) -> bool:
    if error.definite:
        return error.retriable
    return safe


def needs_refresh(error: TidelogError) -> bool:
    """Returns True if the error hints at stale metadata: the leader changed, or its broker is gone, or going."""
    return isinstance(error, (LeaderNotAvailable, ShuttingDown, ConnectFailed, NoAnswer))
