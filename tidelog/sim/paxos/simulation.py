"""A run: nodes, disks and a network on a heap of events, driven by a plan, checked after every event.

All events are ordered by time and then by creation, and all random draws come from streams seeded by the scenario. So a
scenario determines its run to the last event; `trace` is a hash of all events.

The shell around the cores is here, in its simplest form: it carries out effects in order, draws delays, and keeps no
state that a crash would not destroy. At the end of the plan the faults end, too: a quorum is healed (`healing.py`), and
all that is open must be settled.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Any
from zlib import crc32

from tidelog.replication.paxos import events
from tidelog.replication.paxos.apply import Verdict
from tidelog.replication.paxos.numbers import LEARNER_BASE
from tidelog.replication.paxos.state import Record
from tidelog.sim.kit.seeds import stream
from tidelog.sim.paxos.actions import ALL_TRIGGERS, CrashAfter
from tidelog.sim.paxos.invariant import Invariant
from tidelog.sim.paxos.network import SimNetwork
from tidelog.sim.paxos.rules import INVARIANTS
from tidelog.sim.paxos.scenario import Scenario
from tidelog.sim.paxos.sim_node import SimNode, founding_voters
from tidelog.sim.paxos.sometimes import Sometimes
from tidelog.sim.paxos.truth import Truth
from tidelog.sim.paxos.voting import Voting

Observer = Callable[[int, SimNode, events.Event, list[events.Effect]], None]
"""Callback for every event with its effects: (time, node, event, effects)."""


class Simulation:
    """The state of one run: nodes, disks, network and pending events. `Story` drives it."""

    def __init__(
        self,
        scenario: Scenario,
        invariants: tuple[type[Invariant], ...] = INVARIANTS,
        observer: Observer | None = None,
    ) -> None:
        swarm = scenario.swarm
        self.scenario = scenario
        self.now = 0
        self.events = 0
        self.trace = 0
        self.rng = stream(scenario.seed, "chance")
        founders = founding_voters(swarm.nodes)
        machines = range(1, swarm.nodes + swarm.spares + 1)
        self.nodes = {number: SimNode(number, number, founders, swarm.window) for number in machines}
        """Nodes by voter id, including those whose disks are lost."""
        self.machines = dict(self.nodes)
        """Current node of each machine, by machine number."""
        self.network = SimNetwork(scenario, stream(scenario.seed, "network"))
        self.truth = Truth(founders)
        self.voting = Voting(self)
        self.on_lost: Callable[[SimNode, int], None] = lambda _, __: None
        """Callback for a node whose election failed, with the ballot of the attempt."""
        self.on_changed: Callable[[SimNode], None] = lambda _: None
        """Callback for a leader that has completed a change of voters."""
        self.on_trap: Callable[[SimNode, CrashAfter], None] = lambda _, __: None
        """Callback for a node that has met the trigger of a `CrashAfter`."""
        self.traps: list[CrashAfter] = []
        self._observer = observer
        self._sometimes = Sometimes(self.truth, has_spares=swarm.spares > 0)
        self.truth.disks = {node.node: node.disk for node in self.nodes.values()}
        self._invariants = [invariant(self.truth) for invariant in invariants]
        self._checks = self._index("watches", "check")
        self._sent = self._index("sends", "sent")
        self._heard = self._index("hears", "heard")
        self._landed = self._index("lands", "landed")
        self._carry_out: dict[type[Any], Callable[[SimNode, Any], None]] = {
            events.Send: self._send,
            events.Persist: self._persist,
            events.SetTimer: self._set_timer,
            events.Proposed: self._proposed,
            events.Released: self._released,
            events.Applied: self._applied,
            events.Lost: self._lost,
            events.Elected: self.voting.on_elected,
            events.Repaired: self.voting.on_repaired,
            events.Jumped: self.voting.on_jumped,
            events.VotersFound: self.voting.on_found,
        }
        self._heap: list[tuple[int, int, Callable[..., None], tuple[Any, ...]]] = []
        self._order = 0

    def _index(self, watched: str, judge: str) -> dict[type[Any], list[Callable[..., None]]]:
        """Returns the methods called `judge` of all invariants, by the types that their attribute `watched` lists."""
        index: dict[type[Any], list[Callable[..., None]]] = {}
        for watcher in [*self._invariants, self._sometimes]:
            for kind in getattr(watcher, watched, ()):
                index.setdefault(kind, []).append(getattr(watcher, judge))
        return index

    # -- time --------------------------------------------------------------------------------------------------------

    def after(self, ticks: int, call: Callable[..., None], *args: Any) -> None:
        self._order += 1
        heapq.heappush(self._heap, (self.now + ticks, self._order, call, args))

    def between(self, ticks: int) -> int:
        """Returns a random number of ticks in [ticks, 2 * ticks)."""
        return ticks + int(self.rng.random() * ticks)

    def run_until(self, time: int) -> None:
        """Runs all events that are due by this time."""
        heap = self._heap
        while heap and heap[0][0] <= time:
            self.now, _, call, args = heapq.heappop(heap)
            call(*args)
        self.now = time

    def judge_disks(self) -> None:
        """Checks the invariants on the disks as if all processes stopped now."""
        for invariant in self._invariants:
            invariant.at_end()

    # -- nodes -------------------------------------------------------------------------------------------------------

    def step(self, node: SimNode, event: events.Event) -> None:
        """Handles one event at a node and carries out its effects. Does nothing if the node is down."""
        if not node.is_up:
            return
        if isinstance(event, (events.Elect, events.Rejoin)):
            self.truth.on_attempt(event.number, node.membership)
        effects = node.core.step(event)
        self.events += 1
        kind = type(event.message if isinstance(event, events.Received) else event).__name__
        self.trace = crc32(f"{self.now} {node.node} {kind} {len(effects)}".encode(), self.trace)
        if self._observer is not None:
            self._observer(self.now, node, event, effects)
        for effect in effects:
            for check in self._checks.get(type(effect), ()):
                check(node, effect)
            carry_out = self._carry_out.get(type(effect))
            if carry_out is not None:
                carry_out(node, effect)
        if self.traps:
            self._spring_traps(node, effects)

    def _spring_traps(self, node: SimNode, effects: list[events.Effect]) -> None:
        for trap in self.traps:
            if any(ALL_TRIGGERS[trap.trigger](effect) for effect in effects):
                self.traps.remove(trap)
                self.on_trap(node, trap)
                return

    def start(self, node: SimNode) -> None:
        position, voters = self.truth.voters_at(node.disk.floor.position)
        node.start(voters, position)
        self.step(node, events.Started())

    def replace(self, node: SimNode) -> SimNode:
        """Replaces a machine's lost disk. Returns the new node on that machine, with a new voter id, not started
        yet."""
        node.is_dead = True
        del self.truth.disks[node.node]
        fresh = SimNode(self.truth.draw_id(), node.machine, self.truth.founders, self.scenario.swarm.window)
        self.nodes[fresh.node] = self.machines[node.machine] = fresh
        self.truth.disks[fresh.node] = fresh.disk
        return fresh

    def rename(self, node: SimNode) -> None:
        """Gives a node a new voter id, so that the same disk votes again as another voter."""
        former, node.node = node.node, self.truth.draw_id()
        node.incarnation = f"{node.machine}/{node.node}"
        node.disk.node = node.node
        del self.nodes[former]
        self.nodes[node.node] = node
        self.truth.disks[node.node] = self.truth.disks.pop(former)

    def is_lost(self, voter: int) -> bool:
        """Returns True if no disk has this voter id any more."""
        return voter not in self.nodes or self.nodes[voter].is_dead

    def find(self, engine_id: int) -> SimNode | None:
        """Returns the node that receives messages for this id; None if there is none."""
        node = self.nodes.get(engine_id) or self.machines.get(engine_id - LEARNER_BASE)
        return node if node is not None and node.core.node == engine_id else None

    def stop(self, node: SimNode, mood: str) -> None:
        """Crashes a node; `mood` decides which of the writes that were not durable survive."""
        node.stop()
        for record in node.disk.crash(self.rng, mood):
            self._land(node, record)

    # -- effects -----------------------------------------------------------------------------------------------------

    def _send(self, node: SimNode, effect: events.Send) -> None:
        for judge in self._sent.get(type(effect.message), ()):
            judge(node, effect.message)
        target = self.find(effect.to)
        machine = target.machine if target is not None else 0
        for ticks in self.network.delays(node.machine, machine, effect.message, self.now):
            self.after(ticks, self._deliver, node, node.core.node, node.disk.incarnations, effect)

    def _deliver(self, sender: SimNode, sender_id: int, incarnation: int, effect: events.Send) -> None:
        """Delivers a message to the node that has the recipient's id now; drops it if there is none, or if it is
        down."""
        node, message = self.find(effect.to), effect.message
        if node is None or not node.is_up:
            return
        if incarnation != sender.disk.incarnations or sender.is_dead:
            self.truth.counters["a message of a lost incarnation arrives"] += 1
        for listen in self._heard.get(type(message), ()):
            listen(node, sender_id, message)
        self.step(node, events.Received(sender_id, message))

    def _persist(self, node: SimNode, effect: events.Persist) -> None:
        node.disk.write(effect)
        if effect.is_urgent:
            ticks = int(self.rng.random() * (self.scenario.swarm.disk_ticks + 1))
            self.after(ticks, self._stored, node, node.boot, effect.sequence)

    def _stored(self, node: SimNode, boot: int, sequence: int) -> None:
        if node.is_up and node.boot == boot and not node.core.replica.is_halted:
            for record in node.disk.sync(sequence):
                self._land(node, record)
            self.step(node, events.Stored(sequence))

    def _land(self, node: SimNode, record: Record) -> None:
        self.truth.on_durable(node.node, record)
        for judge in self._landed.get(type(record), ()):
            judge(node, record)

    def _set_timer(self, node: SimNode, effect: events.SetTimer) -> None:
        swarm = self.scenario.swarm
        resend = swarm.round_trip * 3 // 2
        ticks = {
            events.Timer.RESEND: resend,
            events.Timer.CATCHUP: swarm.catchup_ticks,
            events.Timer.RECOVER: 2 * resend,
        }[effect.timer]
        node.timers[effect.timer] = effect
        self.after(self.between(ticks), self._fire, node, effect)

    def _fire(self, node: SimNode, timer: events.SetTimer) -> None:
        """Fires a timer, unless it was set again since, or the process has ended."""
        if node.is_up and node.timers.get(timer.timer) is timer:
            self.step(node, events.TimerFired(timer.timer, timer.token))

    def _proposed(self, node: SimNode, effect: events.Proposed) -> None:
        node.pending[effect.position] = effect.value

    def _released(self, node: SimNode, effect: events.Released) -> None:
        """Handles a value that is not applied yet, and may be acknowledged nevertheless."""
        value = node.core.replica.slots[effect.position].value
        node.pending.pop(effect.position, None)
        self.truth.show(effect.position, value)
        self.truth.acked[effect.position] = value

    def _applied(self, node: SimNode, effect: events.Applied) -> None:
        """Handles an applied value: the client gets its acknowledgement, even from a coordinator that has been replaced
        since."""
        self.truth.on_applied(effect)
        self.voting.on_applied(node, effect)
        value = node.pending.pop(effect.position, None)
        if value == effect.value and effect.verdict is Verdict.APPLIED:
            self.truth.acked[effect.position] = effect.value

    def _lost(self, node: SimNode, effect: events.Lost) -> None:
        self.voting.on_lost(node, effect)
        self.on_lost(node, effect.number)
