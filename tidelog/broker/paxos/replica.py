"""A replica of a Paxos partition, on every broker that holds one, leader or not.

Its disk has two parts. The *journal* (`SlotStore`) is the acceptor's: its promises, and the values accepted at each
position. The *log* holds the applied batches, the same bytes on every replica.

    frames of other replicas -> engine -> journal -> answers
                                  | applied, in order
                               delivery -> log -> readers, and at the leader producers

The controller appoints the leader (`ballots`); voters change by values of the log itself (`Membership`). A replica that
is behind all journals copies another replica's log (`copying`). The leader has the journals' heads truncated
(`journal_truncation`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import msgspec
import structlog
from msgspec import structs

from tidelog.broker.consensus.disk import ReplicaDisk
from tidelog.broker.consensus.engine import NOTICE_S, Engine, LogEffect
from tidelog.broker.consensus.messages import PaxosFrame
from tidelog.broker.consensus.plausible import Maxima, check_offset, check_paxos
from tidelog.broker.consensus.stored import stored_log
from tidelog.broker.paxos.applied_log import AppliedLog
from tidelog.broker.paxos.applying import Applying
from tidelog.broker.paxos.ballots import number_after
from tidelog.broker.paxos.context import PartitionContext, ReplicaIdentity
from tidelog.broker.paxos.election_wait import ElectionWait
from tidelog.broker.paxos.files import ReplicaFiles
from tidelog.broker.paxos.journal import Floor, VoterHistory, era_begin
from tidelog.broker.paxos.journal_copies import find_in_journal
from tidelog.broker.paxos.journal_truncator import JournalTruncator
from tidelog.broker.paxos.leaders import Leaders
from tidelog.broker.paxos.links import Links
from tidelog.broker.paxos.partition import PaxosPartition
from tidelog.broker.paxos.payload_search import PayloadSearch
from tidelog.broker.paxos.proposing import Proposer, window_of
from tidelog.broker.paxos.voting import Voting
from tidelog.config.schema import TopicConfig
from tidelog.replication.paxos.events import (
    Applied,
    Awaits,
    Chosen,
    Elect,
    Elected,
    Enlist,
    Halted,
    Jumped,
    Lost,
    Proposed,
    Refused,
    Released,
    Repaired,
    Started,
    StatusChanged,
    VotersFound,
)
from tidelog.replication.paxos.node import PaxosNode
from tidelog.replication.paxos.state import Kind, Metadata, Prefix, Status
from tidelog.replication.paxos.voters import VoterSet, learner_id
from tidelog.storage.copies import Identity

logger = structlog.get_logger("tidelog.paxos")


class PaxosReplica:
    """A replica of a Paxos partition, made from the opened files. `start` has to be called first. Not thread-safe: for
    the event loop only."""

    def __init__(
        self, identity: ReplicaIdentity, contacts: VoterSet, files: ReplicaFiles, context: PartitionContext
    ) -> None:
        """`contacts` are the voters according to the metadata; they are asked for the voters while the log does not
        name them."""
        self.topic, self.partition_id, self.node_id = identity.topic, identity.partition_id, identity.node_id
        self.era = identity.era
        self.log = files.log
        self.leader_epoch = -1
        self._leaders = Leaders()
        shared, entropy = context.shared, context.entropy
        self._shared = shared
        self._files = files
        # An id whose promises this disk has forgotten is dead: a vote under it could contradict them.
        self.engine_id = identity.engine_id if files.may_vote_as(identity.engine_id) else 0
        """The id under which this disk votes, or is to vote; 0 if there is none whose promises it remembers."""
        self._history = VoterHistory.open(files.stored, files.metainfo)
        membership = self._history.membership(contacts)
        self._links = Links(identity, context.peers, lambda: membership.voters, shared.stats)
        self._links.set_members(contacts, ())
        self.applied = AppliedLog(
            files.log,
            shared.log_writer,
            shared.clock,
            shared.stats,
            applied=self._on_in_log,
            durable=self._on_durable,
            failed=self._on_log_failed,
            comparison=files.comparison(),
            is_accounted=lambda position, value: files.store.is_payload_durable(position, value.digest),
            differs=self._on_log_differs,
        )
        self.watchers = self.applied.watchers
        """Fetch requests that wait for more records."""
        self._disk = ReplicaDisk(
            files.store,
            shared.log_writer,
            self._encode_metainfo,
            floor=self._encode_floor,
            state_machine=self.applied,
            level=context.level,
        )
        node = PaxosNode(
            self.engine_id or learner_id(identity.node_id),
            membership.quorum(),
            structs.replace(
                stored_log(files.stored, files.metainfo.metadata), voters_since=era_begin(files.metainfo.era)
            ),
            window=1,  # until `lead` sets it
            voters_position=membership.position,
        )
        self.engine = Engine(node, self._disk, self._links.post, self, entropy, notice_s=NOTICE_S)
        self.engine.former_ids = files.former_ids(self.engine_id)
        self._search = PayloadSearch(self.partition_id, self.engine, self._links, context)
        self.wait = ElectionWait(self.partition_id, self.engine, self._links)
        self.voting = Voting(
            self.engine,
            membership,
            self._history,
            self._links.routes,
            entropy,
            self.engine_id,
            self._leaders,
        )
        self.applying = Applying(
            self.partition_id,
            self.applied,
            self.engine,
            context,
            self._links,
            membership,
            self._on_copied,
            self._on_log_failed,
        )
        self._truncator = JournalTruncator(self.engine, files.store, self.applied, self._links, context.journal_bounds)
        self._proposer = Proposer(
            self.engine, self._links, lambda: self.is_out_of_room, self._truncator.lags, context.level
        )
        self._spawn = context.spawn
        self._writing_metainfo: asyncio.Task[None] | None = None
        self._is_closed = False

    # -- beginning and ending ------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Starts the engine: votes if the disk's id may vote, and brings the log up to the journal."""
        self._writing_metainfo = self._spawn(f"paxos-metainfo-{self.partition_id}", self._disk.run())
        self.engine.step(Started())
        # A disk that never voted under this id has forgotten nothing, so it needs no fence.
        if self.engine_id and self._status is Status.EMPTY:
            self.engine.step(Enlist())
        self.applying.start()

    async def close(self) -> None:
        """Stops taking part, and closes all parts. Writes that were begun may still end: see `at_rest`."""
        self._is_closed = True
        self._leaders.close()
        self.voting.close()
        self.engine.close()
        self._truncator.close()
        self.applied.close()
        await self._search.close()
        await self.applying.close()
        metadata = self.engine.node.replica.metadata
        # In good order: everything accepted lazily is on disk, so the id need not die.
        if metadata.may_forget:
            await self._disk.end(structs.replace(metadata, may_forget=False))
        if self._writing_metainfo is not None:
            self._writing_metainfo.cancel()
            await asyncio.gather(self._writing_metainfo, return_exceptions=True)

    async def at_rest(self) -> None:
        """Waits, after `close`, until no write of this replica changes the disk any more."""
        await self._shared.log_writer.at_rest(self.log)
        await self._shared.log_writer.at_rest(self._files.store)

    def set_engine_id(self, engine_id: int) -> None:
        """Sets the engine id that the controller has given this disk, a fresh one. Votes under it count as soon as the
        log names it; until then the log may name an earlier id. Does nothing for an id whose promises this disk has
        forgotten."""
        if engine_id != self.engine_id and self._files.may_vote_as(engine_id):
            ids = (*self.engine.former_ids, self.engine_id)
            # The log may still name this disk by an earlier id, and candidates need that vote.
            self.engine.former_ids = tuple(former_id for former_id in ids if former_id not in (0, engine_id))
            self.engine_id = engine_id
            # The metainfo must name the id once it may vote: after a restart under another one nobody would cast its
            # vote.
            self._disk.refresh(self.engine.node.replica.metadata)
            self.voting.enlist(engine_id)

    # -- roles ---------------------------------------------------------------------------------------------------------

    @property
    def leader(self) -> PaxosPartition | None:
        """The leader of this partition, while the metadata name this broker; else None."""
        return self._leaders.current

    def lead(self, leader_epoch: int, config: TopicConfig) -> PaxosPartition:
        """Campaigns in this leader epoch, for which the metadata name this broker, and returns the leader. The caller
        starts its `run` as a task; it takes requests once a majority has elected it."""
        self.leader_epoch = leader_epoch
        self._leaders.step_down()
        self._links.leader_node = self.node_id
        self.engine.node.set_window(window_of(config))
        leader = self._leaders.current = PaxosPartition(
            self.topic,
            self.partition_id,
            leader_epoch,
            self.applied,
            self._proposer,
            config,
            self.node_id,
            self._shared,
        )
        self.voting.ballots.seek(leader_epoch)
        return leader

    def reconfigure(self, leader: PaxosPartition, config: TopicConfig) -> None:
        """Sets new topic settings at the leader on this broker."""
        self.engine.node.set_window(window_of(config))
        leader.reconfigure(config, self.log.settings)

    def follow(self, leader_epoch: int, leader_node: int) -> None:
        """Stops leading, as the metadata name another broker, or none (-1)."""
        self.leader_epoch = leader_epoch
        self._leaders.step_down()
        self._links.leader_node = leader_node
        self.voting.ballots.give_up()
        self.wait.end()
        self._truncator.durable()

    def set_members(self, voters: VoterSet, nodes: Sequence[int]) -> None:
        """Sets the voters and the brokers that hold a replica, as the metadata name them; replicas without a vote are
        sent chosen values. The log itself decides who votes."""
        self._links.set_members(voters, nodes)

    # -- from other replicas -------------------------------------------------------------------------------------------

    def receive(self, node_id: int, frame: PaxosFrame, payload: memoryview) -> None:
        """Passes a message of a peer's engine, which `check` has accepted, to the engine."""
        if not self._is_closed:
            self._links.routes.heard(frame.sender, node_id)
            self.engine.receive(frame, payload)

    def check(self, node_id: int, frame: PaxosFrame) -> None:
        """Raises `ForeignSender` if the sender's id belongs to another broker, `ImplausibleNumber` if no correct engine
        could have sent these numbers."""
        self._links.routes.check(frame.sender, node_id)
        replica = self.engine.node.replica
        # The controller counts the epochs here, so a number may be far ahead of all that any engine has sent.
        newest = number_after(self.leader_epoch)
        number = max(newest, replica.highest, replica.metadata.issued)
        check_paxos(frame, Maxima(number, replica.end, replica.applied.next_offset))

    def heard(self, node_id: int, engine_ids: tuple[int, ...], durable_offset: int) -> None:
        """Handles a peer's report of how far its log is durable, and of its disk's engine ids. Raises `ForeignSender`,
        `ImplausibleNumber`."""
        # A report from beyond everything that is agreed on would have the journals truncated too far.
        check_offset(durable_offset, self.agreed_end)
        for engine_id in engine_ids:
            self._links.routes.check(engine_id, node_id)
        self._links.reported(node_id, engine_ids)
        for engine_id in engine_ids:
            self._truncator.heard(engine_id, durable_offset)

    # -- what others see of it -----------------------------------------------------------------------------------------

    @property
    def high_watermark(self) -> int:
        """End offset of the applied batches that readers may see."""
        return self.applied.high_watermark

    @property
    def agreed_end(self) -> int:
        """End offset of the chosen values, as far as this replica knows. Its log may still lack batches whose payload
        the journal has not, or that have to be copied from another log."""
        return self.engine.node.replica.applied.next_offset

    @property
    def is_readable(self) -> bool:
        """False while the log is being truncated or emptied, and when the replica is closed."""
        return not self._is_closed and not self.applying.is_truncating

    @property
    def is_halted(self) -> bool:
        """True if the disk has failed: the replica takes no part any more."""
        return self.engine.node.replica.is_halted

    @property
    def is_out_of_room(self) -> bool:
        """True while the disk is full: the replica takes part again when there is room. A leader acknowledges nothing
        meanwhile."""
        return self._disk.is_out_of_room or self.applied.is_out_of_room

    @property
    def is_voting(self) -> bool:
        """True if votes of this disk may count; False while it has no valid id."""
        return self._status is Status.VOTING

    @property
    def _status(self) -> Status:
        return self.engine.node.replica.metadata.status

    @property
    def voters(self) -> VoterSet:
        """The voters in force in the log, as far as this replica knows them."""
        return self.voting.membership.voters

    @property
    def lost_engine_id(self) -> int:
        """The id under which this disk has forgotten its promises; 0 if there is none, or if it has another id
        by now."""
        return 0 if self.engine_id else self._files.metainfo.forgotten_id

    @property
    def applied_position(self) -> int:
        """The position up to which this replica has applied chosen values."""
        return self.engine.node.replica.applied.position

    @property
    def is_deposed(self) -> bool:
        """True if the metadata name this broker as leader, but a leader of a later epoch is known."""
        return self.leader is not None and self.voting.ballots.leader_epoch is None

    def on_flushed(self) -> None:
        """Handles the log writer's report that the log is durable further, or was repaired."""
        self.applied.on_flushed()

    @property
    def aligned_epoch(self) -> int:
        """Always -1: this log holds committed batches only, so there is no divergence to truncate
        (`Holder.aligned_epoch`)."""
        return -1

    def second_copy(self, identity: Identity) -> bytes | None:
        """Returns the bytes of a damaged batch from the journal; None if they are not there."""
        return find_in_journal(self.engine, self.log, identity)

    def tell_durable(self) -> None:
        """Flushes the log soon and reports to the leader how far it is durable, for a change of members that waits for
        that."""
        self.applied.hurry()
        self._truncator.durable()

    def durable_end_of(self, engine_id: int) -> int:
        """Returns the offset up to which another replica last reported its log as durable; -1 if it has not
        reported."""
        return self._truncator.truncation.durable_end_of(engine_id)

    def is_silent(self, engine_id: int) -> bool:
        """Returns True if the disk of this id's voter has reported that it does not vote under it."""
        return self._links.is_silent(engine_id)

    @property
    def is_elected(self) -> bool:
        """True if a majority has elected this replica, and its term is not over."""
        return self.engine.node.coordinator is not None

    def mark_journal(self) -> None:
        """Records on disk how far the journal is durable, as for an idle one (`SlotStore.mark`). Best effort."""
        self._files.store.mark()

    def floor(self) -> Floor:
        """Returns the floor of the journal: its first position, and the voters there."""
        return self._floor(self.engine.node.replica.floor)

    # -- what the engine says ------------------------------------------------------------------------------------------

    def on_effect(self, effect: LogEffect) -> None:
        """Handles an effect of the engine (`EngineListener`)."""
        match effect:
            case Applied():
                self._on_applied(effect)
            case Repaired(position):
                self.voting.on_repaired(position)
                self.applying.delivery.advance()
            case Chosen(position, _, accepted_by) if self.leader is not None:
                self.leader.chosen(position, accepted_by)
            case Released(position) if self.leader is not None:
                self.leader.release(position)
            case Proposed() | Refused():
                self._on_answer(effect)
            case Elected() | Awaits() | Lost() | VotersFound():
                self._on_election(effect)
            case Jumped(floor):
                self.voting.membership.on_jumped(floor.position)
                self.applying.on_jumped(floor)
            case StatusChanged():
                self.voting.ballots.campaign()
            case Halted():
                self._on_halted()
            case _:
                pass  # chosen after all, when the metadata names another leader already

    def _on_answer(self, answer: Proposed | Refused) -> None:
        if isinstance(answer, Proposed) and answer.value.kind is Kind.TRUNCATE:
            self._truncator.proposed(answer)
        elif isinstance(answer, Refused) and isinstance(answer.event, Elect):
            self.voting.on_refused(answer.event.number)

    def _on_applied(self, applied: Applied) -> None:
        self._links.push(self.engine, applied)
        # Voters before delivery: whatever follows this position is decided by them.
        self.voting.on_applied(applied)
        self.applying.on_applied(applied)
        self._truncator.applied(applied)
        self._serve_if_ready()

    def _on_in_log(self, applied: Applied) -> None:
        self._leaders.applied(applied)
        self._serve_if_ready()

    def _serve_if_ready(self) -> None:
        """Makes an elected leader serve, once all values before its barrier (the first value of its term) are in its
        log."""
        leader, node = self.leader, self.engine.node
        if leader is None or leader.is_serving or node.coordinator is None:
            return
        # A leader that lacked applied batches would take a repeat for a new batch, and show readers too early an end.
        is_whole = self.applying.is_whole(node.coordinator.next_offset)
        # Drained: its own barrier, and everything that it found open, is applied.
        if is_whole and self.voting.is_leading and node.coordinator.is_drained:
            leader.begin()

    def _on_durable(self) -> None:
        # A floor may have waited for this.
        self._disk.resume()
        self._truncator.durable()
        self.applying.delivery.advance()

    def _on_log_differs(self, offset: int) -> None:
        self.applying.truncate(offset)

    def _on_log_failed(self, reason: str) -> None:
        """Takes the journal offline too, since a disk that fails to store applied batches cannot be trusted with
        promises."""
        self._disk.fail(reason)

    def _on_halted(self) -> None:
        logger.error("a replica has halted", partition=str(self.partition_id), reason=self._files.store.offline_reason)
        self._leaders.stop()

    def _on_election(self, effect: Elected | Awaits | Lost | VotersFound) -> None:
        match effect:
            case Elected():
                self.wait.end()
                self.voting.on_elected(effect)
                self._serve_if_ready()
            case Awaits():
                self.wait.on_awaits(effect)
            case Lost():
                self._truncator.lost()
                self.voting.on_lost(effect)
            case VotersFound():
                self.voting.voter_changer.on_found(effect)

    # -- what is beside the slots --------------------------------------------------------------------------------------

    def _encode_metainfo(self, metadata: Metadata) -> bytes:
        ids = {"engine_id": self.engine_id, "former_ids": self.engine.former_ids}
        return msgspec.msgpack.encode(structs.replace(self._files.metainfo, metadata=metadata, **ids))

    def _encode_floor(self, prefix: Prefix) -> bytes:
        return msgspec.msgpack.encode(self._floor(prefix))

    def _floor(self, prefix: Prefix) -> Floor:
        # What is hidden below the floor is not applied again, so the floor itself has to remember it.
        return structs.replace(
            self._history.floor(prefix), hidden_from=self.applied.comparison.hidden_below(prefix.next_offset)
        )

    def _on_copied(self, floor: Floor) -> None:
        self.voting.on_copied(floor)
        # The floor names the voters from now on: a restart must not have to ask for them again.
        self._disk.rewrite_floor(self.engine.node.replica.floor)
        self._serve_if_ready()
