"""The active controller: the broker that leads the metadata log decides for the cluster (Kafka's QuorumController).

Every broker has an instance; it is active between `on_elected` and `on_lost`. One task decides: it takes all waiting
commands, decides each on the image that those before it leave, and appends the records of all in one append. Answers
are given when the records are committed and applied, never before, so no answer tells of a decision that was lost.

    handle -> queue -> decide, decide, ... -> append (one) -> applied -> answers -> wait until all live brokers applied

If the outcome of an append is unknown, the image may be behind the log: the term ends there, and a new one (perhaps of
the same broker) begins with the log's end applied.
"""

from __future__ import annotations

import asyncio
from asyncio import timeout_at
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress

import msgspec
import structlog

from tidelog.broker.controller.applied_positions import AWAITED, AppliedPositions
from tidelog.broker.controller.requests import Group, Request
from tidelog.config.schema import BrokerConfig
from tidelog.controller.commands import (
    BrokerHeartbeat,
    Command,
    CommandAnswer,
    Done,
    FenceBroker,
    HeartbeatAnswered,
    LeadCluster,
    MetadataApplied,
    RaiseLevel,
    ReportSilence,
    SpokenLevels,
)
from tidelog.controller.decide import decide
from tidelog.controller.decide_brokers import registered_broker
from tidelog.controller.decision import MetadataLog
from tidelog.controller.judge import judge_of
from tidelog.controller.partition_commands import HandOver
from tidelog.controller.revocations import Revocations, deposed
from tidelog.controller.sessions import Sessions
from tidelog.controller.upkeep import fresh_stamps, next_snapshot, overdue, preferred_election
from tidelog.controller.voting import ChangeVoters, next_step
from tidelog.model.cluster import ClusterImage
from tidelog.model.errors import ControllerLost, NotController, Overloaded, TidelogError
from tidelog.model.ids import NodeId

COMMANDS_MAX = 1_000
"""The most commands in progress at one time, waiting ones included."""
GROUP_MAX = 64
"""The most commands whose records go into one append."""
COMMAND_S_MAX = 10.0
TICKS_PER_HEARTBEAT = 4
EARLY_S = 0.001
"""Seconds by which a timer may fire too early: an event loop counts in whole milliseconds."""

logger = structlog.get_logger("tidelog.controller")


