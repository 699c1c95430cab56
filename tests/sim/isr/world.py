"""A world for one partition's cores: replicas, their disks, a network that loses, repeats and delays, a controller.

Nothing takes time but what the walk says. The judge knows what was ever called committed, and looks at every change.
Batches hold one record each; a log is a list of (leader epoch, value), so that equal entries mean equal batches.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tests.sim.isr.controller import Controller, Version
from tidelog.replication.isr.events import (
    AdvanceHighWatermark,
    AlterPartition,
    AlterPartitionAnswered,
    Append,
    Appended,
    AppendFetched,
    DeletePrefix,
    Distrust,
    Diverging,
    DivergingAt,
    Fetch,
    FetchDue,
    Fetched,
    FetchOutOfRange,
    FollowerFetched,
    FollowerSynced,
    FollowHighWatermark,
    IsrChanged,
    IsrSettings,
    LeaderChanged,
    LogState,
    Outcome,
    OutOfRange,
    PrefixDeleted,
    ReportSynced,
    Serve,
    StartOver,
    Synced,
    Tick,
    Truncate,
    Truncated,
)
from tidelog.replication.isr.follower import IsrFollower
from tidelog.replication.isr.leader import IsrLeader
from tidelog.replication.protocol import Propose

SETTINGS = {"lag_ms_max": 60, "retry_ms": 5}
ANSWERED_MAX = 3
"""Batches in an answer."""

Entry = tuple[int, int]


class Violation(AssertionError):
    """An invariant does not hold."""


@dataclass(frozen=True)
class Rules:
    """What the world is made of; a mutant replaces a part."""

    leader: type[IsrLeader] = IsrLeader
    follower: type[IsrFollower] = IsrFollower
    controller: type[Controller] = Controller


class Replica:
    """One broker: its disk, and, while it runs, one core."""

    def __init__(self, node: int, broker_epoch: int) -> None:
        self.node = node
        self.broker_epoch = broker_epoch
        self.log: list[Entry] = []
        self.start = 0
        self.base = 0
        """Where it started over; below, the log holds nothing, and what stands in its place is no content."""
        self.durable = 0
        self.high_watermark = 0
        """As kept on the disk."""
        self.life = 0
        self.is_running = True
        self.is_clean = True
        self.known = 0
        """The version that it has applied."""
        self.core: IsrLeader | IsrFollower | None = None
        self.attempts: list[int] = []

    def state(self) -> LogState:
        return LogState(self.start, self.durable, len(self.log), lineage_of(self.log, self.base))


def lineage_of(log: Sequence[Entry], base: int = 0) -> tuple[tuple[int, int], ...]:
    return tuple((log[at][0], at) for at in range(base, len(log)) if at == base or log[at - 1][0] != log[at][0])


class World:
    def __init__(self, rng: random.Random, rules: Rules, *, replicas: int, min_isr: int, is_fsynced: bool) -> None:
        self.rng = rng
        self.rules = rules
        self.settings = IsrSettings(min_isr=min_isr, is_fsynced=is_fsynced, **SETTINGS)
        self.controller = rules.controller(range(1, replicas + 1), min_isr, is_fsynced=is_fsynced)
        self.replicas = {node: Replica(node, node) for node in range(1, replicas + 1)}
        self.messages: list[Callable[[], None]] = []
        self.committed: list[Entry] = []
        self.now_ms = 0
        self.seen: dict[str, int] = {}
        self._values = 0
        self._correlations = 0
        for node in self.replicas:
            self.apply_metadata(node)

    def note(self, what: str) -> None:
        self.seen[what] = self.seen.get(what, 0) + 1

    # -- metadata ----------------------------------------------------------------------------------------------------

    def apply_metadata(self, node: int, version: int | None = None) -> None:
        replica = self.replicas[node]
        replica.known = len(self.controller.history) - 1 if version is None else version
        now = self.controller.history[replica.known]
        changed = IsrChanged(now.replicas, now.isr, now.partition_epoch, now.live)
        core = replica.core
        if core is not None and core.leader_epoch == now.leader_epoch:
            if isinstance(core, IsrLeader):
                self.lead(replica, core.step(changed))
        elif now.leader == node:
            self._take_office(replica, now, changed)
        elif isinstance(core, IsrFollower):
            core.step(LeaderChanged(now.leader_epoch))
        else:
            high_watermark = replica.high_watermark if core is None else core.high_watermark
            replica.core = self.rules.follower(now.leader_epoch, replica.state(), high_watermark)
            replica.attempts.clear()

    def _take_office(self, replica: Replica, now: Version, changed: IsrChanged) -> None:
        high_watermark = replica.high_watermark if replica.core is None else replica.core.high_watermark
        core = self.rules.leader(
            replica.node, now.leader_epoch, replica.state(), high_watermark, changed, self.settings, self.now_ms
        )
        replica.core = core
        self.note("leader")
        self.commit(replica, core.high_watermark)

    # -- leading -----------------------------------------------------------------------------------------------------

    def lead(self, replica: Replica, effects: Sequence[Any]) -> None:
        core = replica.core
        assert isinstance(core, IsrLeader)
        for effect in effects:
            match effect:
                case AdvanceHighWatermark(to):
                    assert to <= core.high_watermark
                    self.commit(replica, to)
                case AlterPartition(attempt, isr, partition_epoch):
                    replica.attempts.append(attempt)
                    self._ask_controller(replica, core.leader_epoch, attempt, isr, partition_epoch)
        self._check_maximal(core)

    def produce(self, node: int) -> None:
        replica = self.replicas[node]
        if isinstance(core := replica.core, IsrLeader):
            for effect in core.step(Propose(1)):
                assert isinstance(effect, Append) and effect.base_offset == len(replica.log)
                self._values += 1
                replica.log.append((effect.leader_epoch, self._values))
            self.lead(replica, core.step(Appended(len(replica.log))))

    def tick(self, node: int) -> None:
        if isinstance(core := self.replicas[node].core, IsrLeader):
            self.lead(self.replicas[node], core.step(Tick(self.now_ms)))

    def delete_prefix(self, node: int) -> None:
        replica = self.replicas[node]
        if isinstance(core := replica.core, IsrLeader):
            limit = min(core.high_watermark, replica.durable)
            replica.start = self.rng.randint(replica.start, max(replica.start, limit))
            core.step(PrefixDeleted(replica.start))

    def _ask_controller(
        self, replica: Replica, leader_epoch: int, attempt: int, isr: Sequence[tuple[int, int]], partition_epoch: int
    ) -> None:
        node, life = replica.node, replica.life

        def arrive() -> None:
            outcome, epoch, now_isr = self.controller.alter(node, leader_epoch, isr, partition_epoch)
            self.note(outcome.name)
            self._check_members()
            self.messages.append(lambda: self._answer(node, life, leader_epoch, attempt, outcome, epoch, now_isr))

        self.messages.append(arrive)

    def _answer(
        self, node: int, life: int, leader_epoch: int, attempt: int, outcome: Outcome, epoch: int, isr: tuple[int, ...]
    ) -> None:
        replica = self.replicas[node]
        core = replica.core
        if replica.life == life and isinstance(core, IsrLeader) and core.leader_epoch == leader_epoch:
            if attempt in replica.attempts:
                replica.attempts.remove(attempt)
            self.lead(replica, core.step(AlterPartitionAnswered(attempt, outcome, self.now_ms, epoch, isr)))

    def give_up(self, node: int) -> None:
        """The deadline of an AlterPartition has passed."""
        replica = self.replicas[node]
        if replica.attempts and isinstance(core := replica.core, IsrLeader):
            self._answer(node, replica.life, core.leader_epoch, replica.attempts[0], Outcome.AMBIGUOUS, -1, ())

    # -- following ---------------------------------------------------------------------------------------------------

    def fetch(self, node: int) -> None:
        if isinstance(core := self.replicas[node].core, IsrFollower):
            self._correlations += 1
            self.follow(self.replicas[node], core.step(FetchDue(self._correlations)))

    def follow(self, replica: Replica, effects: Sequence[Any]) -> None:
        core = replica.core
        assert isinstance(core, IsrFollower)
        for effect in effects:
            match effect:
                case Fetch():
                    self._send_fetch(replica, effect)
                case ReportSynced(fetch_offset, durable, epoch):
                    self._send_report(replica, core.leader_epoch, fetch_offset, durable, epoch)
                case FollowHighWatermark(to):
                    self._require(
                        replica.log[replica.start : to] == self.committed[replica.start : to], "20 read early"
                    )
                    self._require(to <= len(self.committed), "20 high watermark beyond what is committed")
                case DeletePrefix(to):
                    assert to <= replica.durable
                    replica.start = max(replica.start, to)
                case Truncate(to):
                    self._cut(replica, core, to)
                case StartOver(at):
                    self._start_over(replica, core, at)
                case Distrust(reason):
                    raise Violation(f"distrust: {reason}")
                case _:
                    raise AssertionError(effect)

    def _send_fetch(self, replica: Replica, fetch: Fetch) -> None:
        core, node, life = replica.core, replica.node, replica.life
        assert core is not None
        leader_epoch, broker_epoch = core.leader_epoch, replica.broker_epoch
        leader = self.controller.history[replica.known].leader

        def arrive() -> None:
            target = self.replicas.get(leader)
            if target is None or not isinstance(leading := target.core, IsrLeader):
                return
            if leading.leader_epoch != leader_epoch:
                return
            verdict, effects = leading.fetched(
                FollowerFetched(
                    node, broker_epoch, fetch.fetch_offset, fetch.durable_offset, fetch.last_fetched_epoch, self.now_ms
                )
            )
            self.lead(target, effects)
            answer = self._answer_to(fetch.correlation, verdict, target, leading)
            if answer is not None:
                self.messages.append(lambda: self._deliver(node, life, *answer))

        self.messages.append(arrive)

    def _answer_to(
        self, correlation: int, verdict: object, leader: Replica, core: IsrLeader
    ) -> tuple[Any, list[Entry]] | None:
        match verdict:
            case Serve(at):
                sent = leader.log[at : at + self.rng.randint(0, ANSWERED_MAX)]
                epochs = lineage_of(leader.log[: at + len(sent)], at)
                marks = core.high_watermark, leader.start
                return Fetched(correlation, at, at + len(sent), epochs, *marks), sent
            case Diverging(epoch, end_offset):
                self.note("diverging")
                return DivergingAt(correlation, epoch, end_offset), []
            case OutOfRange(start, end):
                self.note("out of range")
                return FetchOutOfRange(correlation, start, end), []
            case _:
                self.note("refused")
                return None

    def _deliver(self, node: int, life: int, answer: Any, sent: list[Entry]) -> None:
        replica = self.replicas[node]
        if replica.life != life or not isinstance(core := replica.core, IsrFollower):
            return
        effects = core.step(answer)
        if effects == [AppendFetched(len(replica.log) + len(sent))]:
            replica.log.extend(sent)
            self._check_matching(replica)
            effects = core.step(Appended(len(replica.log)))
        self.follow(replica, effects)
        self._check_lineage(replica, core)

    def _send_report(
        self, replica: Replica, leader_epoch: int, fetch_offset: int, durable: int, epoch: int | None
    ) -> None:
        leader = self.controller.history[replica.known].leader
        node, broker_epoch = replica.node, replica.broker_epoch

        def arrive() -> None:
            target = self.replicas.get(leader)
            if target is None or not isinstance(core := target.core, IsrLeader) or core.leader_epoch != leader_epoch:
                return
            report = FollowerSynced(node, broker_epoch, fetch_offset, durable, epoch, self.now_ms)
            self.lead(target, core.step(report))

        self.messages.append(arrive)

    def _cut(self, replica: Replica, core: IsrFollower, to: int) -> None:
        """Nobody cuts what is committed, but for one that nobody counts with, and that follows a leader of the past."""
        self.note("truncated")
        now = self.controller.now
        if core.leader_epoch == now.leader_epoch or replica.node in (*now.isr, *now.elr):
            self._require(
                all(one != other for one, other in zip(replica.log[to:], self.committed[to:], strict=False)),
                f"24 node {replica.node} cuts committed records from {to} on",
            )
        del replica.log[to:]
        replica.durable = to
        self.follow(replica, core.step(Truncated(to)))

    def _start_over(self, replica: Replica, core: IsrFollower, at: int) -> None:
        self.note("started over")
        replica.log[:] = self.committed[:at]  # below its start a log has no content; this keeps comparisons short
        assert len(replica.log) == at
        replica.start = replica.base = replica.durable = at
        self.follow(replica, core.step(Truncated(at)))

    # -- disks and processes -----------------------------------------------------------------------------------------

    def sync(self, node: int) -> None:
        replica = self.replicas[node]
        if not replica.is_running or replica.core is None:
            return
        replica.durable = self.rng.randint(replica.durable, len(replica.log))
        if isinstance(replica.core, IsrLeader):
            self.lead(replica, replica.core.step(Synced(replica.durable)))
        else:
            self.follow(replica, replica.core.step(Synced(replica.durable)))

    def checkpoint(self, node: int) -> None:
        replica = self.replicas[node]
        if replica.core is not None:
            replica.high_watermark = replica.core.high_watermark

    def crash(self, node: int) -> None:
        """The power fails: of what was not synced, some is gone."""
        replica = self.replicas[node]
        if replica.is_running:
            del replica.log[self.rng.randint(replica.durable, len(replica.log)) :]
            self._stop(replica, is_clean=False)

    def stop(self, node: int) -> None:
        if (replica := self.replicas[node]).is_running:
            self.sync(node)
            self.checkpoint(node)
            replica.durable = len(replica.log)
            self._stop(replica, is_clean=True)

    def _stop(self, replica: Replica, *, is_clean: bool) -> None:
        replica.is_running, replica.is_clean, replica.core = False, is_clean, None
        replica.life += 1
        replica.attempts.clear()
        replica.durable = len(replica.log)
        replica.high_watermark = min(replica.high_watermark, len(replica.log))

    def start(self, node: int) -> None:
        replica = self.replicas[node]
        if not replica.is_running:
            replica.is_running = True
            replica.broker_epoch = self.controller.register(node, is_clean=replica.is_clean)
            self.apply_metadata(node)
            self._check_members()

    def fence(self, node: int) -> None:
        self.controller.fence(node)
        self._check_members()

    def unfence(self, node: int) -> None:
        if self.replicas[node].is_running and node not in self.controller.now.live:
            self.controller.unfence(node)
            self._check_members()

    def rescue(self, node: int) -> None:
        """An operator elects somebody, if all that had everything are gone: what it has is the truth from now on."""
        if self.controller.is_lost and node in self.controller.now.live and self.replicas[node].is_running:
            self.note("unclean election")
            log = self.replicas[node].log
            while self.committed != log[: len(self.committed)]:
                self.committed.pop()
            self.controller.elect_unclean(node)

    # -- the judge ---------------------------------------------------------------------------------------------------

    def _require(self, is_true: bool, what: str) -> None:
        if not is_true:
            raise Violation(what)

    def commit(self, replica: Replica, to: int) -> None:
        """What a leader calls committed was acknowledged: it must be what others called so, for ever."""
        start = replica.start
        common = min(to, len(self.committed))
        self._require(
            replica.log[start:common] == self.committed[start:common],
            f"20 node {replica.node} commits something else below {common}",
        )
        if to > len(self.committed):
            self.note("committed")
            self.committed.extend(replica.log[len(self.committed) : to])
            self._check_members()

    def _check_members(self) -> None:
        """Whoever may be elected holds everything committed; the leader does in any case."""
        now = self.controller.now
        self._require(now.elr == () or len(now.isr) < self.controller.min_isr, "21 ELR of a set that is large enough")
        for node in (*now.isr, *now.elr):
            replica = self.replicas[node]
            is_registered = replica.broker_epoch == self.controller.registered[node]
            if not self.settings.is_fsynced and not (replica.is_running and is_registered):
                continue
            if replica.log[replica.start : len(self.committed)] != self.committed[replica.start :]:
                raise Violation(f"17 node {node} may lead without all of {len(self.committed)}: {now}")
            if self.settings.is_fsynced and replica.durable < len(self.committed):
                raise Violation(f"17 node {node} has not synced what is committed")

    def _check_maximal(self, core: IsrLeader) -> None:
        now = self.controller.now
        if core.leader_epoch == now.leader_epoch:
            eligible = set(now.isr) | (set(now.elr) if len(now.isr) >= self.controller.min_isr else set())
            self._require(eligible <= set(core.maximal_isr), f"18 {now.isr} is not within {core.maximal_isr}")

    def _check_matching(self, replica: Replica) -> None:
        """A batch of the same epoch at the same offset has the same past."""
        for other in self.replicas.values():
            for at in range(min(len(replica.log), len(other.log)) - 1, -1, -1):
                if replica.log[at][0] == other.log[at][0]:
                    start = max(replica.start, other.start)
                    self._require(
                        replica.log[start : at + 1] == other.log[start : at + 1],
                        f"19 nodes {replica.node} and {other.node} differ below {at}",
                    )
                    break

    def _check_lineage(self, replica: Replica, core: IsrFollower) -> None:
        rows = lineage_of(replica.log, replica.base)
        kept = core._lineage.rows
        self._require(kept == rows[len(rows) - len(kept) :], f"25 {kept} is not the lineage of {rows}")

    # -- the end -----------------------------------------------------------------------------------------------------

    def settle(self) -> None:
        """Everything runs and arrives: logs become equal, all is committed, and all are in sync."""
        for node in self.replicas:
            self.start(node)
            self.unfence(node)
        self.rescue(self.rng.choice(tuple(self.replicas)))
        for _ in range(60 + 2 * max(len(replica.log) for replica in self.replicas.values())):
            self.now_ms += 10
            for node in self.replicas:
                self.apply_metadata(node)
                self.sync(node)
                self.fetch(node)
                self.tick(node)
            while self.messages:
                self.messages.pop(0)()
            for node in self.replicas:
                self.give_up(node)
            if self._is_settled():
                return
        raise Violation(f"7 no peace: {self.controller.now}, logs {[r.log for r in self.replicas.values()]}")

    def _is_settled(self) -> bool:
        leader = self.replicas[self.controller.now.leader]
        return len(self.committed) == len(leader.log) and len(self.controller.now.isr) == len(self.replicas)
