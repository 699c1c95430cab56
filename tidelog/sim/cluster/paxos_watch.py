"""Observes the engines of Paxos partitions: passes their events and effects to the partition's true log (`PaxosLog`).

An engine is a pure state machine with a single entry, `PaxosNode.step`; a hook there sees everything that a replica
promises, accepts, sends and applies, in the order in which it happens.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, ParamSpec

from msgspec.structs import replace

from tidelog.broker.paxos.copying import Copier
from tidelog.broker.paxos.partition import PaxosPartition
from tidelog.broker.paxos.replica import PaxosReplica
from tidelog.replication.paxos import events
from tidelog.replication.paxos.apply import Verdict
from tidelog.replication.paxos.messages import PromiseResponse, Reply, WriteRequest, WriteResponse
from tidelog.replication.paxos.node import PaxosNode
from tidelog.replication.paxos.replica import Replica
from tidelog.replication.paxos.state import Kind, Metadata, Record
from tidelog.replication.paxos.voters import VoterSet, decode_voters
from tidelog.sim.cluster.ledger import Ledger
from tidelog.sim.cluster.paxos_log import Actor, PaxosLog
from tidelog.sim.cluster.release_watch import ReleaseWatch
from tidelog.sim.cluster.world import World
from tidelog.sim.kit.patching import after, before, hooked
from tidelog.sim.paxos.truth import Violation

P = ParamSpec("P")


@dataclass(slots=True, eq=False)
class Seen:
    """A running replica, with the true log of its partition."""

    replica: PaxosReplica
    log: PaxosLog
    life: int
    unstored: list[tuple[int, int, Record]] = field(default_factory=list)
    """Records that are not known to be durable, as (sequence, engine id, record)."""

    @property
    def core(self) -> Replica:
        return self.replica.engine.node.replica

    @property
    def actor(self) -> Actor:
        node = self.replica.engine.node
        return Actor(self.replica.node_id, self.life, node.node, node.replica.metadata.incarnation)


class PaxosWatch:
    """Hooks into the engines of Paxos partitions of one run."""

    def __init__(self, world: World, ledger: Ledger) -> None:
        self._world = world
        self._truth = world.truth
        self._ledger = ledger
        self._seen: dict[PaxosNode, Seen] = {}
        self._releases = ReleaseWatch(world.truth)

    def open(self) -> AbstractContextManager[None]:
        """Installs the hooks while the context is open."""
        return hooked(
            (PaxosReplica, "__init__", after(self._opened)),
            (PaxosNode, "step", self._step),
            (PaxosPartition, "begin", after(self._serves)),
            (PaxosPartition, "release", before(self._is_released)),
            (Copier, "_start_over", before(self._starts_over)),
        )

    # -- replicas ----------------------------------------------------------------------------------------------------

    def _opened(self, replica: PaxosReplica, *_: Any, **__: Any) -> None:
        log = self._ledger.majorities.logs.get(replica.partition_id)
        if log is None:
            return
        seen = Seen(replica, log, self._world.machine(replica.node_id).lives)
        self._seen[replica.engine.node] = seen
        for engine_id in replica.engine.former_ids:
            log.renamed(engine_id, seen.actor.engine_id)
        core = seen.core
        records: list[Record] = [core.metadata, *core.slots.values()]
        for record in records:
            self._judge(log.recovered, seen.actor, record)
        self._truth.saw("journal begins behind a floor", core.begin > 0)

    def _serves(self, partition: PaxosPartition) -> None:
        book = self._ledger.books.get(partition.partition_id)
        seen = self._seen_with(partition)
        if seen is not None and book is not None:
            coordinator = seen.replica.engine.node.coordinator
            number = 0 if coordinator is None else coordinator.number
            self._judge(seen.log.may_serve, number, partition.log.log_end_offset, book.end)
            self._ledger.serves(seen.replica.node_id, partition.partition_id)
            self._truth.saw("majority serves")

    def _is_released(self, partition: PaxosPartition, position: int) -> None:
        seen = self._seen_with(partition)
        if seen is not None:
            self._judge(self._releases.releases, seen.log, seen.actor, partition, position)

    def _seen_with(self, leader: PaxosPartition) -> Seen | None:
        """Returns the running replica with this leader."""
        of_leader = (seen for seen in self._seen.values() if seen.replica.leader is leader)
        return next((seen for seen in of_leader if self._is_running(seen)), None)

    def _starts_over(self, *_: Any) -> None:
        self._truth.saw("replica of a majority starts over")

    # -- the engine --------------------------------------------------------------------------------------------------

    def _step(self, original: Any) -> Any:
        def step(node: PaxosNode, event: events.Event) -> list[events.Effect]:
            seen = self._seen.get(node)
            if seen is None or not self._is_running(seen):  # what a dying process turns over is nothing
                effects: list[events.Effect] = original(node, event)
                return effects
            if isinstance(event, events.Stored):
                self._stored(seen, event.sequence)
            id_before, term = node.node, node._term
            effects = original(node, event)
            if isinstance(event, events.Elect) and not any(isinstance(effect, events.Refused) for effect in effects):
                self._truth.saw("election over a hole", seen.log.is_released_ahead)
                self._judge(seen.log.asks, seen.actor, event.number, term.quorum, term.voters_position)
            if node.node != id_before:
                seen.log.renamed(id_before, node.node)
            for effect in effects:
                self._judge(self._look, seen, effect)
            return effects

        return step

    def _is_running(self, seen: Seen) -> bool:
        machine = self._world.machine(seen.replica.node_id)
        return machine.is_running and machine.lives == seen.life

    def _stored(self, seen: Seen, sequence: int) -> None:
        while seen.unstored and seen.unstored[0][0] <= sequence:
            _, engine_id, record = seen.unstored.pop(0)
            self._judge(seen.log.stored, engine_id, record)
            if isinstance(record, Metadata) and not (record.may_forget or seen.core.metadata.may_forget):
                seen.log.rests(engine_id)

    def _look(self, seen: Seen, effect: events.Effect) -> None:
        log, core = seen.log, seen.core
        match effect:
            case events.Persist():
                self._persists(seen, effect)
            case events.Chosen():
                self._answers_itself(seen, effect)
            case events.Applied():
                log.applies(seen.actor, effect)
                self._count_applied(effect)
            case events.Proposed():
                log.proposes(seen.actor, effect, self._voters_of(seen, effect))
            case events.Elected():
                log.elects(seen.actor, effect, core.applied.position)
                self._truth.note("elected", log.book.name, effect.number, seen.actor)
            case events.Jumped():
                log.jumps(seen.actor, effect)
                self._truth.saw("replica jumps to a floor")
            case events.Repaired():
                self._truth.saw("payload of a journal repaired from a peer")
            case events.Send(_, message):
                self._said(seen, message)

    def _persists(self, seen: Seen, persist: events.Persist) -> None:
        engine_id = seen.actor.engine_id
        seen.unstored += [(persist.sequence, engine_id, record) for record in persist.records]
        if seen.core.metadata.may_forget:
            seen.log.begins_to_be_lazy(engine_id)
        if persist.is_soon:
            seen.log.accepts_in_memory(engine_id, persist.records)

    def _answers_itself(self, seen: Seen, chosen: events.Chosen) -> None:
        """Notes a value that a leader counts as accepted by itself before it is durable, without a message to
        itself."""
        core = seen.core
        if core.metadata.may_forget and seen.actor.engine_id in chosen.accepted_by:
            accepted = replace(core.slots[chosen.position], learned=False)
            seen.log.accepts_in_memory(seen.actor.engine_id, (accepted,))

    def _voters_of(self, seen: Seen, proposed: events.Proposed) -> VoterSet | None:
        if proposed.value.kind is not Kind.VOTERS:
            return None
        payload = seen.replica.engine.payloads.get(proposed.value.digest)
        assert payload is not None, "whoever proposes voters has them at hand"
        self._truth.note("voters proposed", seen.log.book.name, proposed.position, *decode_voters(bytes(payload)).ids)
        return decode_voters(bytes(payload))

    def _said(self, seen: Seen, message: object) -> None:
        core = seen.core
        match message:
            case PromiseResponse(reply=Reply.ACCEPT) | WriteResponse(reply=Reply.ACCEPT):
                slot = core.slots.get(message.position) if isinstance(message, WriteResponse) else None
                if slot is not None and core.metadata.may_forget:  # accepted for the disk, and repeated from memory
                    seen.log.accepts_in_memory(seen.actor.engine_id, (slot,))
                seen.log.votes(seen.actor, core.metadata.status, message)
                is_faulty = isinstance(message, PromiseResponse) and any(slot.faulty for slot in message.slots)
                self._truth.saw("faulty slot told", is_faulty)
            case WriteRequest(number, _, value):
                self._truth.saw("ghost of a partition adopted", value.birth not in {0, number})
                self._truth.saw("hole of a partition filled", value.kind is Kind.NOP)
            case WriteResponse(reply=Reply.REJECT) | PromiseResponse(reply=Reply.REJECT):
                self._truth.saw("late leader of a partition refused")

    def _count_applied(self, applied: events.Applied) -> None:
        self._truth.saw("value of a partition void", applied.verdict is Verdict.VOID)
        self._truth.saw("voters of a partition changed", applied.value.kind is Kind.VOTERS)
        self._truth.saw("journals truncated", applied.value.kind is Kind.TRUNCATE)

    def _judge(self, look: Callable[P, None], *args: P.args, **kwargs: P.kwargs) -> None:
        try:
            look(*args, **kwargs)
        except Violation as violation:
            rule, _, what = str(violation).partition(": ")
            self._truth.violate(rule, what)
