"""REST consumers on one broker: takes a request for any consumer instance and sends it to the broker that keeps it.

A request goes to the group coordinator's broker as one message and is never forwarded again from there. It is sent
again, to the coordinator of that moment, if it was certainly not executed because that broker does not coordinate the
group; also if its outcome is unknown and repeating is harmless. All but creating an instance are harmless: a repeated
read has the same attempt id, and a delete of an instance that is gone succeeds.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterable
from typing import Final, Protocol

import msgspec

from tidelog.broker.rest_consumers.beginnings import Beginnings
from tidelog.broker.rest_consumers.commits import Commits
from tidelog.broker.rest_consumers.groups import Groups
from tidelog.broker.rest_consumers.keeper import Keeper
from tidelog.broker.rest_consumers.membership import Membership
from tidelog.broker.rest_consumers.reading import Partitions, Reader
from tidelog.broker.rest_consumers.reads import Reads
from tidelog.broker.rest_consumers.registry import Registry
from tidelog.broker.rest_consumers.requests import CloseInstance, InstanceRequest, OpenInstance, ReadRecords, TakeBack
from tidelog.broker.rest_consumers.tending import Tending
from tidelog.broker.rest_consumers.turns import Turns
from tidelog.broker.routing.peer_partition import GRACE_S, Peers, Waits
from tidelog.broker.runtime.heavy_work import HeavyWork
from tidelog.broker.runtime.purgatory import Purgatory
from tidelog.config.schema import BrokerConfig
from tidelog.model.errors import (
    BrokerNotRegistered,
    CoordinatorLost,
    CoordinatorNotAvailable,
    NotLeader,
    TidelogError,
    UnknownInstance,
)
from tidelog.model.ports import Entropy
from tidelog.transport.peer import Answer, Lane, PeerLost, PeerUnreachable

PATIENCE_S: Final = 5.0
"""Seconds for which a coordinator is looked for after the first failure. After that the client gets a 503."""
PAUSE_S_MIN: Final = 0.05
PAUSE_S_MAX: Final = 0.5
_NOT_DONE: Final = (CoordinatorNotAvailable, NotLeader, PeerUnreachable, BrokerNotRegistered)
_UNKNOWN: Final = (CoordinatorLost, PeerLost, TimeoutError)


class PeersAndNotes(Peers, Protocol):
    """The other brokers, implemented by `transport.peer.PeerNode`: requests with an answer, and notifications
    without.
    """

    def notify(self, node_id: int, message: msgspec.Struct) -> bool:
        """Sends a message that needs no answer. Returns False if it certainly does not arrive."""


class RestConsumers:
    """The REST consumers of the cluster, as one broker serves them. `run` is its background task."""

    def __init__(
        self,
        node_id: int,
        config: BrokerConfig,
        groups: Groups,
        partitions: Partitions,
        purgatory: Purgatory,
        work: HeavyWork,
        peers: PeersAndNotes,
        entropy: Entropy,
        topics: Callable[[], Iterable[str]],
    ) -> None:
        """`topics` returns the names of the topics that clients may read, without internal ones."""
        self.patience_s = PATIENCE_S
        """Seconds that a request may take beyond its own wait for records."""
        self._node_id = node_id
        self._entropy = entropy
        self._groups = groups
        self._peers = peers
        self._waits = Waits()
        self._reader = Reader(partitions, purgatory, work, config.http_record_bytes_max)
        self._registry = Registry(groups, config.consumer_instances_max)
        commits = Commits()
        membership = Membership(commits, _session_timeout_ms(config))
        beginnings = Beginnings(partitions)
        turns = Turns(self._registry, membership)
        reads = Reads(self._registry, turns, commits, beginnings, self._reader)
        self.take_back = reads.take_back
        """Resets an instance's positions to where a read began, because its client is gone."""
        self._keeper = Keeper(self._registry, turns, reads, commits, membership, beginnings, partitions, topics)
        self.handle = self._keeper.answer
        """Answers a request forwarded by another broker."""
        self._tending = Tending(groups, self._registry, self._keeper, config.consumer_instance_timeout_ms / 1000)

    # -- any broker ---------------------------------------------------------------------------------------------------

    def new_name(self) -> str:
        """Returns a random name for an instance whose client gives none."""
        return f"rest-consumer-{self._entropy.token_hex(16)}"

    def new_attempt(self) -> str:
        """Returns a random id for one attempt of a read."""
        return self._entropy.token_hex(8)

    async def ask(self, request: InstanceRequest, *, wait_s: float = 0.0) -> Answer:
        """Returns the answer of the broker that keeps the instance, which may wait up to `wait_s` seconds for records.
        Raises that broker's error; `CoordinatorNotAvailable` if certainly nothing was done; `CoordinatorLost` if the
        outcome is unknown.
        """
        loop = asyncio.get_running_loop()
        if not self._groups.is_founded:
            await self._found_groups(request)
        pause_s, give_up_s, is_uncertain = PAUSE_S_MIN, math.inf, False
        while True:
            try:
                return await self._try(request, wait_s)
            except _UNKNOWN as error:
                failure: Exception = error
                is_uncertain = True
            except _NOT_DONE as error:
                failure = error
            except UnknownInstance:
                if is_uncertain and isinstance(request, CloseInstance):
                    return Answer()
                raise
            give_up_s = min(give_up_s, loop.time() + PATIENCE_S)
            if loop.time() + pause_s >= give_up_s or (is_uncertain and isinstance(request, OpenInstance)):
                raise _gave_up(request, failure, is_uncertain=is_uncertain)
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, PAUSE_S_MAX)

    async def _found_groups(self, request: InstanceRequest) -> None:
        if not isinstance(request, OpenInstance):
            raise UnknownInstance(f"there is no consumer instance {request.instance}; create it")
        await self._groups.found(asyncio.get_running_loop().time() + PATIENCE_S)

    async def _try(self, request: InstanceRequest, wait_s: float) -> Answer:
        node_id = self._groups.coordinator_node(request.group)
        if node_id == self._node_id:
            return await self._keeper.answer(request)
        deadline_s = wait_s + PATIENCE_S + GRACE_S
        if not isinstance(request, ReadRecords):
            return await self._peers.request(node_id, request, deadline_s=deadline_s, lane=Lane.DATA)
        with self._waits:
            return await self._peers.request(node_id, request, deadline_s=deadline_s, lane=Lane.DATA)

    def abandon(self, request: ReadRecords) -> None:
        """Tells the broker that keeps the instance that the client of this read is gone or got an error, so that the
        next read returns the same records. Does not wait, and delivery is not certain.
        """
        back = TakeBack(group=request.group, instance=request.instance, attempt=request.attempt)
        try:
            node_id = self._groups.coordinator_node(request.group)
        except CoordinatorNotAvailable:
            return
        if node_id == self._node_id:
            self.take_back(back)
        else:
            self._peers.notify(node_id, back)

    # -- the broker that keeps it -------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Runs the background work of the instances on this broker until it is cancelled."""
        try:
            await self._tending.run()
        finally:
            await self._keeper.stop()

    @property
    def instances(self) -> int:
        """Number of consumer instances in memory on this broker."""
        return len(self._registry)

    @property
    def read_bytes(self) -> int:
        """Memory that record data of reads takes now, in bytes."""
        return self._reader.budget.used


def _session_timeout_ms(config: BrokerConfig) -> int:
    timeout_ms = 2 * config.consumer_instance_timeout_ms
    return max(config.group_min_session_timeout_ms, min(timeout_ms, config.group_max_session_timeout_ms))


def _gave_up(request: InstanceRequest, failure: Exception, *, is_uncertain: bool) -> TidelogError:
    kind = CoordinatorLost if is_uncertain else CoordinatorNotAvailable
    what = "it may have been done" if is_uncertain else "nothing was done"
    return kind(f"the coordinator of group {request.group} could not be asked ({failure}); {what}, try again")
