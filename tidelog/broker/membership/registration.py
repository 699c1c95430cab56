"""A broker's registration in its cluster: it registers, stays live by heartbeats, and leaves by a clean shutdown.

    register -> fenced, until a heartbeat shows that its own registration is applied here -> live
    no heartbeat for the session timeout -> fenced; its next heartbeat unfences it
    wants to stop -> a heartbeat says so -> leads no partitions any more -> flushes, leaves its clean mark, ends

The broker epoch, which is the position of the registration in the metadata log, identifies the process. If the cluster
has a later epoch for this node, this broker registers anew, or ends if another process is registered instead.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

import msgspec
import structlog

from tidelog.broker.membership.controller_channel import ControllerChannel
from tidelog.broker.runtime.cluster_time import ClusterTime
from tidelog.broker.runtime.lease import Lease
from tidelog.config.schema import BrokerConfig
from tidelog.controller import commands
from tidelog.controller.partition_commands import LostReplica, ReportLostReplicas, ReportUnfitReplicas, UnfitReplica
from tidelog.model.errors import BrokerRemoved, NodeIdInUse, OldDirectory, StaleBrokerEpoch, TidelogError
from tidelog.model.ids import TopicId

REGISTER_S_MAX = 30.0
SHUTDOWN_S_MAX = 1.5

logger = structlog.get_logger("tidelog.broker")


@dataclass(frozen=True, slots=True)
class HeartbeatState:
    """The state of this broker that a heartbeat reports to the controller."""

    position: int
    """The metadata position that is applied and in force on this broker."""
    snapshot: tuple[int, str]


class Member(Protocol):
    """The broker, as its registration uses it."""

    def heartbeat_state(self) -> HeartbeatState: ...

    def unfit(self) -> tuple[UnfitReplica, ...]:
        """Returns this broker's replicas that are unfit to lead or to be in sync."""

    def lost(self) -> tuple[LostReplica, ...]:
        """Returns this broker's replicas whose logs are gone."""

    async def mark_time(self) -> int:
        """Increments the time mark in the data directory durably, and returns it. It shows how recent the
        directory is."""

    async def mark_old(self) -> None:
        """Records durably that the data directory is an old copy, so that the next start begins anew on it."""

    def report_applied(self, report: commands.MetadataApplied) -> None:
        """Reports to the controller the metadata position that is in force here. The message may be lost."""

    def report_silences(self, own_epoch: int) -> None:
        """Reports the silent brokers to the controller. The messages may be lost."""