class ActiveController:
    """The active controller on one broker. `run` is its task; `image` returns the broker's image, which the log's
    `append` has advanced."""

    def __init__(
        self,
        node_id: NodeId,
        log: MetadataLog,
        image: Callable[[], ClusterImage],
        config: BrokerConfig,
        spoken: Callable[[], Sequence[SpokenLevels]],
    ) -> None:
        """`spoken` returns the feature levels that this broker supports, and those of the brokers connected to it."""
        self._node_id = node_id
        self._log = log
        self._image = image
        self._config = config
        self._spoken = spoken
        self._sessions = Sessions(config.broker_session_timeout_ms, config.lease_ms)
        self._applied = AppliedPositions(node_id, self._sessions, image, lambda: self._is_serving)
        self._revocations = Revocations()
        self._judge = judge_of(config)
        self._tick_s = config.heartbeat_ms / 1000 / TICKS_PER_HEARTBEAT
        self._queue: deque[Request] = deque()
        self._work = asyncio.Event()
        self._open = 0
        self._ended: dict[NodeId, int] = {}
        self._leaving: dict[NodeId, int] = {}
        """The brokers that have asked to hand over their leaderships, with their epochs. They stay live until they
        stop, and are not elected meanwhile."""
        self._term: LeadCluster | None = None
        self._is_serving = False
        self._tick_at = 0.0
        self._balance_at = 0.0
        self._stamps_at = 0.0

    # -- who leads ---------------------------------------------------------------------------------------------------

    @property
    def is_active(self) -> bool:
        """True while this broker is the active controller and serves commands."""
        return self._is_serving

    @property
    def lags(self) -> dict[NodeId, int]:
        """Returns the number of records by which each live broker is behind in applying the metadata log; empty if this
        broker is not the active controller."""
        return self._applied.lags() if self._is_serving else {}

    @property
    def decides(self) -> bool:
        """True from this broker's election as controller on, when it has applied the whole log, although it may not
        serve yet."""
        return self._term is not None

    def on_elected(self, epoch: int, cluster_id: str) -> None:
        """Begins a term under `epoch`: this broker leads the metadata log, and has applied all of it. A cluster without
        an id gets `cluster_id`."""
        level = min(broker.levels.highest for broker in self._spoken())
        self._term = LeadCluster(self._node_id, epoch, cluster_id, level)
        self._is_serving = False
        self._work.set()

    def on_lost(self) -> None:
        """Ends the term: this broker does not lead the metadata log any more. Waiting commands fail; those begun end
        with the outcome of the log's `append`."""
        self._term = None
        self._is_serving = False
        for request in self._queue:
            request.fail(self._not_controller())
        self._queue.clear()
        self._applied.changed.wake_all()

    def _not_controller(self) -> NotController:
        return NotController(f"node {self._node_id} is not the active controller; nothing was done, ask again")

    def on_peer_down(self, node_id: int) -> None:
        """Has a broker fenced whose process has surely ended, since its host refuses connections; its session need not
        expire first.

        The report is kept until this broker is the active controller: often it was the controller that ended.
        """
        broker = self._image().brokers.get(NodeId(node_id))
        if broker is not None:
            self._ended[broker.node_id] = broker.epoch
            self._work.set()

    # -- commands ----------------------------------------------------------------------------------------------------

    async def handle(self, command: Command, *, seconds_max: float = COMMAND_S_MAX) -> CommandAnswer:
        """Returns the answer to a command. Raises the `TidelogError` with which the command is refused; `NotController`
        or `Overloaded` if nothing was done; `ControllerLost` if the outcome is unknown and the command may be
        repeated."""
        if self._term is None:
            raise self._not_controller()
        if isinstance(command, MetadataApplied | ReportSilence):
            self.noted(command)
            return Done(self._image().position)
        if isinstance(command, BrokerHeartbeat):
            self._applied.check(command)
        if isinstance(command, BrokerHeartbeat) and self._is_serving:
            answer = self._hear(command)
            if answer is not None:
                return answer
        if isinstance(command, HandOver):
            command = self._from_leaving(command)
        if self._open >= COMMANDS_MAX:
            raise Overloaded(f"the controller has {COMMANDS_MAX} commands to do already; try again later")
        self._open += 1
        try:
            answer = await self._decided(command, seconds_max)
            if isinstance(command, AWAITED):
                await self._applied.wait_for(answer.position)
        finally:
            self._open -= 1
        return answer

    async def _decided(self, command: Command, seconds_max: float) -> CommandAnswer:
        if isinstance(command, RaiseLevel):
            command = msgspec.structs.replace(command, spoken=self._spoken())
        request = Request(command, self._judge)
        self._queue.append(request)
        self._work.set()
        try:
            async with asyncio.timeout(seconds_max):
                return await request.answer
        except TimeoutError:
            if request.is_begun:
                raise ControllerLost("the controller could not agree in time; repeat the request") from None
            raise Overloaded("the controller did not come to it in time; nothing was done, try again") from None

    def _from_leaving(self, command: HandOver) -> HandOver:
        """Records that the broker is about to stop, and returns the command with all such brokers. Raises
        `StaleBrokerEpoch`, `BrokerRemoved`, `NotController`."""
        broker = registered_broker(self._image(), command.node_id, command.broker_epoch)
        self._leaving[broker.node_id] = broker.epoch
        return msgspec.structs.replace(command, leaving=self._still_leaving())

    def _still_leaving(self) -> list[NodeId]:
        epochs = {broker.node_id: broker.epoch for broker in self._image().live_brokers}
        self._leaving = {node: epoch for node, epoch in self._leaving.items() if epochs.get(node) == epoch}
        return list(self._leaving)

    def _hear(self, heartbeat: BrokerHeartbeat) -> CommandAnswer | None:
        """Records a heartbeat. Returns the answer, or None if the heartbeat needs a decision. Raises
        `StaleBrokerEpoch`, `NotController`.

        The answer lets the broker serve as a leader for a while, so it must not come from a deposed controller that has
        hung and does not know of its successor; nor be given while that broker is being fenced.
        """
        if not self._log.has_lease:
            raise self._not_controller()
        if self._revocations.is_under_way(heartbeat.node_id):
            return None
        image = self._image()
        decision = decide(image, heartbeat, self._config)
        self._applied.note(heartbeat)
        answer = decision.answer(image)
        if decision.records or not isinstance(answer, HeartbeatAnswered):
            return None
        offset_ms = self._sessions.clock_offset_ms(image, heartbeat.node_id)
        position = self._revocations.last(heartbeat.node_id)
        return msgspec.structs.replace(answer, position=position, clock_offset_ms=offset_ms)

    def noted(self, report: MetadataApplied | ReportSilence) -> None:
        """Takes a broker's report that needs no answer. Raises `ImplausibleNumber`."""
        if isinstance(report, ReportSilence):
            self._note_silence(report)
        elif self._is_serving:
            self._applied.check(report)
            self._applied.note(report)

    def _note_silence(self, report: ReportSilence) -> None:
        """Records a broker's report that another broker neither answers it nor gives a sign of life."""
        if self._is_serving:
            now_s = asyncio.get_running_loop().time()
            self._sessions.witnessed(report.silent_node, report.silent_epoch, report.node_id, now_s)
            self._tick_at = now_s
            self._work.set()

    # -- deciding ----------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Decides commands until cancelled."""
        while True:
            await self._wait_for_work(self._tick_at if self._is_serving else None)
            if self._term is not None and not self._is_serving:
                await self._begin(self._term)
            if self._is_serving and (group := self._next_group()):
                await self._decide(group)
            now_s = asyncio.get_running_loop().time()
            if self._is_serving and now_s >= self._tick_at - EARLY_S:
                self._tick_at = now_s + self._tick_s
                await self._tick(now_s)

    async def _wait_for_work(self, until_s: float | None) -> None:
        if not self._queue or not self._is_serving:
            with suppress(TimeoutError):
                async with timeout_at(until_s):
                    await self._work.wait()
        self._work.clear()

    def _next_group(self) -> list[Request]:
        ended = [Request(FenceBroker(node, epoch)) for node, epoch in self._ended.items()]
        self._ended.clear()
        return ended + [self._queue.popleft() for _ in range(min(len(self._queue), GROUP_MAX))]

    async def _begin(self, term: LeadCluster) -> None:
        """Begins a term: appends its first record, and begins a session for every broker."""
        request = Request(term)
        await self._decide([request])
        if self._term is not term:
            return
        if request.answer.exception() is None:
            now_s = asyncio.get_running_loop().time()
            self._sessions.begin(self._image(), now_s)
            self._revocations.begin(self._image().position)
            self._balance_at = now_s + self._config.leader_imbalance_check_interval_seconds
            self._is_serving = True
            logger.info("active controller", epoch=term.epoch, position=self._image().position)
        else:
            self._work.set()
            await asyncio.sleep(self._tick_s)

    async def _decide(self, requests: Sequence[Request]) -> None:
        """Decides the requests in order, appends the records of all, then answers all."""
        term = self._term
        group = Group(requests, self._image(), self._config)
        losers = deposed(self._image(), group.records)
        try:
            with self._revocations.agreeing(losers):
                offset = await self._log.append(group.records) if group.records else self._image().position
        except TidelogError as error:
            group.fail(error)
            if not error.definite and self._term is term:
                self.on_lost()
                self._log.resign()
            return
        self._revocations.made(losers, self._image().position)
        group.answer(offset)

    # -- of its own accord -------------------------------------------------------------------------------------------

    async def _tick(self, now_s: float) -> None:
        self._sessions.follow(self._image(), now_s)
        self._applied.changed.wake_all()
        self._sessions.alone_since(now_s - self._log.alone_s)
        fences = overdue(self._image(), self._sessions, now_s)
        for fence in fences:
            logger.warning("a broker is not heard of; it is fenced", node=fence.node_id, epoch=fence.broker_epoch)
        await self._do(*fences)
        await self._balance(now_s)
        await self._note_stamps(now_s)
        snapshot = next_snapshot(
            self._image(), self._sessions, every_records=self._config.metadata_log_snapshot_records
        )
        if snapshot is not None:
            await self._do(snapshot)  # alone in its append: the image is written down between two appends
        step = next_step(self._image(), self._sessions, now_s, replace_ms=self._config.controller_voter_replace_ms)
        if isinstance(step, ChangeVoters):
            await self._change_voters(step)
        elif step is not None:
            await self._do(step)

    async def _balance(self, now_s: float) -> None:
        """Elects preferred leaders periodically; not at once, since brokers that came back a moment ago are still
        catching up, and clients are still looking for their leaders."""
        if now_s < self._balance_at or self._still_leaving():
            return
        self._balance_at = now_s + self._config.leader_imbalance_check_interval_seconds
        election = preferred_election(self._image(), self._config)
        if election is not None:
            logger.info("giving partitions back to their preferred leaders")
            await self._do(election)

    async def _note_stamps(self, now_s: float) -> None:
        """Records the brokers' newest time marks (counters in their data directories) in the metadata, all in one
        record."""
        if now_s < self._stamps_at:
            return
        stamps = fresh_stamps(self._image(), self._sessions)
        if stamps is not None:
            self._stamps_at = now_s + self._config.broker_stamp_interval_ms / 1000
            await self._do(stamps)

    async def _do(self, *commands: Command) -> None:
        if self._is_serving and commands:
            await self._decide([Request(command) for command in commands])

    async def _change_voters(self, change: ChangeVoters) -> None:
        if not self._is_serving:
            return
        logger.info("changing the voters", add=change.add, remove=change.remove)
        try:
            await self._log.change_voters(add=change.add, remove=change.remove)
        except TidelogError as error:
            logger.warning("the voters could not be changed now", error=str(error))
