"""How a broker's part in its cluster begins, at each start: its disk, its cluster, and whether it may go on.

A disk that remembers resumes, whatever anybody says; a new one founds its cluster with others, or joins it
(`consensus.founding`). A disk that has forgotten something that it had promised must never vote again: it is left as it
is, and a new one is begun beside it (metadata-2/), which is another voter, if this broker is to be one; the cluster
replaces the old.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial

import structlog

from tidelog.broker.consensus.elected_log import ElectedLog
from tidelog.broker.consensus.founding import ASK_S_MAX, Address, NamedVoter, ask_member, find_origin
from tidelog.broker.consensus.log_member import LogMember
from tidelog.broker.consensus.messages import QuorumDescribed
from tidelog.broker.runtime.log_writer import LogWriter
from tidelog.config.errors import ConfigError
from tidelog.config.schema import BrokerConfig
from tidelog.model.errors import InternalError, TidelogError, WrongCluster
from tidelog.model.ids import NodeId
from tidelog.model.ports import Clock, Entropy
from tidelog.storage.directory_identity import DirectoryIdentity
from tidelog.storage.log_manager import LogManager
from tidelog.transport.peer import PeerNode

logger = structlog.get_logger("tidelog.quorum")

Contacts = Callable[[], Awaitable[Sequence[Address]]]
"""Finds out where the brokers of the cluster that is to be joined listen for others. Raises `ConfigError`."""


async def no_contacts() -> Sequence[Address]:
    """Names nobody: this broker was not told to join a cluster."""
    return ()


class MetadataDamaged(InternalError):
    """The metadata log cannot be read whole, so this broker must not act on it. No data was touched."""


class MetadataBootstrap:
    """Starts one broker's metadata. `open_disk` first; then `begin` if the disk is new, else both checks."""

    def __init__(self, config: BrokerConfig, manager: LogManager, peers: PeerNode, entropy: Entropy) -> None:
        self.named = [NamedVoter(node, (host, port)) for node, host, port in config.named_voters]
        self.member: LogMember
        self._node_id = NodeId(config.node_id)
        self._may_join = config.cluster_join is not None
        self._manager = manager
        self._ask = partial(ask_member, peers)
        self._entropy = entropy

    def open_disk(self, clock: Clock) -> LogMember:
        """Reads what the disk remembers. Blocking. Raises `MetadataDamaged`, `ConfigError`, `OSError`."""
        self._manager.identity.settle()
        store, stored = self._manager.open_slots(clock.wall_ms())
        for finding in stored.report.findings:
            logger.warning("loading", log="metadata", finding=finding)
        if stored.is_amnesiac:
            if not self.named and not self._may_join:
                raise MetadataDamaged(
                    "the metadata log has lost something that it had promised, and this broker knows no other that "
                    "could help. Nothing was changed or removed; restore the directory metadata/ from a copy, then "
                    "start again"
                )
            logger.error("the metadata disk has lost what it promised; this broker joins its cluster anew")
            store, stored = self._manager.open_slots(clock.wall_ms(), anew=True)
        member = self.member = LogMember(self._node_id, store, stored)
        if not member.is_new and member.stored_node_id != self._node_id:
            raise ConfigError(
                f"this data directory belongs to node {member.stored_node_id} of cluster {member.cluster_id}, not to "
                f"node {self._node_id}; set node.id to match, or choose another log.dir"
            )
        return member

    async def begin(self, me: Address, contacts: Contacts, log_writer: LogWriter) -> None:
        """Has a new disk found its cluster, or join it; waits for the others. Raises `ConfigError`, `OSError`."""
        member, voter, known = self.member, NamedVoter(self._node_id, me), await contacts()
        origin = await find_origin(voter, member.incarnation, self.named, known, self._ask, self._entropy)
        # The identity is durable before the metadata log may hold anything that others count on.
        await log_writer.perform(partial(self._identify, origin.cluster_id, founds=origin.is_founder))
        await member.begin(origin, log_writer)

    async def identify(self, log_writer: LogWriter) -> None:
        """Gives a directory whose metadata log knows the cluster the identity that it lacks."""
        identity = self._manager.identity
        member, current = self.member, identity.current
        if current is None or current.storage != member.incarnation:
            await log_writer.perform(partial(self._identify, member.cluster_id, founds=False))

    def _identify(self, cluster_id: str, *, founds: bool) -> None:
        """Blocking. Raises `OSError`."""
        identity, storage = self._manager.identity, self.member.incarnation
        if identity.current is None:
            identity.store(
                DirectoryIdentity(cluster_id=cluster_id, node_id=self._node_id, storage=storage, founds=founds)
            )
        else:
            identity.change(cluster_id=cluster_id, node_id=self._node_id, storage=storage, founds=founds)

    def check_alone(self, log: ElectedLog) -> None:
        """Raises `MetadataDamaged` if the only voter has lost something: nobody can give it back."""
        faulty = [slot.position for slot in self.member.stored.slots if slot.is_faulty]
        voters = log.membership.voters
        if faulty and len(voters.voters) == 1 and voters.find(self._node_id, self.member.incarnation) is not None:
            raise MetadataDamaged(
                f"the metadata log cannot be read at position {faulty[0]}. Nothing was changed or removed; restore the "
                "directory metadata/ from a copy, then start again"
            )

    async def check_cluster(self, me: Address, contacts: Contacts) -> None:
        """Raises `WrongCluster` if those that `cluster.voters` or `cluster.join` name are of another cluster.

        A broker that belongs to one does not need them, so it does not wait long for them.
        """
        others = [voter.address for voter in self.named if voter.node_id != self._node_id]
        with suppress(TidelogError, TimeoutError):
            async with asyncio.timeout(ASK_S_MAX):
                others += [address for address in await contacts() if address != me]
        answers = await asyncio.gather(*(self._ask(address) for address in others), return_exceptions=True)
        cluster_id = self.member.cluster_id
        for answer in answers:
            if isinstance(answer, QuorumDescribed) and answer.cluster_id not in ("", cluster_id):
                raise WrongCluster(
                    f"this data directory belongs to cluster {cluster_id}, and node {answer.node_id}, which "
                    f"cluster.voters or cluster.join names, to {answer.cluster_id}; correct that setting, or choose "
                    "another log.dir"
                )
