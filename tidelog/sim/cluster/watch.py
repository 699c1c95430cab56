"""Observes the shipped code of brokers: what they apply, decide and send is reported to `Truth` as it happens.

The code under test is not changed for it. For the length of a run, some methods of the shipped classes are replaced by
ones that report the call and run the original.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

from tidelog.broker.consensus.campaign import Campaigner
from tidelog.broker.consensus.delivery import Delivery
from tidelog.broker.consensus.elected_log import ElectedLog
from tidelog.broker.consensus.engine import Engine
from tidelog.broker.metadata.bootstrap import MetadataBootstrap
from tidelog.controller.records import decode_record
from tidelog.replication.election import Election, Role
from tidelog.replication.election_events import ElectionEvent, LostTerm, PreVoteAnswer, Resign, Tell, Tick
from tidelog.replication.paxos.apply import Verdict
from tidelog.replication.paxos.events import Applied, Effect, Elected, Jumped, Repaired, Send
from tidelog.replication.paxos.messages import PromiseResponse, Reply, WriteRequest, WriteResponse
from tidelog.replication.paxos.state import Kind
from tidelog.replication.paxos.voters import decode_voters
from tidelog.sim.cluster.truth import Entry
from tidelog.sim.cluster.world import World
from tidelog.sim.kit.patching import before, hooked


class Watch:
    """Hooks into the brokers of one run."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._truth = world.truth
        self._logs: dict[int, ElectedLog] = {}
        self._terms: dict[int, str] = {}
        self.unreadable: dict[int, list[int]] = {}
        """Positions of the metadata log that a node could not read at its last start, by node."""

    def open(self) -> AbstractContextManager[None]:
        """Installs the hooks while the context is open."""
        return hooked(
            (ElectedLog, "start", before(self._started)),
            (ElectedLog, "_deliver", before(self._delivered)),
            (ElectedLog, "on_effect", before(self._effect)),
            (Delivery, "installed", before(self._installed)),
            (Engine, "_carry_out", before(self._carried_out)),
            (Campaigner, "step", before(self._campaigned)),
            (MetadataBootstrap, "check_alone", before(self._checked)),
            (Election, "step", self._step),
        )

    def is_settled(self) -> bool:
        """Returns True if all brokers run, and none knows of a change of the voters under way."""
        logs = [log for node, log in self._logs.items() if self._world.machine(node).is_up]
        if len(logs) < len(self._world.swarm.nodes):
            return False
        ids = [[voter.voter_id for voter in log.membership.voters.voters] for log in logs]
        return all(voter_ids == ids[0] for voter_ids in ids) and not any(_has_open_voters(log) for log in logs)

    # -- the log -----------------------------------------------------------------------------------------------------

    def _started(self, log: ElectedLog, *_: Any) -> None:
        self._logs[log.node_id] = log

    def _delivered(self, log: ElectedLog, applied: Applied, payload: bytes | None) -> None:
        value, entry = applied.value, Entry(-1)
        if applied.verdict is Verdict.APPLIED and payload is not None:
            if value.kind is Kind.VOTERS:
                entry = Entry(-1, voters=decode_voters(payload))
            else:
                records = tuple(decode_record(line) for line in payload.split(b"\n"))
                entry = Entry(value.base_offset, records)
        self._truth.deliver(log.node_id, applied.position, entry)
        self._truth.saw("ghost void", applied.verdict is Verdict.VOID)
        self._truth.saw("barrier chosen", value.kind is Kind.BARRIER)

    def _installed(self, delivery: Delivery, position: int) -> None:
        self._truth.note("snapshot installed", position)
        self._truth.saw("snapshot installed")

    def _checked(self, bootstrap: MetadataBootstrap, log: ElectedLog) -> None:
        slots = bootstrap.member.stored.slots
        self.unreadable[log.node_id] = [slot.position for slot in slots if slot.is_faulty]

    # -- the engine --------------------------------------------------------------------------------------------------

    def _effect(self, log: ElectedLog, effect: Effect) -> None:
        match effect:
            case Elected(number):
                life = f"life {self._world.machine(log.node_id).lives} of node {log.node_id}"
                self._truth.note("elected", number, life)
                self._truth.saw("election")
                before = self._terms.setdefault(number, life)
                if before != life:
                    self._truth.violate("one leader", f"number {number} elects {before}, and {life}")
            case Jumped():
                self._truth.saw("log jumps to a floor")
            case Repaired():
                self._truth.saw("payload repaired from a peer")

    def _carried_out(self, engine: Engine, effect: Effect) -> None:
        match effect:
            case Send(_, WriteRequest(number, _, value)):
                self._truth.saw("ghost adopted", value.birth not in {0, number})
                self._truth.saw("hole filled", value.kind is Kind.NOP)
            case Send(_, WriteResponse(reply=Reply.REJECT)):
                self._truth.saw("write refused")
            case Send(_, PromiseResponse(reply=Reply.REJECT)):
                self._truth.saw("duel: promise refused")

    # -- elections and leases ----------------------------------------------------------------------------------------

    def _campaigned(self, campaigner: Campaigner, event: ElectionEvent) -> None:
        """Checks that no two leaders have a lease at the same virtual time, whatever their clocks show."""
        if campaigner.election.role is not Role.LEADER:
            return
        holders = [node for node, log in self._logs.items() if self._holds_lease(node, log)]
        if len(holders) > 1:
            self._truth.violate("leases", f"nodes {holders} hold one at the same time")

    def _holds_lease(self, node: int, log: ElectedLog) -> bool:
        machine = self._world.machine(node)
        if not log.is_leading or not machine.is_running:
            return False
        now_s = machine.time.at(self._world.true_time)
        return log._campaigner.election.has_lease(now_s)

    def _step(self, original: Any) -> Any:
        def step(election: Election, event: ElectionEvent, now_s: float) -> Any:
            role = election.role
            effects = original(election, event, now_s)
            self._truth.saw("pre-vote refused", any(_is_refusal(effect) for effect in effects))
            is_silenced = role is Role.LEADER and isinstance(event, Tick) and Resign() in effects
            self._truth.saw("leader deposed by check-quorum", is_silenced)
            self._truth.saw("term lost", role is Role.LEADER and isinstance(event, LostTerm))
            return effects

        return step


def _has_open_voters(log: ElectedLog) -> bool:
    slots = log.engine.node.replica.slots.values()
    is_unlearned = any(slot.value.kind is Kind.VOTERS and not slot.learned for slot in slots)
    return log.leadership.voter_changer.is_changing or is_unlearned


def _is_refusal(effect: object) -> bool:
    return isinstance(effect, Tell) and isinstance(effect.message, PreVoteAnswer) and not effect.message.granted
