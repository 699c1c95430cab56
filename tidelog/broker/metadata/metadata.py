"""This broker's copy of the cluster's metadata: opened from its disk, and kept up to date.

The disk holds a replica of the log (`SlotStore` in metadata/), and snapshots of the image (snapshots/). The image is
the newest snapshot with everything in the log behind it applied. `bootstrap` decides how a disk joins its cluster.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from typing import Any, Protocol

import msgspec
import structlog

from tidelog.broker.consensus import messages as quorum
from tidelog.broker.consensus.elected_log import ElectedLog
from tidelog.broker.consensus.founding import ASK_S_MAX, Address
from tidelog.broker.consensus.listener import LeaderListener
from tidelog.broker.consensus.log_member import LogContext, LogMember
from tidelog.broker.consensus.stored import journal_level
from tidelog.broker.consensus.waiting import unreadable_at
from tidelog.broker.metadata.bootstrap import Contacts, MetadataBootstrap
from tidelog.broker.metadata.snapshot_scrub import SnapshotTarget
from tidelog.broker.metadata.snapshots import SnapshotKeeper, SnapshotVoters
from tidelog.broker.repair.scrub_targets import CopiesTarget, JournalTarget, Means, Target, journal_metainfo_target
from tidelog.broker.runtime.log_writer import LogWriter
from tidelog.config.schema import BrokerConfig
from tidelog.controller.apply import apply, with_voters
from tidelog.controller.records import (
    BrokerRegistered,
    BrokersStamped,
    MetadataRecord,
    SnapshotAgreed,
    SnapshotTaken,
    VoterAssigned,
    decode_record,
    encode_records,
)
from tidelog.model.cluster import ClusterImage, Voter
from tidelog.model.errors import ControllerLost, NotController, OldDirectory, TidelogError, UnsupportedLevel
from tidelog.model.ids import NodeId
from tidelog.model.levels import unfit_for_level
from tidelog.model.ports import Clock, Entropy
from tidelog.replication.election_settings import ElectionSettings
from tidelog.replication.paxos.replica import HistoriesDiffer
from tidelog.replication.paxos.voters import Membership, VoterSet
from tidelog.storage.log_manager import LogManager
from tidelog.transport.peer import Answer, PeerNode

BEHIND_S = 0.02

logger = structlog.get_logger("tidelog.quorum")


class MetadataListener(LeaderListener, Protocol):
    """The broker, as its metadata notifies it."""

    def image_changed(self, image: ClusterImage) -> None: ...

    def waits(self, reason: str) -> None:
        """Called with the reason why this broker has no cluster yet."""

    def fail(self, reason: str) -> None:
        """Called with the reason why this broker must stop."""


class ClusterMetadata:
    """This broker's copy of the cluster metadata: `open` comes first, then `start`; `close` at the end. Each change
    replaces `image` as a whole."""

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
        self._node_id = NodeId(config.node_id)
        self._levels = config.levels
        self._manager = manager
        self._peers = peers
        self._clock = clock
        self._listener = listener
        self._keeper = SnapshotKeeper(manager.snapshots, log_writer.perform, entropy)
        self._bootstrap = MetadataBootstrap(config, manager, peers, clock, entropy, listener.waits)
        settings = ElectionSettings(
            heartbeat_ms=config.controller_quorum_heartbeat_ms,
            timeout_ms=config.controller_quorum_election_timeout_ms,
            lease_ms=config.controller_lease_ms,
        )
        self._context = LogContext(peers.notify, log_writer, settings, clock, entropy, self._level)
        self._member: LogMember | None = None
        self._log: ElectedLog
        self._snapshot_voters: SnapshotVoters | None = None
        """The voters of the last snapshot, or of the voter changes applied since."""
        self._is_open = False
        self.may_register = asyncio.Event()
        """Set when no voter that was asked knows of a later start of this directory; then the broker may register."""
        self._is_resumed = False
        """True if the disk has its Paxos state from before this start."""
        self._peer_ids: tuple[int, ...] = ()
        """The node ids of the brokers that this one connects to."""
        self._tasks: dict[str, asyncio.Task[None]] = {}

    # -- opening -----------------------------------------------------------------------------------------------------

    async def open(self, address: Address, contacts: Contacts) -> None:
        """Reads the disk, and finds the cluster that this broker belongs to; a new disk may have to wait for others.

        `address` is the address at which this broker listens for other brokers.

        Raises `MetadataDamaged`, `WrongDirectory`, `ConfigError`, `WrongCluster`, `UnsupportedLevel`, `OSError`.
        """
        bootstrap = self._bootstrap
        position = 0
        is_resumed = self._is_resumed = bootstrap.open_disk()
        if not is_resumed:
            await bootstrap.begin(address, contacts, self._context.log_writer)
        else:
            loaded = self._keeper.load()
            if loaded is not None:
                self.image, position, self._snapshot_voters = loaded
        if self.image.level not in self._levels:
            # Records behind the snapshot may be unknown to this version: it had better not start than stop among them.
            raise UnsupportedLevel(self._unfit())
        member = self._member = bootstrap.member
        membership, leader = self._membership(member), self._listener
        voter_id = self._assigned_voter_id()
        if voter_id and not membership.is_used_up(voter_id, member.node_id, member.incarnation):
            # The snapshot may be of later than what is known to be chosen here: the engine begins as that voter, for it
            # cannot become another one before it has applied what made the voters (`PaxosNode`).
            member.voter_id = voter_id
        self._log = ElectedLog(member, membership, self._context, self, leader, delivered=position)
        if is_resumed:
            bootstrap.check_alone(self._log)
            await bootstrap.check_cluster(address, contacts)
            await bootstrap.identify(self._context.log_writer)
        self._is_open = True

    def _level(self) -> int:
        """Returns the feature level at which the log is written. While there is no image, that is the level of the log
        on the disk, and for a new disk the highest level that all connected brokers support."""
        if self.image.cluster_id:
            return self.image.level
        assert self._member is not None, "it is this that writes"
        if self._is_resumed:
            return journal_level(self._member.stored)
        hellos = [self._peers.hello_of(node_id) for node_id in self._peers.connected]
        # A new cluster writes nothing that one of its founders could not read.
        return min([self._levels.highest, *(hello.levels.highest for hello in hellos if hello is not None)])

    def _assigned_voter_id(self) -> int:
        """Returns the voter id that the image assigns to this disk; 0 if it has none."""
        broker = self.image.brokers.get(self._node_id)
        return broker.voter_id if broker is not None and broker.storage == self.incarnation else 0

    def _membership(self, member: LogMember) -> Membership:
        """Returns the voters of the newest snapshot, or of the log's beginning if there is no snapshot."""
        if self._snapshot_voters is not None:
            return Membership(self._snapshot_voters.voters, self._snapshot_voters.voters_position)
        membership = member.membership()
        if member.is_founder:
            self._snapshot_voters = SnapshotVoters(membership.voters, -1)
        return membership

    @property
    def cluster_id(self) -> str:
        """The id of the cluster; empty until it is known."""
        return "" if self._member is None else self._member.cluster_id

    @property
    def generation(self) -> int:
        """The number of recoveries of the metadata log of this broker's cluster."""
        return self._bootstrap.generation

    @property
    def recovery_id(self) -> str:
        """The id of the last recovery (`ClusterRecovery`); empty if there was none."""
        return self._bootstrap.recovery_id

    @property
    def lost_storage(self) -> str:
        """The former disk id of this data directory, if that disk was lost; else empty."""
        return self._bootstrap.lost_storage

    async def find_loss(self) -> str:
        """Returns a description of lost metadata, with advice for the operator: a majority of the voters
        (`MetadataBootstrap.find_loss`), the snapshot from which the log continues, or its next entry. Empty if nothing
        is lost."""
        if lost := await self._bootstrap.find_loss(self._log):
            return lost
        if (needed := self._log.delivery.needs_snapshot) is not None:
            return self._keeper.missing(self._peer_ids, needed)
        return "" if (position := self._log.unreadable) is None else unreadable_at(position)

    @property
    def incarnation(self) -> str:
        """The incarnation (random id) of this broker's metadata disk; empty until it is open."""
        return "" if self._member is None else self._member.incarnation

    # -- running -----------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begins to take part: connects to other brokers, and votes if this disk may."""
        self._spawn("metainfo", self._log.disk.run())
        self._know_peers()
        if voter_id := self._assigned_voter_id():
            self._log.leadership.enlist(voter_id)
        if self._is_resumed and self._bootstrap.needs_witnesses(self._log):
            # An old copy of the disk does not know what it has promised: no vote before a majority says that this is
            # none.
            self._log.mute()
            self._spawn("witnesses", self._find_witnesses())
        else:
            self.may_register.set()
        self._log.start()
        self.lacks_snapshot()

    async def _find_witnesses(self) -> None:
        """Lets this broker vote once a majority of voters, itself included, knows no later state of its directory: a
        directory restored from an old copy has forgotten votes."""
        try:
            await self._bootstrap.find_witnesses(self._log, self._context.log_writer)
        except OldDirectory as error:
            self._listener.fail(str(error))
            return
        self._log.unmute()
        self.may_register.set()

    def _spawn(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work, name=f"metadata-{name}")
        task.add_done_callback(self._ended)
        self._tasks[name] = task

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and task.exception() is not None:
            logger.critical("a task of the metadata failed", task=task.get_name(), exc_info=task.exception())
            self._listener.fail(str(task.exception()))

    async def close(self) -> None:
        """Ends timers and tasks; the log writer still flushes what is appended."""
        if self._is_open:
            self._log.leadership.resign()
            # It has resigned before: another voter asks at once then, and need not wait for silence.
            self._log.close()
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    def _know_peers(self) -> None:
        """Connects to the voters and the registered brokers, and to no others."""
        assert self._member is not None and self._member.contacts is not None, "a cluster is known"
        # The voters that were known last, too: those in force may stand in an entry that only they can give.
        voters = (*self._member.contacts.voters, *self._log.membership.voters.voters)
        addresses = {voter.node_id: (voter.host, voter.port) for voter in voters}
        for broker in self.image.brokers.values():
            addresses[broker.node_id] = (broker.peer_host, broker.peer_port)
            # A process of the past under this node id must not speak for its successor.
            self._peers.accept_only(broker.node_id, broker.incarnation, broker.epoch)
        addresses.pop(self._node_id, None)
        for node_id in [node for node in self._peer_ids if node not in addresses]:
            self._peers.forget(node_id)
        for node_id, (host, port) in addresses.items():
            self._peers.know(node_id, host, port)
        self._peer_ids = tuple(addresses)
        self._log.set_learners(tuple(self.image.brokers))

    # -- as the active controller uses it ----------------------------------------------------------------------------

    async def append(self, records: Sequence[MetadataRecord]) -> int:
        """Appends records to the metadata log, all or none; returns the first one's offset when they are applied.
        Raises `NotController` or `Overloaded` if nothing was appended, and `ControllerLost` if the outcome is unknown.
        """
        payload = encode_records(records, self.image.level)
        return (await self._log.append(payload, len(records))).value.base_offset

    async def change_voters(self, *, add: Voter | None = None, remove: int | None = None) -> None:
        """Adds or removes a voter of the metadata log. A new voter is asked first whether it is ready, since its vote
        may be needed at once."""
        if add is not None:
            try:
                answer = await self._peers.request(add.node_id, quorum.DescribeQuorum(), deadline_s=ASK_S_MAX)
            except TimeoutError as error:
                raise NotController(f"node {add.node_id} does not say whether it can vote: {error}") from error
            assert isinstance(answer.message, quorum.QuorumDescribed)
            # With a voter that is not ready the next majority may need a vote that nobody casts, and nothing be decided
            # any more.
            if answer.message.voter_id != add.voter_id or answer.message.incarnation != add.incarnation:
                raise NotController(f"node {add.node_id} is not ready to vote as {add.voter_id} yet")
        await self._log.change_voters(add=add, remove=remove)

    def resign(self) -> None:
        """Stops leading the metadata log, if this broker leads it."""
        self._log.leadership.resign()

    def step_aside(self, heir: int) -> None:
        """Hands the leadership of the metadata log to the voter with the id `heir`."""
        self._log.leadership.resign(heir)

    def mark(self) -> None:
        """Records on disk how far the metadata log is flushed, if that is possible now."""
        if self._member is not None:
            self._member.store.mark()

    def scrub_targets(self, means: Means) -> dict[str, Target]:
        """Returns the parts for the scrubber to verify, by name: the log, its metainfo, the snapshots, and the
        directory's identity."""
        engine, identity = self._log.engine, self._manager.identity
        snapshots, ask = self._manager.snapshots, self._peers.request
        return {
            "log metadata": JournalTarget("metadata", engine, lambda: True, means),
            "metainfo of log metadata": journal_metainfo_target("log metadata", engine, lambda: True, means),
            "snapshots": SnapshotTarget(snapshots, self._keeper, lambda: self._peer_ids, ask, means),
            "identity": CopiesTarget("identity", identity.mend, means.log_writer.perform, means.stats),
        }

    @property
    def voter_nodes(self) -> tuple[int, ...]:
        """The node ids of the brokers that vote on the metadata log, as far as this one knows."""
        return tuple(voter.node_id for voter in self._log.membership.voters.voters) if self._is_open else ()

    @property
    def has_lease(self) -> bool:
        """True while this broker leads the metadata log and no other broker can."""
        return self._log.has_lease

    @property
    def alone_s(self) -> float:
        """Seconds for which no earlier leader of the metadata log can have had a lease; 0.0 if that is not known."""
        return self._log.alone_s

    @property
    def snapshot(self) -> tuple[int, str]:
        """The metadata position of the newest snapshot on this broker, and its root hash."""
        return self._keeper.newest

    # -- as the log uses it ------------------------------------------------------------------------------------------

    def applied(self, payload: bytes, offset: int, position: int) -> None:
        for i, value in enumerate(payload.split(b"\n")):
            if self.image.level not in self._levels:
                break  # what follows may be unknown here
            record = decode_record(value)
            self.image = apply(self.image, record, offset + i)
            match record:
                case SnapshotTaken():
                    assert self._snapshot_voters is not None, "the voters come first in a log"
                    # The image right behind the record, so that all brokers write the same bytes.
                    self._spawn("snapshot", self._keeper.take(self.image, position + 1, self._snapshot_voters))
                case SnapshotAgreed():
                    self._on_agreed(record)
                case VoterAssigned(node_id, storage, voter_id):
                    # The id was given to a disk: another one under the same node id must not vote by it.
                    if (node_id, storage) == (self._node_id, self.incarnation):
                        self._log.leadership.enlist(voter_id)
        self._changed()

    def voters_applied(self, voters: VoterSet, position: int) -> None:
        self._snapshot_voters = SnapshotVoters(voters, position)
        self.image = with_voters(self.image, voters.voters, voters.next_voter_id)
        self._changed()

    def _changed(self) -> None:
        if self.image.level not in self._levels:
            self._listener.fail(self._unfit())
            return
        self._know_peers()
        self._listener.image_changed(self.image)

    def _unfit(self) -> str:
        return unfit_for_level(self._node_id, self._levels, self.image.level)

    def halted(self) -> None:
        self._listener.fail("the disk of the metadata log has failed; see what it was, then start this broker again")

    # -- snapshots ---------------------------------------------------------------------------------------------------

    def _on_agreed(self, agreed: SnapshotAgreed) -> None:
        # The same records made another image here: whatever this broker decides by it may be wrong.
        if self._keeper.newest[0] == agreed.position and self._keeper.newest[1] != agreed.root_hash:
            self._spawn("astray", self._give_up_image())
        # Only a snapshot that lies on this disk, too: the leader must not give up what it could not restore.
        elif self._log.is_leading and agreed.position in self._keeper.positions:
            self._spawn("truncate", self._truncate(self._keeper.positions[agreed.position]))

    async def _truncate(self, begin: int) -> None:
        with suppress(NotController, ControllerLost, TidelogError):
            await self._log.truncate(begin)

    async def _give_up_image(self) -> None:
        """Removes the snapshots of an image that differs from the one that a majority agreed on, and stops this broker,
        which fetches theirs at its next start."""
        await self._context.log_writer.perform(self._manager.remove_snapshots)
        self._listener.fail("this broker's metadata differ from what a majority agreed on; start it again")

    def lacks_snapshot(self) -> None:
        """Begins to fetch a snapshot, if the log continues behind the end of the image."""
        task = self._tasks.get("fetch")
        if self._log.delivery.needs_snapshot is not None and (task is None or task.done()):
            self._spawn("fetch", self._fetch())

    async def _fetch(self) -> None:
        while (needed := self._log.delivery.needs_snapshot) is not None:
            image, position, voters = await self._keeper.fetch(lambda: self._peer_ids, self._peers.request, needed)
            while position > self._log.applied_position:  # noqa: ASYNC110 - a snapshot may be newer than what came here
                await asyncio.sleep(BEHIND_S)
            # The log may have brought all of it while the snapshot was on its way.
            if position > self._log.delivery.position:
                self.image, self._snapshot_voters = image, voters
                self._log.install(position, voters.voters, voters.voters_position)
                self._changed()

    # -- as other brokers use it -------------------------------------------------------------------------------------

    def described(self) -> quorum.QuorumDescribed:
        """Describes this broker's metadata log, or that it has none yet, to another broker, which decides from that
        whether to join or to found a cluster. Raises `NotController` until the disk is read."""
        if self._is_open:
            described = self._log.described(self._bootstrap.named)
            return msgspec.structs.replace(
                described,
                generation=self.generation,
                recovery_id=self.recovery_id,
                directories=self._directories(),
            )
        return self._bootstrap.described()

    def _directories(self) -> tuple[tuple[int, str, int, int], ...]:
        """Returns the newest starts and time marks of the brokers' directories, as (node id, disk id, starts, mark),
        including those in entries that are accepted here and not known to be chosen."""
        image = self.image
        # An entry that is only accepted may be chosen and answered: its mark counts, or an old copy would pass for new.
        for payload, offset in self._log.open_entries():
            for i, record in enumerate(map(decode_record, payload.split(b"\n"))):
                if isinstance(record, BrokerRegistered | BrokersStamped):
                    image = apply(image, record, offset + i)
        return tuple(
            (int(broker.node_id), broker.storage, broker.starts, broker.stamp) for broker in image.brokers.values()
        )

    def about_snapshots(self, message: quorum.DescribeSnapshots | quorum.FetchSnapshot) -> Answer:
        """Answers another broker's request about snapshots. Raises `NotFound` if no snapshot can be read here."""
        return self._keeper.answer(message)

    def notified(self, node_id: int, message: msgspec.Struct, payload: memoryview) -> None:
        """Takes a message of another broker's Paxos engine or election."""
        if not self._is_open:
            return
        if isinstance(message, quorum.PaxosFrame):
            try:
                self._log.receive_paxos(node_id, message, payload)
            except HistoriesDiffer as error:
                # Two values at one position: no rule can mend that, and going on would spread it.
                self._listener.fail(
                    f"the metadata logs of this broker and of node {node_id} have different histories ({error}): their "
                    "directories are copies of one cluster that went on apart; stop all brokers, choose one history, "
                    "and move the metadata directories and snapshots/ of the brokers of the other away"
                )
        elif isinstance(message, quorum.ElectionFrame):
            self._log.receive_election(node_id, message)

    def peer_down(self, node_id: int) -> None:
        """Reports to the election that a broker's process has ended."""
        if self._is_open:
            self._log.peer_down(node_id)
