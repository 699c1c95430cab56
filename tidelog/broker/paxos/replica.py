"""One replica of a Paxos partition, on every broker that holds one, leader or not.

Two things are on its disk. The *journal* (`SlotStore`) is the acceptor's: what it has promised, and what it accepted at
which position. The *log* is what came of it: the applied prefix, batch behind batch, the same bytes as everywhere.

    frames of other replicas -> engine -> journal -> answers
                                  | applied, in order
                               delivery -> log -> readers, and at the leader producers

The controller names the leader (`reigns`); voters change by entries of the log itself (`Membership`). A replica that is
behind all journals copies another's log (`copying`). The leader has the journals' heads given up (`space`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import msgspec
import structlog

from tidelog.broker.paxos.applied_log import AppliedLog
from tidelog.broker.paxos.copying import Copier
from tidelog.broker.paxos.journal import Floor, ReplicaFacts, VoterHistory, facts_of
from tidelog.broker.paxos.messages import AppliedDurable, PartitionFrame
from tidelog.broker.paxos.partition import WINDOW, PaxosPartition
from tidelog.broker.paxos.surroundings import ReplicaIdentity, ReplicaSurroundings
from tidelog.broker.paxos.trimming import Trimmer
from tidelog.broker.paxos.voting import Voting
from tidelog.broker.purgatory import Watchers
from tidelog.broker.quorum.delivery import Delivery
from tidelog.broker.quorum.disk import ReplicaDisk, stored_log
from tidelog.broker.quorum.engine import Engine, Told
from tidelog.broker.quorum.messages import ElectionFrame, PaxosFrame
from tidelog.broker.quorum.routes import Routes
from tidelog.config.schema import TopicConfig
from tidelog.model.errors import LeaderNotAvailable, Overloaded
from tidelog.model.ports import Buffer
from tidelog.replication.paxos.events import (
    Append,
    Applied,
    Chosen,
    Elect,
    Elected,
    Enlist,
    Halted,
    Jumped,
    Lost,
    Proposed,
    Reason,
    Refused,
    Repaired,
    Started,
    StatusChanged,
    VotersFound,
)
from tidelog.replication.paxos.messages import LearnResponse
from tidelog.replication.paxos.node import PaxosNode
from tidelog.replication.paxos.state import Kind, Metadata, Prefix, Slot, Status, Value
from tidelog.replication.paxos.voters import VoterSet, encode_voters, learner_id
from tidelog.storage.partition_log import PartitionLog
from tidelog.storage.slot_store import SlotStore, StoredSlots

logger = structlog.get_logger("tidelog.paxos")


class PaxosReplica:
    """Made with what the disk gave back; `start` before anything else. Not thread-safe: for the loop alone."""

    def __init__(
        self,
        identity: ReplicaIdentity,
        voters: VoterSet,
        log: PartitionLog,
        store: SlotStore,
        stored: StoredSlots,
        surroundings: ReplicaSurroundings,
    ) -> None:
        """`voters` are those of the metadata: with whom to begin if this is a founder, and else whom to ask."""
        assert not stored.is_amnesiac, "a journal that forgot what it promised is begun anew, under another id"
        self.topic, self.partition_id, self.node_id = identity.topic, identity.partition_id, identity.node_id
        self.log = log
        self.leader_epoch = -1
        self.leader: PaxosPartition | None = None
        """The leader's side, while the metadata names this broker."""
        facilities, entropy = surroundings.facilities, surroundings.entropy
        self._identity = identity
        self._facilities = facilities
        self._peers = surroundings.peers
        self._spawn = surroundings.spawn
        facts = facts_of(stored)
        founders = encode_voters(voters) if identity.is_founding else b""
        self._facts = facts or ReplicaFacts(identity.engine_id, Metadata(store.incarnation), founders)
        self._history = VoterHistory.open(stored, self._facts)
        membership = self._history.membership(voters)
        self.applied = AppliedLog(
            log,
            facilities.log_writer,
            facilities.clock,
            facilities.stats,
            applied=self._on_in_log,
            durable=self._on_durable,
            failed=self._on_log_failed,
        )
        self._store = store
        self._disk = ReplicaDisk(
            store, facilities.log_writer, self._encode_facts, floor=self._encode_floor, state_machine=self.applied
        )
        node = PaxosNode(
            identity.engine_id or learner_id(identity.node_id),
            membership.quorum(),
            stored_log(stored, self._facts.metadata),
            window=WINDOW + 1,  # a TRUNCATE takes no producer's place
            voters_position=membership.position,
        )
        self.engine = Engine(node, self._disk, self._post, self, entropy)
        self._routes = Routes(self._notify)
        self._routes.set_voters(voters)
        floor = node.replica.floor
        is_behind = log.log_end_offset < floor.next_offset
        begin = max(0, floor.position - 1) if is_behind else floor.position
        self.delivery = Delivery(begin, self._read, self.applied.take, lambda: node.replica.begin)
        self.delivery.jumped(floor.position)
        self.voting = Voting(
            self.engine, membership, self._history, self._routes, entropy, identity.engine_id, self._on_reign_ended
        )
        self._copier = Copier(
            self.partition_id, self.applied, self._peers.ask, self._others, self._lacking, self._on_copied, entropy
        )
        self._trimmer = Trimmer(
            node,
            store,
            self.engine.step,
            lambda: self.applied.durable_offset,
            self._report,
            self._live,
            surroundings.space,
        )
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._former: list[PaxosPartition] = []
        """Earlier leaders here, of whose values somebody still waits to hear."""
        self._leader_node = -1
        self._learners: tuple[int, ...] = ()
        self._answer: Proposed | Refused | None = None
        self._is_closed = False

    # -- beginning and ending ----------------------------------------------------------------------------------------

    def start(self) -> None:
        """Takes part, from now on."""
        self._tasks["facts"] = self._spawn(f"paxos-facts-{self.partition_id}", self._disk.run())
        self.engine.step(Started())
        if self._identity.engine_id and self._identity.may_enlist and self._status is Status.EMPTY:
            self.engine.step(Enlist())
        self._copy_what_is_lacking()

    async def close(self) -> None:
        """Takes no part any more. What is asked of the disk may still come: see `LogWriter.at_rest`."""
        self._is_closed = True
        for partition in [*self._former, *([self.leader] if self.leader else [])]:
            partition.close()
        self.leader = None
        self.voting.close()
        self.engine.close()
        self._trimmer.close()
        self.applied.close()
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    def enlist(self, engine_id: int) -> None:
        """The controller gave this disk an id under which no disk has ever voted. Its vote counts as soon as a voter
        set names it."""
        self._identity = replace(self._identity, engine_id=engine_id, may_enlist=True)
        self.voting.enlist(engine_id)

    # -- roles -------------------------------------------------------------------------------------------------------

    def lead(self, leader_epoch: int, config: TopicConfig) -> PaxosPartition:
        """The metadata names this broker, in this epoch. Whoever calls runs the partition's task; it takes requests
        as soon as a majority has elected it."""
        self._step_down(leader_epoch)
        self._leader_node = self.node_id
        self.leader = PaxosPartition(
            self.topic,
            self.partition_id,
            leader_epoch,
            self.applied,
            self,
            config,
            self.node_id,
            self._facilities,
        )
        self.voting.reigns.seek(leader_epoch)
        return self.leader

    def follow(self, leader_epoch: int, leader_node: int) -> None:
        """The metadata names another broker, or none (-1)."""
        self._step_down(leader_epoch)
        self._leader_node = leader_node
        self.voting.reigns.give_up()
        self._trimmer.durable()

    def _step_down(self, leader_epoch: int) -> None:
        self.leader_epoch = leader_epoch
        if self.leader is not None:
            self.leader.close(is_deposed=True)
            self._former.append(self.leader)
            self.leader = None

    def set_members(self, voters: VoterSet, nodes: Sequence[int]) -> None:
        """The metadata's view of who votes, and of all brokers that hold a replica. Those without a vote are sent what
        is chosen by the leader. Who really votes the log says."""
        self._routes.set_voters(voters)
        ids = {voter.node_id: voter.voter_id for voter in voters.voters}
        self._learners = tuple(ids.get(node, learner_id(node)) for node in nodes if node != self.node_id)

    async def change_voters(self, voters: VoterSet) -> None:
        """As `Voting.change`."""
        await self.voting.change(voters)

    # -- from other replicas -------------------------------------------------------------------------------------------

    def receive(self, node_id: int, frame: PaxosFrame, payload: memoryview) -> None:
        """A peer's engine speaks."""
        if not self._is_closed:
            self._routes.heard(frame.sender, node_id)
            self.engine.receive(frame, payload)

    def heard(self, engine_id: int, durable_offset: int) -> None:
        """A peer's log is durable up to there."""
        self._trimmer.heard(engine_id, durable_offset)

    def _post(self, to: int, frame: PaxosFrame, payloads: Sequence[Buffer]) -> None:
        self._routes.post(to, frame, payloads)

    def _notify(self, node_id: int, frame: PaxosFrame | ElectionFrame, payloads: Sequence[Buffer]) -> None:
        assert isinstance(frame, PaxosFrame)
        where = self.partition_id
        self._peers.notify(node_id, PartitionFrame(where.topic_id, where.partition, frame), payloads)

    def _report(self, durable_offset: int) -> None:
        where, me = self.partition_id, self.engine.node.node
        if self._leader_node not in (-1, self.node_id):
            self._peers.notify(self._leader_node, AppliedDurable(where.topic_id, where.partition, me, durable_offset))

    def _live(self) -> list[int]:
        voters = self.voting.membership.voters.voters
        me = self.node_id
        return [voter.voter_id for voter in voters if voter.node_id == me or self._peers.is_live(voter.node_id)]

    def _others(self) -> list[int]:
        nodes = {voter.node_id: None for voter in self.voting.membership.voters.voters}
        return [node for node in nodes if node != self.node_id]

    # -- what others see of it ---------------------------------------------------------------------------------------

    @property
    def high_watermark(self) -> int:
        """The end of what is applied here."""
        return self.applied.high_watermark

    @property
    def watchers(self) -> Watchers:
        """Readers that wait for more."""
        return self.applied.watchers

    @property
    def is_readable(self) -> bool:
        """False while the log is being emptied, and when the replica is closed."""
        return not self._is_closed and not self._copier.is_cutting

    @property
    def is_halted(self) -> bool:
        """Its disk has failed: it takes no part any more."""
        return self.engine.node.replica.is_halted

    @property
    def is_voting(self) -> bool:
        """May its votes count? False for a disk that has no id yet."""
        return self._status is Status.VOTING

    @property
    def _status(self) -> Status:
        return self.engine.node.replica.metadata.status

    @property
    def voters(self) -> VoterSet:
        """Those in force in the log, as far as it is known here."""
        return self.voting.membership.voters

    @property
    def applied_position(self) -> int:
        """How far the log is known here."""
        return self.engine.node.replica.applied.position

    @property
    def is_deposed(self) -> bool:
        """The metadata names this broker, and a later leader was heard of."""
        return self.leader is not None and self.voting.reigns.leader_epoch is None

    def committed(self) -> None:
        """The log has become durable, or was repaired."""
        self.applied.committed()

    def floor(self) -> Floor:
        """What the journal begins with, for a replica that is behind it."""
        return self._history.floor(self.engine.node.replica.floor)

    # -- for the leader's side ---------------------------------------------------------------------------------------

    def propose(self, count: int, payload: bytes) -> tuple[int, Value]:
        """As `Proposer.propose`."""
        digest = self.engine.payloads.hold(payload)
        answer = self._ask(Append(count, digest))
        if isinstance(answer, Proposed):
            return answer.position, answer.value
        self.engine.payloads.release(digest)
        if isinstance(answer, Refused) and answer.reason is Reason.WINDOW_FULL:
            raise Overloaded("too much is on its way for this partition; nothing was appended, try again")
        raise LeaderNotAvailable("this broker is not elected now; nothing was appended")

    def _ask(self, event: Append) -> Proposed | Refused | None:
        self._answer = None
        self.engine.step(event)
        return self._answer

    def next_offset(self) -> int:
        """As `Proposer.next_offset`."""
        coordinator = self.engine.node.coordinator
        if coordinator is None:
            raise LeaderNotAvailable("this broker is not elected now; nothing was appended")
        return coordinator.next_offset

    def nodes_of(self, engine_ids: tuple[int, ...]) -> list[int]:
        """As `Proposer.nodes_of`."""
        found = [self._routes.node_of(engine_id) for engine_id in engine_ids]
        return [node for node in found if node is not None]

    # -- what the engine says ----------------------------------------------------------------------------------------

    def on_effect(self, effect: Told) -> None:
        """For the engine."""
        match effect:
            case Applied():
                self._on_applied(effect)
            case Repaired(position):
                self.voting.on_repaired(position)
                self.delivery.advance()
            case Chosen(position, _, accepted_by) if self.leader is not None:
                self.leader.chosen(position, accepted_by)
            case Proposed() | Refused():
                self._on_answer(effect)
            case Elected() | Lost() | VotersFound():
                self._on_election(effect)
            case Jumped(floor):
                self.voting.membership.on_jumped(floor.position)
                self.delivery.jumped(floor.position)
                self.applied.hurry()
                self._copy_what_is_lacking()
            case StatusChanged():
                self.voting.reigns.campaign()
            case Halted():
                self._on_halted()
            case _:
                pass  # chosen after all, when the metadata names another leader already

    def _on_answer(self, answer: Proposed | Refused) -> None:
        if isinstance(answer, Proposed) and answer.value.kind is Kind.TRUNCATE:
            self._trimmer.proposed(answer)
        elif isinstance(answer, Refused) and isinstance(answer.event, Elect):
            self.voting.on_refused(answer.event.number)
        else:
            self._answer = answer

    def _on_applied(self, applied: Applied) -> None:
        self._push(applied)
        self.voting.on_applied(applied)
        self.delivery.applied(applied)
        self._trimmer.applied(applied)
        if applied.value.kind is Kind.TRUNCATE:
            self.applied.hurry()
        self._serve_if_ready()

    def _push(self, applied: Applied) -> None:
        """Voters hold what they accepted and need no more than a notice; learners would wait for their own timer."""
        if self.engine.node.coordinator is None:
            return
        slot = Slot(applied.position, 0, applied.value, learned=True)
        response = LearnResponse(self.engine.node.replica.floor, (slot,), applied.position + 1)
        for learner in self._learners:
            if learner not in self.voting.membership.voters.ids:
                self.engine.push(learner, response)

    def _read(self, position: int, value: Value) -> bytes | None:
        """The payload for the delivery; None if it cannot be had now."""
        if self.applied.is_full:
            return None
        return b"" if self.applied.holds(value) else self.engine.payload_of(position, value)

    def _on_in_log(self, applied: Applied) -> None:
        """The next value is in the log."""
        if self.leader is not None:
            self.leader.applied(applied)
        for partition in self._former:
            partition.applied(applied)
        self._former = [partition for partition in self._former if partition.is_awaited]
        self._serve_if_ready()

    def _serve_if_ready(self) -> None:
        """An elected leader serves when all that came before is in its log."""
        leader, node = self.leader, self.engine.node
        if leader is None or leader.is_serving or node.coordinator is None:
            return
        is_whole = self.applied.end_offset == self.log.log_end_offset >= node.coordinator.next_offset
        if is_whole and self.voting.is_leading and node.coordinator.is_drained:
            leader.begin()

    def _on_durable(self) -> None:
        self._disk.resume()
        self._trimmer.durable()
        self.delivery.advance()

    def _on_log_failed(self, reason: str) -> None:
        """One disk: who cannot keep what is applied cannot keep what it promises either."""
        self._disk.fail(reason)

    def _on_halted(self) -> None:
        logger.error("a replica has halted", partition=str(self.partition_id), reason=self._store.offline_reason)
        if self.leader is not None:
            self.leader.stop()

    def _on_election(self, effect: Elected | Lost | VotersFound) -> None:
        match effect:
            case Elected():
                self.voting.on_elected(effect)
                self._serve_if_ready()
            case Lost():
                self._trimmer.lost()
                self.voting.on_lost(effect)
            case VotersFound():
                self.voting.on_found(effect)

    def _on_reign_ended(self, goes_on: bool) -> None:
        if self.leader is not None:
            if goes_on:
                self.leader.hold()
            else:
                self.leader.stop()

    # -- what is beside the slots --------------------------------------------------------------------------------------

    def _encode_facts(self, metadata: Metadata) -> bytes:
        return msgspec.msgpack.encode(ReplicaFacts(self._identity.engine_id, metadata, self._facts.founders))

    def _encode_floor(self, prefix: Prefix) -> bytes:
        return msgspec.msgpack.encode(self._history.floor(prefix))

    # -- copying -------------------------------------------------------------------------------------------------------

    def _lacking(self) -> int | None:
        """Up to which position another's log must stand for what is lacking; None if nothing is."""
        lacking = self.delivery.needs_snapshot
        if lacking is None and not self.voting.membership.is_known:
            return 0
        return lacking

    def _copy_what_is_lacking(self) -> None:
        task = self._tasks.get("copying")
        if self._lacking() is not None and (task is None or task.done()) and not self._is_closed:
            self._tasks["copying"] = self._spawn(f"paxos-copying-{self.partition_id}", self._copier.run())

    def _on_copied(self, floor: Floor) -> None:
        """The log here reaches what this floor of another's journal stands for."""
        self.voting.on_copied(floor)
        self._disk.rewrite_floor(self.engine.node.replica.floor)
        if floor.position > self.delivery.position:
            self.delivery.installed(floor.position)
        self._serve_if_ready()
