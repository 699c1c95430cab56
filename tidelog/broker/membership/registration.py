"""A broker's standing in its cluster: it registers, lives by heartbeats, and leaves in good order.

    register -> fenced, until a heartbeat shows that its own registration is applied here -> live
    no heartbeat for a session's time -> fenced; its next heartbeat brings it back
    wants to stop -> a heartbeat says so -> leads nothing any more -> flushes, leaves its clean mark, ends

The epoch, the position of the registration in the metadata log, names this life of the process. If the cluster knows of
a later one, this broker has no business any more, and registers anew, or ends if another process is registered instead.

The *clean mark* is a file with the epoch, written when everything is flushed and removed, durably, before the next life
registers: whoever registers with it has on its disk all that it ever acknowledged.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Protocol

import msgspec
import structlog

from tidelog.broker.membership.controller_channel import ControllerChannel
from tidelog.broker.runtime.cluster_time import ClusterTime
from tidelog.broker.runtime.lease import Lease
from tidelog.config.schema import BrokerConfig
from tidelog.controller.commands import (
    BrokerAdmitted,
    BrokerHeartbeat,
    CommandAnswer,
    Done,
    HeartbeatAnswered,
    MetadataApplied,
    RegisterBroker,
    RegistrationOutdated,
    ReportRemoved,
)
from tidelog.controller.partition_commands import LostReplica, ReportLostReplicas, ReportUnfitReplicas, UnfitReplica
from tidelog.model.errors import BrokerRemoved, NodeIdInUse, OldDirectory, StaleBrokerEpoch, TidelogError
from tidelog.model.ids import TopicId
from tidelog.model.ports import Files

CLEAN_MARK = "clean"
REGISTER_S_MAX = 30.0
SHUTDOWN_S_MAX = 1.5

logger = structlog.get_logger("tidelog.broker")


@dataclass(frozen=True, slots=True)
class HeartbeatState:
    """A heartbeat tells the controller this."""

    position: int
    """How far the metadata is applied, and this broker in line with it."""
    snapshot: tuple[int, str]


class Member(Protocol):
    """The broker, as far as its registration knows it."""

    def heartbeat_state(self) -> HeartbeatState: ...

    def unfit(self) -> tuple[UnfitReplica, ...]:
        """Replicas here that the cluster should not count on."""
        ...

    def lost(self) -> tuple[LostReplica, ...]:
        """Replicas here whose logs are gone."""
        ...

    async def mark_time(self) -> int:
        """Counts the stamp in the data directory on, durably, and returns it."""
        ...

    async def mark_old(self) -> None:
        """Notes durably that the data directory is an old copy: the next start begins anew on it."""
        ...

    def report_applied(self, report: MetadataApplied) -> None:
        """Tells the controller how far the metadata is in force here. It may get lost."""
        ...

    def report_silences(self, own_epoch: int) -> None:
        """Tells the controller which brokers are silent. It may get lost."""
        ...


class Registration:
    """Keeps one process registered. `run` is its task; it needs `register` first."""

    def __init__(
        self,
        config: BrokerConfig,
        channel: ControllerChannel,
        clock: ClusterTime,
        lease: Lease,
        incarnation: str,
        member: Member,
    ) -> None:
        """`lease` is renewed by answered heartbeats."""
        self.incarnation = incarnation
        """The incarnation of this process, by which the controller tells it from others of the same node."""
        self.epoch = -1
        """The broker epoch of the registration; -1 before it."""
        self.is_live = asyncio.Event()
        """Set while the cluster counts on this broker."""
        self._config = config
        self._channel = channel
        self._clock = clock
        self._lease = lease
        self._member = member
        self._command: RegisterBroker
        self._wake = asyncio.Event()
        self._removed: dict[TopicId, None] = {}
        self._told = -1
        self._owed: tuple[int, float] | None = None
        """The lease that an answered heartbeat gives, once this much of the metadata is in force here."""
        self._is_heard = True
        self._stamp, self._stamped_s = 0, 0.0
        """The last time mark in the data directory, and when it was asked for."""
        self._marking: asyncio.Task[None] | None = None

    # -- joining -----------------------------------------------------------------------------------------------------

    async def register(self, command: RegisterBroker) -> BrokerAdmitted:
        """Makes this process the cluster's broker of its node id. Raises `NodeIdInUse`, `WrongCluster`,
        `OldDirectory`."""
        self._command = command
        self._stamp, self._stamped_s = command.stamp, self._clock.monotonic_s()
        session_s, loop = self._config.broker_session_timeout_ms / 1000, asyncio.get_running_loop()
        refused_s: float | None = None
        refused_by: int | None = None
        while True:
            try:
                answer = await self._channel.submit(self._command, CommandAnswer, seconds_max=REGISTER_S_MAX)
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
                if isinstance(answer, BrokerAdmitted):
                    self.epoch = answer.broker_epoch
                    return answer
                assert isinstance(answer, RegistrationOutdated)
                self._command = msgspec.structs.replace(command, replaces=answer.broker_epoch)

    # -- living ------------------------------------------------------------------------------------------------------

    def on_metadata_applied(self) -> None:
        """More of the metadata is in force here: the controller is told at once, since answers wait for it."""
        self._take_lease()
        position = self._member.heartbeat_state().position
        if self.epoch < 0 or position <= self._told:
            return
        self._told = position
        self._member.report_applied(MetadataApplied(self._command.node_id, self.epoch, position))
        if not self.is_live.is_set():
            self._wake.set()

    def hurry(self) -> None:
        """Something that a heartbeat tells has changed, or there is another controller to hear it."""
        self._told = -1
        self._wake.set()

    def report_removed(self, topic_id: TopicId) -> None:
        """Nothing of this deleted topic is left here."""
        self._removed[topic_id] = None
        self._wake.set()

    async def run(self) -> None:
        """Sends heartbeats until cancelled. Raises `NodeIdInUse` if another broker is registered instead, and
        `BrokerRemoved` if it has none any more."""
        try:
            await self._live()
        finally:
            if self._marking is not None:
                self._marking.cancel()

    async def _live(self) -> None:
        interval_s = self._config.heartbeat_ms / 1000
        while True:
            try:
                async with asyncio.timeout(interval_s):
                    await self._wake.wait()
            except TimeoutError:
                pass
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
        """Heartbeats do not wait for a disk that hangs."""
        now_s = self._clock.monotonic_s()
        is_due = now_s - self._stamped_s >= self._config.broker_stamp_interval_ms / 1000
        if is_due and (self._marking is None or self._marking.done()):
            self._stamped_s = now_s
            self._marking = asyncio.ensure_future(self._mark_time())

    async def _mark_time(self) -> None:
        """Tells nothing that is not on the disk. A disk that takes nothing is as old as its last mark."""
        try:
            self._stamp = await self._member.mark_time()
        except OSError as error:
            logger.error("the time cannot be marked in the data directory", error=str(error))

    def _note_heard(self, error: TidelogError | None = None) -> None:
        """Says once that nobody answers, however long that lasts, and once that it is over."""
        if self._is_heard and error is not None:
            logger.warning("heartbeats are not answered", reason=str(error))
        elif not self._is_heard and error is None:
            logger.info("heartbeats are answered again")
        self._is_heard = error is None

    async def _beat(self, seconds_max: float, *, wants_shutdown: bool = False) -> HeartbeatAnswered:
        state = self._member.heartbeat_state()
        heartbeat = BrokerHeartbeat(
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
        answer = await self._channel.submit(heartbeat, HeartbeatAnswered, seconds_max=seconds_max)
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
        """A broker that was fenced is live again with its first heartbeat, before it knows who leads in its place."""
        if self._owed is not None and self._member.heartbeat_state().position >= self._owed[0]:
            self._lease.renew(self._owed[1])
            self._owed = None

    async def _report(self, seconds_max: float) -> None:
        removed = list(self._removed)
        if removed:
            command = ReportRemoved(self._command.node_id, removed)
            await self._channel.submit(command, Done, seconds_max=seconds_max)
            for topic_id in removed:
                self._removed.pop(topic_id, None)
        unfit = self._member.unfit()
        if unfit:
            report = ReportUnfitReplicas(self._command.node_id, self.epoch, unfit)
            await self._channel.submit(report, Done, seconds_max=seconds_max)

    async def _report_lost(self, seconds_max: float) -> None:
        """Before a heartbeat that may make this broker live: nobody must be led by a replica that is lost."""
        lost = self._member.lost()
        if lost:
            logger.error("logs are lost; what stands in for them is empty", partitions=len(lost))
            report = ReportLostReplicas(self._command.node_id, self.epoch, lost)
            await self._channel.submit(report, Done, seconds_max=seconds_max)

    # -- leaving -----------------------------------------------------------------------------------------------------

    async def leave(self) -> None:
        """Asks that nobody counts on this broker any more; after a while it goes all the same."""
        try:
            answer = await self._beat(SHUTDOWN_S_MAX, wants_shutdown=True)
            assert answer.may_stop, "who asked to stop is fenced by the same decision"
        except TidelogError as error:
            logger.warning("stopping without the controller's consent", reason=str(error))


# -- the clean mark --------------------------------------------------------------------------------------------------


def take_clean_mark(files: Files) -> int:
    """The epoch under which the last life stopped in good order, -1 if it did not. The mark is gone for good when this
    returns. Blocking. Raises `OSError`."""
    if not files.exists(CLEAN_MARK):
        return -1
    file = files.open(CLEAN_MARK)
    try:
        content = file.pread(32, 0).strip()
    except OSError:
        content = b""
    finally:
        file.close()
    files.remove(CLEAN_MARK)
    files.sync_dir("")
    return int(content) if content.isdigit() else -1


def leave_clean_mark(files: Files, epoch: int) -> None:
    """Says that everything is on the disk. Blocking. Raises `OSError`."""
    file = files.open(CLEAN_MARK, create=True)
    try:
        file.truncate(0)
        file.pwritev([b"%d\n" % epoch], 0)
        file.sync()
    finally:
        file.close()
    files.sync_dir("")
