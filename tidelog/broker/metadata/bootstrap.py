"""The start of a broker's metadata: its disk, its cluster, and whether it may take part.

A disk that has its Paxos state resumes; a new one founds its cluster with others, or joins it (`consensus.founding`). A
disk that has lost promises must never vote again: it is left as it is, and when the cluster is found, a new log is
begun beside it (metadata-2/), which is another voter, if this broker is to be one; the cluster replaces the old voter.

The directory has a past if its identity, its data or its disk show that it was in a cluster. Then it founds no other:
it joins its own again, or waits for an operator.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial

import structlog
from msgspec import structs

from tidelog.broker.consensus.elected_log import ElectedLog
from tidelog.broker.consensus.founding import ASK_S_MAX, Address, LogOrigin, NamedVoter, ask_member, find_origin
from tidelog.broker.consensus.log_member import LogMember
from tidelog.broker.consensus.lost_voters import lacks_majority, lost_voters
from tidelog.broker.consensus.messages import QuorumDescribed
from tidelog.broker.consensus.waiting import Past, waiting_for
from tidelog.broker.runtime.log_writer import LogWriter
from tidelog.config.errors import ConfigError
from tidelog.config.schema import BrokerConfig
from tidelog.model.errors import InternalError, NotController, OldDirectory, TidelogError, WrongCluster, WrongDirectory
from tidelog.model.ids import NodeId
from tidelog.model.ports import Clock, Entropy
from tidelog.storage.directory_identity import DirectoryIdentity
from tidelog.storage.log_manager import LogManager
from tidelog.transport.peer import PeerNode
from tidelog.transport.peer.hello import outdated, recovered_apart

logger = structlog.get_logger("tidelog.quorum")

Tell = Callable[[str], None]
Contacts = Callable[[], Awaitable[Sequence[Address]]]
"""A function that returns the peer addresses of brokers in the cluster that is to be joined. Raises `ConfigError`."""


async def no_contacts() -> Sequence[Address]:
    """Returns no addresses: this broker was not configured to join a cluster."""
    return ()


class MetadataDamaged(InternalError):
    """The metadata log cannot be read completely, so this broker must not act on it. No data was touched."""


WITNESS_PAUSE_S = 0.05


class MetadataBootstrap:
    """Starts one broker's metadata. `open_disk` comes first; then `begin` if the disk is new, else `check_alone` and
    `check_cluster`."""

    def __init__(
        self, config: BrokerConfig, manager: LogManager, peers: PeerNode, clock: Clock, entropy: Entropy, tell: Tell
    ) -> None:
        """`tell` is called with the reason why a broker without a cluster is waiting."""
        self.named = [NamedVoter(node, (host, port)) for node, host, port in config.named_voters]
        self.member: LogMember
        self.lost_storage = ""
        """The former disk id of this data directory, if that disk was lost since; else empty."""
        self._node_id = NodeId(config.node_id)
        self._manager = manager
        self._ask = partial(ask_member, peers)
        self._clock = clock
        self._entropy = entropy
        self._tell = tell
        self._is_alone = not (config.cluster_voters or config.cluster_join)
        self._past: Past | None = None
        """The past of a new disk's directory, known once the disk is read; None if the disk is not new."""
        self._is_amnesiac = False
        """True if the disk has lost promises that it gave, or is an old copy from before them."""
        self._is_old = False

    def open_disk(self) -> bool:
        """Reads the Paxos state on the disk; returns True if the disk resumes. Blocking. Raises `WrongDirectory`,
        `OSError`."""
        self._manager.identity.settle()
        store, stored = self._manager.open_slots(self._clock.wall_ms())
        for finding in stored.report.findings:
            logger.warning("loading", log="metadata", finding=finding)
        identity = self._manager.identity.current
        self._is_old = identity is not None and identity.is_old
        # An old copy never knew what was promised since, which is as bad as having forgotten it.
        self._is_amnesiac = stored.is_amnesiac or self._is_old
        member = self.member = LogMember(self._node_id, store, stored)
        self._check_owner()
        if not member.is_new and not self._is_amnesiac:
            return True
        if self._is_old:
            logger.error("the data directory is an old copy; this broker has to join its cluster anew")
        elif self._is_amnesiac:
            logger.error("the metadata disk has lost what it promised; this broker has to join its cluster anew")
        self._past = self._find_past()
        return False

    def _check_owner(self) -> None:
        """Raises `WrongDirectory` if the directory belongs to another broker, or its metadata log to another
        cluster."""
        member, current = self.member, self._manager.identity.current
        owner, cluster_id = member.stored_node_id, member.cluster_id
        if current is not None:
            owner, cluster_id = (current.node_id if owner == self._node_id else owner), cluster_id or current.cluster_id
        if owner != self._node_id:
            raise WrongDirectory(
                f"this data directory belongs to node {owner} of cluster {cluster_id}, not to node {self._node_id}; "
                "set node.id to match, or choose another log.dir"
            )
        # A log of another cluster has other topics and leaders under the same positions and epochs.
        if current is not None and member.cluster_id not in ("", current.cluster_id) and not self._may_found_anew():
            raise WrongDirectory(
                f"the data directory is of cluster {current.cluster_id}, and the metadata log in it of cluster "
                f"{member.cluster_id}: a directory was put here that belongs elsewhere; put the right one in its place"
            )

    def _may_found_anew(self) -> bool:
        """Returns True if this very disk was to found a cluster and has not begun to, so that no cluster was
        founded."""
        identity = self._manager.identity.current
        return identity is not None and identity.founds and identity.storage == self.member.incarnation

    def _find_past(self) -> Past:
        identity, current = self._manager.identity, self._manager.identity.current
        if current is not None:
            # A founder that crashed before its status was on disk has told nobody anything, so it may ask anew.
            may_found = self._may_found_anew() and not self._is_amnesiac
            if may_found:
                return Past()
            # A disk that was begun since, in place of one that is gone, knows nothing of either recovery.
            is_same = current.storage == self.member.incarnation and not self._is_amnesiac
            return Past(False, current.cluster_id, current.generation, current.recovery_id if is_same else "")
        # Data without an identity are of some cluster: founding another over them would make them unreachable.
        was_there = self._is_amnesiac or identity.is_lost or self._manager.holds_data()
        return Past(not was_there, self.member.cluster_id)

    async def begin(self, me: Address, contacts: Contacts, log_writer: LogWriter) -> None:
        """Has a new disk found its cluster, or join it; waits for the other brokers. Raises `ConfigError`,
        `WrongCluster`, `OSError`."""
        assert self._past is not None, "a disk is read first"
        voter, past = NamedVoter(self._node_id, me), self._past
        addresses, incarnation = await self._contacts(contacts, past), self.member.incarnation
        origin = await find_origin(
            voter, incarnation, self.named, addresses, self._ask, self._entropy, past=past, tell=self._tell
        )
        if self._is_amnesiac:
            # Another incarnation is another voter: nobody can take its votes for those of the disk that has forgotten.
            store, stored = self._manager.open_slots(self._clock.wall_ms(), anew=True)
            self.member = LogMember(self._node_id, store, stored)
        # The controller admits another disk under a live node id only if it names the disk that it stands for.
        if past.remembers and self._manager.identity.current is not None and not self._is_old:
            self.lost_storage = self._manager.identity.current.storage
        # The identity is durable before the metadata log may hold anything that others count on.
        await log_writer.perform(partial(self._identify, origin))
        await self.member.begin(origin, log_writer)

    async def _contacts(self, contacts: Contacts, past: Past) -> Sequence[Address]:
        """Returns the addresses of the cluster to join. Raises `ConfigError` if no broker answers at `cluster.join`; if
        the directory has a past it waits instead."""
        while True:
            try:
                return await contacts()
            except ConfigError as error:
                if past.may_found:
                    raise
                reason = f"{error}; {waiting_for(past, (), ('cluster.join',), ())}"
                logger.warning("not part of a cluster yet", waits=reason)
                self._tell(reason)

    def described(self) -> QuorumDescribed:
        """Describes a disk that is in no cluster yet to another starting broker.

        Raises `NotController` until the disk is read: if the other broker took it for new, it would found a second
        cluster beside the one that this disk belongs to.
        """
        if self._past is None:
            raise NotController("this broker is still reading its disk; ask again")
        described = self.member.described_as_new(self.named, self._past.remembers)
        return structs.replace(described, generation=self._past.generation, recovery_id=self._past.recovery_id)

    async def find_loss(self, log: ElectedLog) -> str:
        """Asks the voters about their disks, and offers this broker's copies of entries to those that lack them.
        Returns advice for the operator if a majority of the voters has lost its disks; else an empty string."""
        voters = log.membership.voters
        addresses = [(voter.host, voter.port) for voter in voters.voters if voter.node_id != self._node_id]
        answers = await asyncio.gather(*(self._ask(address) for address in addresses), return_exceptions=True)
        described = [answer for answer in answers if isinstance(answer, QuorumDescribed)]
        for answer in described:
            # A voter that cannot read an entry may not know whom to ask: who there is may stand in that very entry.
            if answer.lacks is not None and answer.voter_id:
                log.offer(answer.voter_id, answer.lacks)
        lost = lost_voters(voters, {self._node_id: self.member.incarnation}, described)
        if not lacks_majority(voters, lost):
            return ""
        by_address = zip(addresses, answers, strict=True)
        silent = [f"{host}:{port}" for (host, port), answer in by_address if not isinstance(answer, QuorumDescribed)]
        return waiting_for(Past(), [], silent, [voter.node_id for voter in lost])

    def needs_witnesses(self, log: ElectedLog) -> bool:
        """Returns True if this disk is one of several voters: if it were an old copy, it would lack promises that it
        gave."""
        voters = log.membership.voters
        # A voter alone has nobody who could know more; a learner promises nothing.
        return voters.find(self._node_id, self.member.incarnation) is not None and len(voters.voters) > 1

    async def find_witnesses(self, log: ElectedLog, log_writer: LogWriter) -> None:
        """Asks the other voters, until with this one they are a majority, for the newest time mark of this directory
        that they know. Raises `OldDirectory`, after recording it on the disk, if the directory's own mark is older."""
        while self.needs_witnesses(log):
            voters = log.membership.voters.voters
            addresses = [(voter.host, voter.port) for voter in voters if voter.node_id != self._node_id]
            answers = await asyncio.gather(*(self._ask(address) for address in addresses), return_exceptions=True)
            described = [answer for answer in answers if isinstance(answer, QuorumDescribed) and answer.voters]
            directories = [
                (starts, stamp)
                for answer in described
                for node, storage, starts, stamp in answer.directories
                if (node, storage) == (self._node_id, self.member.incarnation)
            ]
            given_identity = self._manager.identity.given  # this start is not counted before the end of this
            # One voter that knows of more is enough: the directory has been further, so this is an earlier state of it.
            if given_identity.starts and any(
                starts > given_identity.starts or stamp > given_identity.stamp for starts, stamp in directories
            ):
                await log_writer.perform(partial(self._manager.identity.change, is_old=True))
                raise OldDirectory("the data directory is an old copy: other voters knew its broker further")
            # A majority meets every majority that could have heard of a later life of this directory.
            if 2 * (1 + len(described)) > len(voters):
                return
            await asyncio.sleep(WITNESS_PAUSE_S)

    async def identify(self, log_writer: LogWriter) -> None:
        """Stores the identity (cluster, node and disk id) of a directory that lacks it, from its metadata log."""
        identity = self._manager.identity
        member, current = self.member, identity.current
        if current is None or current.storage != member.incarnation:
            assert member.contacts is not None, "a log is known"
            origin = LogOrigin(member.cluster_id, member.contacts, False, self.generation, self.recovery_id)
            await log_writer.perform(partial(self._identify, origin))

    def _identify(self, origin: LogOrigin) -> None:
        """Stores the directory's identity as a disk of this metadata log. Blocking. Raises `OSError`."""
        identity = self._manager.identity
        current = identity.current or DirectoryIdentity(
            cluster_id="", node_id=self._node_id, storage="", starts=1 if self._past is not None else 0
        )
        identity.store(
            structs.replace(
                current,
                cluster_id=origin.cluster_id,
                node_id=self._node_id,
                storage=self.member.incarnation,
                founds=origin.is_founder,
                generation=origin.generation,
                recovery_id=origin.recovery_id,
                is_old=False,
                # Counts the times that this directory was an old copy: journals of then are told by it.
                renewals=current.renewals + current.is_old,
            )
        )

    @property
    def generation(self) -> int:
        """The number of recoveries of the cluster's metadata log (`tidelog cluster recover`) that this directory knows
        of."""
        identity = self._manager.identity.current
        return 0 if identity is None else identity.generation

    @property
    def recovery_id(self) -> str:
        """The id of the last recovery of the cluster's metadata log (`tidelog cluster recover`) that this directory
        knows of; empty if there was none, or if a version of tidelog without such ids ran it."""
        identity = self._manager.identity.current
        return "" if identity is None else identity.recovery_id

    def check_alone(self, log: ElectedLog) -> None:
        """Raises `MetadataDamaged` if this broker is the only voter, is configured without other brokers, and its log
        has lost an entry, which no other broker can restore. With other brokers it waits, since learners have the
        entries, too."""
        if not self._is_alone:
            return
        faulty = [slot.position for slot in self.member.stored.slots if slot.is_faulty]
        voters = log.membership.voters
        if faulty and len(voters.voters) == 1 and voters.find(self._node_id, self.member.incarnation) is not None:
            raise MetadataDamaged(
                f"the metadata log cannot be read at position {faulty[0]}. Nothing was changed or removed; restore the "
                "directory metadata/ from a copy, then start again"
            )

    async def check_cluster(self, me: Address, contacts: Contacts) -> None:
        """Raises `WrongCluster` if the brokers that `cluster.voters` or `cluster.join` name belong to another cluster,
        a newer generation of it, or another recovery.

        A broker that is a member already does not need them, so it waits only briefly for their answers.
        """
        addresses = [voter.address for voter in self.named if voter.node_id != self._node_id]
        with suppress(TidelogError, TimeoutError):
            async with asyncio.timeout(ASK_S_MAX):
                addresses += [address for address in await contacts() if address != me]
        answers = await asyncio.gather(*(self._ask(address) for address in addresses), return_exceptions=True)
        cluster_id = self.member.cluster_id
        for answer in answers:
            if not isinstance(answer, QuorumDescribed):
                continue
            theirs = answer.cluster_id or answer.remembers
            if theirs and theirs != cluster_id:
                raise WrongCluster(
                    f"this data directory belongs to cluster {cluster_id}, and node {answer.node_id}, which "
                    f"cluster.voters or cluster.join names, to {theirs}; correct that setting, or choose "
                    "another log.dir"
                )
            # The log was begun anew without this broker, so what it has decided since may be given up.
            if theirs and answer.generation > self.generation:
                raise WrongCluster(outdated(self._node_id, self.generation, answer.generation))
            is_other = answer.generation == self.generation and answer.recovery_id != self.recovery_id
            if answer.voters and is_other:
                recovery_ids = {self._node_id: self.recovery_id, answer.node_id: answer.recovery_id}
                raise WrongCluster(recovered_apart(self.generation, recovery_ids))
