"""This broker's copy of the cluster's metadata: opened from its disk, found again or begun, and kept up to date.

What lies on the disk: the replica of the log (`SlotStore` in metadata/), and snapshots of the image (snapshots/). The
image is the newest snapshot and everything in the log behind it. A replica whose disk has forgotten something that it
had promised must never vote again: it is left as it is, and a new one is begun beside it (metadata-2/), which is
another voter, if this broker is to be one; the cluster replaces the old.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from typing import Any, Protocol

import msgspec
import structlog

from tidelog.broker.consensus.disk import ReplicaDisk
from tidelog.broker.consensus.elected_log import ElectedLog
from tidelog.broker.consensus.founding import Address, Contacts, LogFacts, NamedVoter, find_origin, founders_of
from tidelog.broker.consensus.messages import (
    DescribeQuorum,
    ElectionFrame,
    FetchSnapshot,
    PaxosFrame,
    QuorumDescribed,
)
from tidelog.broker.consensus.routes import Routes
from tidelog.broker.consensus.stored import stored_log
from tidelog.broker.metadata.snapshots import SnapshotKeeper, SnapshotVoters
from tidelog.broker.runtime.log_writer import LogWriter
from tidelog.config.errors import ConfigError
from tidelog.config.schema import BrokerConfig
from tidelog.controller.apply import apply, with_voters
from tidelog.controller.records import (
    MetadataRecord,
    SnapshotAgreed,
    SnapshotTaken,
    VoterAssigned,
    decode_record,
    encode_record,
)
from tidelog.model.cluster import ClusterImage, Voter
from tidelog.model.errors import ControllerLost, InternalError, NotController, TidelogError, WrongCluster
from tidelog.model.ids import NodeId
from tidelog.model.ports import Clock, Entropy
from tidelog.replication.election_settings import ElectionSettings
from tidelog.replication.paxos.node import PaxosNode
from tidelog.replication.paxos.state import Metadata
from tidelog.replication.paxos.voters import Membership, VoterSet, decode_voters, encode_voters, learner_id
from tidelog.storage.log_manager import LogManager
from tidelog.storage.slot_store import SlotStore, StoredSlots
from tidelog.transport.peer import Answer, PeerNode

ASK_S_MAX = 1.0
WINDOW = 64
BEHIND_S = 0.02

logger = structlog.get_logger("tidelog.quorum")


class MetadataDamaged(InternalError):
    """The metadata log cannot be read whole, so this broker must not act on it. No data was touched."""


class MetadataListener(Protocol):
    """The broker, as its metadata sees it."""

    def image_changed(self, image: ClusterImage) -> None: ...

    def leading(self, number: int) -> None: ...

    def deposed(self) -> None: ...

    def leader_changed(self, node_id: int | None) -> None: ...

    def fail(self, reason: str) -> None:
        """This broker must not go on."""
        ...


class ClusterMetadata:
    """One broker's. `open`, then `start`; `close` at the end. Its `image` is replaced whole with every change."""

    def __init__(
        self,
        config: BrokerConfig,
        manager: LogManager,
        log_writer: LogWriter,
        peers: PeerNode,
        clock: Clock,
        entropy: Entropy,
        listener: MetadataListener,
    ) -> None:
        self.image = ClusterImage("")
        self.cluster_id = ""
        self._node_id = NodeId(config.node_id)
        self._config = config
        self._manager = manager
        self._log_writer = log_writer
        self._peers = peers
        self._clock = clock
        self._entropy = entropy
        self._listener = listener
        self._keeper = SnapshotKeeper(manager.snapshots, log_writer.perform, entropy)
        self._named = [NamedVoter(node, (host, port)) for node, host, port in config.named_voters]
        self._store: SlotStore
        self._disk: ReplicaDisk
        self._log: ElectedLog
        self._snapshot_voters: SnapshotVoters | None = None
        """The voters by the last snapshot, or by what was delivered since."""
        self._founders = b""
        self._contacts: VoterSet
        self._is_open = False
        self.incarnation = ""
        """Of its disk; empty until it is open."""
        self._known: tuple[int, ...] = ()
        """The brokers that this one dials."""
        self._is_new = False
        """The disk remembers no cluster."""
        self._found: str | None = None
        self._tasks: dict[str, asyncio.Task[None]] = {}

    # -- opening -----------------------------------------------------------------------------------------------------

    async def open(self, address: Address, contacts: Contacts) -> None:
        """Reads the disk, and finds out which cluster this broker belongs to; a new disk may have to wait for others.

        `address` is where this broker listens for peers.

        Raises `MetadataDamaged`, `ConfigError`, `WrongCluster`, `OSError`.
        """
        self._store, stored = self._open_disk()
        self.incarnation = self._store.incarnation
        facts = None if stored.facts is None else msgspec.msgpack.decode(stored.facts, type=LogFacts)
        if facts is not None and facts.cluster_id:
            await self._resume(facts, stored, address, contacts)
        else:
            self._is_new = True
            await self._begin(stored, NamedVoter(self._node_id, address), await contacts())
        self._is_open = True

    def _open_disk(self) -> tuple[SlotStore, StoredSlots]:
        store, stored = self._manager.open_slots(self._clock.wall_ms())
        for finding in stored.report.findings:
            logger.warning("loading", log="metadata", finding=finding)
        if not stored.is_amnesiac:
            return store, stored
        if not self._named and self._config.cluster_join is None:
            raise MetadataDamaged(
                "the metadata log has lost something that it had promised, and this broker knows no other that could "
                "help. Nothing was changed or removed; restore the directory metadata/ from a copy, then start again"
            )
        logger.error("the metadata disk has lost what it promised; this broker joins its cluster anew")
        return self._manager.open_slots(self._clock.wall_ms(), anew=True)

    async def _resume(self, facts: LogFacts, stored: StoredSlots, me: Address, contacts: Contacts) -> None:
        if facts.node_id != self._node_id:
            raise ConfigError(
                f"this data directory belongs to node {facts.node_id} of cluster {facts.cluster_id}, not to node "
                f"{self._node_id}; set node.id to match, or choose another log.dir"
            )
        self.cluster_id = facts.cluster_id
        loaded = self._keeper.load()
        position = 0
        if loaded is not None:
            self.image, position, self._snapshot_voters = loaded
        elif facts.founders:
            founders = decode_voters(facts.founders)
            if facts.metadata.founders:
                founders = founders_of(facts.metadata, founders)
            self._snapshot_voters = SnapshotVoters(founders, -1)
        self._founders, self._contacts = facts.founders, decode_voters(facts.contacts)
        self._build(facts.metadata, stored, position, facts.voter_id)
        self._check_alone(stored)
        await self._check_cluster(me, contacts)

    def _check_alone(self, stored: StoredSlots) -> None:
        """Nobody can give back what the only voter has lost."""
        faulty = [slot.position for slot in stored.slots if slot.is_faulty]
        voters = self._log.membership.voters
        if faulty and len(voters.voters) == 1 and voters.find(self._node_id, self.incarnation) is not None:
            raise MetadataDamaged(
                f"the metadata log cannot be read at position {faulty[0]}. Nothing was changed or removed; restore the "
                "directory metadata/ from a copy, then start again"
            )

    async def _begin(self, stored: StoredSlots, me: NamedVoter, contacts: Sequence[Address]) -> None:
        origin = await find_origin(me, self.incarnation, self._named, contacts, self._ask_address, self._entropy)
        self.cluster_id = origin.cluster_id
        self._contacts = origin.voters
        if origin.is_founder:
            self._found = origin.cluster_id
            self._founders = encode_voters(origin.voters)
            self._snapshot_voters = SnapshotVoters(origin.voters, -1)
        self._build(Metadata(self.incarnation), stored, 0, 0)
        if not origin.is_founder:
            await self._log_writer.perform(self._store.store_facts(self._facts(Metadata(self.incarnation))))

    def _membership(self) -> Membership:
        """By the snapshot, or from the log's beginning. Who did not found the log, and has no snapshot, knows whom to
        ask, but not who the voters were where its log begins: until the log says so, it is no candidate."""
        if self._snapshot_voters is not None:
            return Membership(self._snapshot_voters.voters, self._snapshot_voters.voters_position)
        membership = Membership(self._contacts)
        membership.on_unread(0)
        return membership

    def _build(self, metadata: Metadata, stored: StoredSlots, delivered: int, voter_id: int) -> None:
        membership = self._membership()
        self._disk = ReplicaDisk(self._store, self._log_writer, self._facts)
        incarnation = self.incarnation
        me = membership.voter_of(self._node_id, incarnation)
        voter_id = voter_id if me is None else me.voter_id
        node = PaxosNode(
            voter_id or learner_id(self._node_id),
            membership.quorum(),
            stored_log(stored, metadata),
            window=WINDOW,
            voters_position=membership.position,
        )
        self._log = ElectedLog(
            self._node_id,
            incarnation,
            node,
            membership,
            self._disk,
            Routes(self._peers.notify),
            self,
            ElectionSettings(
                heartbeat_ms=self._config.controller_quorum_heartbeat_ms,
                timeout_ms=self._config.controller_quorum_election_timeout_ms,
                lease_ms=self._config.controller_lease_ms,
            ),
            self._clock,
            self._entropy,
            delivered=delivered,
            voter_id=voter_id,
        )
        self._log.routes.set_voters(self._contacts)

    def _facts(self, metadata: Metadata) -> bytes:
        facts = LogFacts(
            self._node_id, self.cluster_id, metadata, self._founders, encode_voters(self._contacts), self._log.voter_id
        )
        return msgspec.msgpack.encode(facts)

    async def _check_cluster(self, me: Address, contacts: Contacts) -> None:
        """Raises `WrongCluster` if those that `cluster.voters` or `cluster.join` name are of another cluster.

        A broker that belongs to one does not need them, so it does not wait long for them.
        """
        others = [voter.address for voter in self._named if voter.node_id != self._node_id]
        with suppress(TidelogError, TimeoutError):
            async with asyncio.timeout(ASK_S_MAX):
                others += [address for address in await contacts() if address != me]
        answers = await asyncio.gather(*(self._ask_address(address) for address in others), return_exceptions=True)
        for answer in answers:
            if isinstance(answer, QuorumDescribed) and answer.cluster_id not in ("", self.cluster_id):
                raise WrongCluster(
                    f"this data directory belongs to cluster {self.cluster_id}, and node {answer.node_id}, which "
                    f"cluster.voters or cluster.join names, to {answer.cluster_id}; correct that setting, or choose "
                    "another log.dir"
                )

    async def _ask_address(self, address: Address) -> QuorumDescribed:
        answer = await self._peers.request_at(*address, DescribeQuorum(), deadline_s=ASK_S_MAX)
        assert isinstance(answer.message, QuorumDescribed)
        return answer.message

    # -- running -----------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Takes part, from now on."""
        self._spawn("facts", self._disk.run())
        self._know_peers()
        for broker in self.image.brokers.values():
            if broker.node_id == self._node_id and broker.storage == self.incarnation:
                self._enlist(broker.voter_id)
        self._log.start(self._found)
        self._bridge_gap()

    def _spawn(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work, name=f"metadata-{name}")
        task.add_done_callback(self._ended)
        self._tasks[name] = task

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and task.exception() is not None:
            logger.critical("a task of the metadata failed", task=task.get_name(), exc_info=task.exception())
            self._listener.fail(str(task.exception()))

    async def close(self) -> None:
        """Ends timers and tasks; what is appended to the disk stays for the log writer."""
        if self._is_open:
            self._log.resign()
            self._log.close()
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    def _know_peers(self) -> None:
        """Dials voters and registered brokers, and nobody else."""
        voters = (*self._contacts.voters, *self._log.membership.voters.voters)
        addresses = {voter.node_id: (voter.host, voter.port) for voter in voters}
        for broker in self.image.brokers.values():
            addresses[broker.node_id] = (broker.peer_host, broker.peer_port)
            self._peers.accept_only(broker.node_id, broker.incarnation, broker.epoch)
        addresses.pop(self._node_id, None)
        for node_id in [known for known in self._known if known not in addresses]:
            self._peers.forget(node_id)
        for node_id, (host, port) in addresses.items():
            self._peers.know(node_id, host, port)
        self._known = tuple(addresses)
        self._log.set_learners(tuple(self.image.brokers))

    # -- as the active controller uses it ----------------------------------------------------------------------------

    async def append(self, records: Sequence[MetadataRecord]) -> int:
        """As `ElectedLog.append`: records, all or none; returns the first one's offset."""
        payload = b"\n".join(encode_record(record) for record in records)
        return (await self._log.append(payload, len(records))).value.base_offset

    async def change_voters(self, *, add: Voter | None = None, remove: int | None = None) -> None:
        """As `ElectedLog.change_voters`. A new voter must be ready to vote before its vote may be needed."""
        if add is not None:
            try:
                answer = await self._peers.request(add.node_id, DescribeQuorum(), deadline_s=ASK_S_MAX)
            except TimeoutError as error:
                raise NotController(f"node {add.node_id} does not say whether it can vote: {error}") from error
            assert isinstance(answer.message, QuorumDescribed)
            if answer.message.voter_id != add.voter_id or answer.message.incarnation != add.incarnation:
                raise NotController(f"node {add.node_id} is not ready to vote as {add.voter_id} yet")
        await self._log.change_voters(add=add, remove=remove)

    def resign(self) -> None:
        """As `ElectedLog.resign`."""
        self._log.resign()

    def mark(self) -> None:
        """Notes how far its log is durable. Best effort."""
        self._store.mark()

    @property
    def voter_nodes(self) -> tuple[int, ...]:
        """Brokers that vote, as far as this one knows."""
        return tuple(voter.node_id for voter in self._log.membership.voters.voters) if self._is_open else ()

    @property
    def has_lease(self) -> bool:
        """As `ElectedLog.has_lease`."""
        return self._log.has_lease

    @property
    def snapshot(self) -> tuple[int, str]:
        """The image's position in the newest snapshot here, and its root hash."""
        return self._keeper.newest

    # -- as the log uses it ------------------------------------------------------------------------------------------

    def applied(self, payload: bytes, offset: int, position: int) -> None:
        for i, record in enumerate(map(decode_record, payload.split(b"\n"))):
            self.image = apply(self.image, record, offset + i)
            match record:
                case SnapshotTaken():
                    assert self._snapshot_voters is not None, "the voters come first in a log"
                    self._spawn("snapshot", self._keeper.take(self.image, position + 1, self._snapshot_voters))
                case SnapshotAgreed():
                    self._on_agreed(record)
                case VoterAssigned(node_id, storage, voter_id):
                    if (node_id, storage) == (self._node_id, self.incarnation):
                        self._enlist(voter_id)
        self._changed()

    def voters_applied(self, voters: VoterSet, position: int) -> None:
        self._snapshot_voters = SnapshotVoters(voters, position)
        self._contacts = voters
        self.image = with_voters(self.image, voters.voters, voters.next_voter_id)
        self._disk.refresh(self._log.engine.node.replica.metadata)
        self._changed()

    def _changed(self) -> None:
        self._know_peers()
        self._listener.image_changed(self.image)

    def _enlist(self, voter_id: int) -> None:
        if voter_id >= self._log.membership.voters.next_voter_id or self._log.membership.voter_of(
            self._node_id, self.incarnation
        ):
            self._log.enlist(voter_id)

    def leading(self, number: int) -> None:
        self._listener.leading(number)

    def deposed(self) -> None:
        self._listener.deposed()

    def leader_changed(self, node_id: int | None) -> None:
        self._listener.leader_changed(node_id)

    def halted(self) -> None:
        self._listener.fail("the disk of the metadata log has failed; see what it was, then start this broker again")

    def lacks_snapshot(self) -> None:
        """The log goes on behind what the image knows."""
        self._bridge_gap()

    # -- snapshots ---------------------------------------------------------------------------------------------------

    def _on_agreed(self, agreed: SnapshotAgreed) -> None:
        if self._keeper.newest[0] == agreed.position and self._keeper.newest[1] != agreed.root_hash:
            self._spawn("astray", self._give_up_image())
        elif self._log.is_leading and agreed.position in self._keeper.positions:
            self._spawn("truncate", self._truncate(self._keeper.positions[agreed.position]))

    async def _truncate(self, begin: int) -> None:
        with suppress(NotController, ControllerLost, TidelogError):
            await self._log.truncate(begin)

    async def _give_up_image(self) -> None:
        """What this broker believes is not what the others agreed on: it must fetch their image, from its start."""
        await self._log_writer.perform(self._manager.remove_snapshots)
        self._listener.fail("this broker's metadata differ from what a majority agreed on; start it again")

    def _bridge_gap(self) -> None:
        task = self._tasks.get("fetch")
        if self._log.delivery.needs_snapshot is not None and (task is None or task.done()):
            self._spawn("fetch", self._fetch())

    async def _fetch(self) -> None:
        while (needed := self._log.delivery.needs_snapshot) is not None:
            image, position, voters = await self._keeper.fetch(lambda: self._known, self._peers.request, needed)
            while position > self._log.applied_position:  # noqa: ASYNC110 - a snapshot may be newer than what came here
                await asyncio.sleep(BEHIND_S)
            if position > self._log.delivery.position:
                self.image, self._snapshot_voters = image, voters
                self._log.install(position, voters.voters, voters.voters_position)
                self._changed()

    # -- as other brokers use it -------------------------------------------------------------------------------------

    def described(self) -> QuorumDescribed:
        """What a broker that starts wants to know.

        Raises `NotController` until this broker itself knows: taken for new, it would make another found a cluster
        beside the one that its own disk remembers.
        """
        configured = tuple(map(str, self._named))
        if not (self._is_open or self._is_new):
            raise NotController("this broker is still reading its disk; ask again")
        if not self._is_open:
            return QuorumDescribed(self._node_id, self.incarnation, "", 0, (), b"", -1, configured)
        metadata = self._log.engine.node.replica.metadata
        voters = encode_voters(self._log.membership.voters) if self._log.belongs else b""
        return QuorumDescribed(
            self._node_id,
            self.incarnation,
            self.cluster_id,
            self._log.voting_id,
            metadata.founders,
            voters,
            self._log.membership.position,
            configured,
        )

    def snapshot_part(self, asked: FetchSnapshot) -> Answer:
        """As `SnapshotKeeper.part`."""
        return self._keeper.part(asked)

    def notified(self, node_id: int, message: msgspec.Struct, payload: memoryview) -> None:
        """A peer's engine or election speaks."""
        if not self._is_open:
            return
        if isinstance(message, PaxosFrame):
            self._log.receive_paxos(node_id, message, payload)
        elif isinstance(message, ElectionFrame):
            self._log.receive_election(node_id, message)

    def peer_down(self, node_id: int) -> None:
        """A broker's process has ended."""
        if self._is_open:
            self._log.peer_down(node_id)