class Registration:
    """Keeps one process registered and live. `register` comes first; `run` is its task."""

    def __init__(
        self,
        config: BrokerConfig,
        channel: ControllerChannel,
        clock: ClusterTime,
        lease: Lease,
        incarnation: str,
        member: Member,
    ) -> None:
        """`lease` is the right to serve as a leader, which answered heartbeats renew."""
        self.incarnation = incarnation
        """The random incarnation of this process, which distinguishes it from other processes of the same node id."""
        self.epoch = -1
        """The broker epoch of the registration; -1 before it."""
        self.is_live = asyncio.Event()
        """Set while this broker is not fenced, by its last answered heartbeat."""
        self._config = config
        self._channel = channel
        self._clock = clock
        self._lease = lease
        self._member = member
        self._command: commands.RegisterBroker
        self._wake = asyncio.Event()
        self._removed: dict[TopicId, None] = {}
        self._reported = -1
        self._owed: tuple[int, float] | None = None
        """The metadata position that must be in force here, and the time of the heartbeat, before the lease of an
        answered heartbeat begins; None if no lease is waiting."""
        self._is_heard = True
        self._stamp, self._stamped_s = 0, 0.0
        """The last time mark in the data directory (a counter), and the monotonic time in seconds at which the next was
        begun."""
        self._marking: asyncio.Task[None] | None = None

    # -- joining -----------------------------------------------------------------------------------------------------

    async def register(self, command: commands.RegisterBroker) -> commands.BrokerAdmitted:
        """Registers this process as the broker of its node id; returns when it is admitted. Raises `NodeIdInUse`,
        `WrongCluster`, `OldDirectory`."""
        self._command = command
        self._stamp, self._stamped_s = command.stamp, self._clock.monotonic_s()
        session_s, loop = self._config.broker_session_timeout_ms / 1000, asyncio.get_running_loop()
        refused_s: float | None = None
        refused_by: int | None = None
        while True:
            try:
                answer = await self._channel.submit(self._command, commands.CommandAnswer, seconds_max=REGISTER_S_MAX)
            except OldDirectory:
                await self._member.mark_old()
                raise
            except NodeIdInUse:
                # A new controller gives the one before a whole session, however long that is dead.
                if refused_s is None or refused_by != self._channel.leader:
                    refused_s, refused_by = loop.time(), self._channel.leader
                elif loop.time() >= refused_s + 2 * session_s:
                    raise  # it goes on living: it is no predecessor of this process
                logger.warning("another broker has this node id; waiting for the end of its session")
                await asyncio.sleep(session_s / 10)
            except TidelogError as error:
                if error.definite and not error.retriable:
                    raise
                refused_s = None
                logger.warning("not registered yet", reason=str(error))
            else:
                if isinstance(answer, commands.BrokerAdmitted):
                    self.epoch = answer.broker_epoch
                    return answer
                assert isinstance(answer, commands.RegistrationOutdated)
                self._command = msgspec.structs.replace(command, replaces=answer.broker_epoch)

    # -- living ------------------------------------------------------------------------------------------------------

    def on_metadata_applied(self) -> None:
        """Reports to the controller at once that more of the metadata is in force here, since its answers may wait for
        that."""
        self._take_lease()
        position = self._member.heartbeat_state().position
        if self.epoch < 0 or position <= self._reported:
            return
        self._reported = position
        self._member.report_applied(commands.MetadataApplied(self._command.node_id, self.epoch, position))
        if not self.is_live.is_set():
            self._wake.set()

    def hurry(self) -> None:
        """Sends the next heartbeat at once, because the state that it reports, or the controller, has changed."""
        self._reported = -1
        self._wake.set()

    def report_removed(self, topic_id: TopicId) -> None:
        """Has the next heartbeat report that no data of this deleted topic is left here."""
        self._removed[topic_id] = None
        self._wake.set()

    async def run(self) -> None:
        """Sends heartbeats until cancelled. Raises `NodeIdInUse` if another process is registered instead, and
        `BrokerRemoved` if the broker was removed from the cluster."""
        try:
            await self._live()
        finally:
            if self._marking is not None:
                self._marking.cancel()

    async def _live(self) -> None:
        interval_s = self._config.heartbeat_ms / 1000
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(interval_s):
                    await self._wake.wait()
            self._wake.clear()
            try:
                await self._report_lost(interval_s)
                self._begin_to_mark_time()
                await self._beat(interval_s)
                # With each heartbeat: what was told to a controller that hangs, its successor has not heard.
                self._member.report_silences(self.epoch)
                await self._report(interval_s)
                self._note_heard()
            except StaleBrokerEpoch as error:
                self.is_live.clear()
                logger.warning("registering again", reason=str(error))
                await self.register(msgspec.structs.replace(self._command, stamp=self._stamp))
                self.hurry()
            except (BrokerRemoved, OldDirectory):
                self.is_live.clear()
                raise
            except TidelogError as error:
                self._note_heard(error)

    def _begin_to_mark_time(self) -> None:
        """Begins to write a time mark if one is due, in a task, so that heartbeats do not wait for a disk that
        hangs."""
        now_s = self._clock.monotonic_s()
        is_due = now_s - self._stamped_s >= self._config.broker_stamp_interval_ms / 1000
        if is_due and (self._marking is None or self._marking.done()):
            self._stamped_s = now_s
            self._marking = asyncio.ensure_future(self._mark_time())

    async def _mark_time(self) -> None:
        """Increments the time mark in the data directory, and reports it from the next heartbeat on. On a disk error
        the last mark stays."""
        try:
            self._stamp = await self._member.mark_time()
        except OSError as error:
            logger.error("the time cannot be marked in the data directory", error=str(error))

    def _note_heard(self, error: TidelogError | None = None) -> None:
        """Logs once that heartbeats are not answered, and once that they are answered again."""
        if self._is_heard and error is not None:
            logger.warning("heartbeats are not answered", reason=str(error))
        elif not self._is_heard and error is None:
            logger.info("heartbeats are answered again")
        self._is_heard = error is None

    async def _beat(self, seconds_max: float, *, wants_shutdown: bool = False) -> commands.HeartbeatAnswered:
        state = self._member.heartbeat_state()
        heartbeat = commands.BrokerHeartbeat(
            self._command.node_id,
            self.epoch,
            state.position,
            wants_shutdown,
            state.snapshot[0],
            state.snapshot[1],
            self._stamp,
            self._clock.own_ms,
        )
        sent_s = self._clock.monotonic_s()
        answer = await self._channel.submit(heartbeat, commands.HeartbeatAnswered, seconds_max=seconds_max)
        if answer.clock_offset_ms is not None:
            self._clock.compared(sent_s, answer.clock_offset_ms)
        if answer.is_fenced:
            self.is_live.clear()
        else:
            self._owed = (answer.position, sent_s)
            self._take_lease()
            self.is_live.set()
        return answer

    def _take_lease(self) -> None:
        """Renews the lease for the last answered heartbeat, once the metadata that its answer requires is in force
        here."""
        if self._owed is not None and self._member.heartbeat_state().position >= self._owed[0]:
            self._lease.renew(self._owed[1])
            self._owed = None

    async def _report(self, seconds_max: float) -> None:
        removed = list(self._removed)
        if removed:
            command = commands.ReportRemoved(self._command.node_id, removed)
            await self._channel.submit(command, commands.Done, seconds_max=seconds_max)
            for topic_id in removed:
                self._removed.pop(topic_id, None)
        unfit = self._member.unfit()
        if unfit:
            report = ReportUnfitReplicas(self._command.node_id, self.epoch, unfit)
            await self._channel.submit(report, commands.Done, seconds_max=seconds_max)

    async def _report_lost(self, seconds_max: float) -> None:
        """Reports lost logs. It comes before a heartbeat that may unfence this broker, so that no lost replica is
        elected."""
        lost = self._member.lost()
        if lost:
            logger.error("logs are lost; what stands in for them is empty", partitions=len(lost))
            report = ReportLostReplicas(self._command.node_id, self.epoch, lost)
            await self._channel.submit(report, commands.Done, seconds_max=seconds_max)

    # -- leaving -----------------------------------------------------------------------------------------------------

    async def leave(self) -> None:
        """Asks the controller to fence this broker and elect other leaders; returns after a timeout if there is no
        answer."""
        try:
            answer = await self._beat(SHUTDOWN_S_MAX, wants_shutdown=True)
            assert answer.may_stop, "who asked to stop is fenced by the same decision"
        except TidelogError as error:
            logger.warning("stopping without the controller's consent", reason=str(error))
