"""The leader's side of replication: answers other brokers' fetches of the partitions that this broker leads.

A fetch covers many partitions. The question for each partition stays open until there is an answer: batches, a
divergence, a refusal. Then it is answered once, and the follower's next fetch names the partition anew. So the cost of
a fetch depends on the partitions with something to answer, not on the number of followed partitions.

    fetch(changed partitions) -> questions open, or ready if there is data -> the first ready one completes the fetch

A new high watermark alone completes no fetch: it is sent with the next batch, or when the fetch's time is up.

Replicas under the reassignment throttle (`throttle`) have questions, too. If there is data for such a question it is
*held*, and completes no fetch until there is an allowance; the other partitions of the fetch are answered as if it were
not there. Replicas with the fewest missing records are served first: they are the next to be in sync, and then not
throttled any more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from tidelog.broker.isr.fetch_session import Question, Session
from tidelog.broker.isr.partition import Partition
from tidelog.broker.isr.replica_messages import (
    FetchReplicas,
    FetchStatus,
    FollowerState,
    PartitionFetched,
    ReplicasFetched,
    ReplicasFlushed,
    check_state,
)
from tidelog.broker.partitions.throttle import Throttle
from tidelog.broker.runtime.stats import Stats
from tidelog.model.errors import DamagedBatch, OffsetOutOfRange, StaleBrokerEpoch, TidelogError
from tidelog.model.ids import PartitionId, TopicId
from tidelog.model.ports import Buffer, Clock
from tidelog.replication.isr import events as isr
from tidelog.transport.peer import Answer, Hello

PARTITION_BYTES_MAX = 1 << 20
BYTES_MAX = 16 << 20
"""The most bytes of batches in one answer, whatever limit the follower names."""
WAIT_MS_MAX = 5_000


class ReplicationService:
    """The leader's side of replication on one broker. `broker_epoch` returns the epoch of a registered broker."""

    def __init__(
        self,
        partitions: Mapping[PartitionId, Partition],
        broker_epoch: Callable[[int], int],
        clock: Clock,
        stats: Stats,
        throttle: Throttle,
    ) -> None:
        self._stats = stats
        self._throttle = throttle
        throttle.changed = self._release
        self._partitions = partitions
        self._broker_epoch = broker_epoch
        self._clock = clock
        self._sessions: dict[int, Session] = {}
        """The fetch sessions by the follower's node id; each broker has one process and so one session."""

    # -- from the partitions -----------------------------------------------------------------------------------------

    def progressed(self, partition: Partition) -> None:
        """Wakes fetches that wait for a partition whose log has grown, or whose high watermark has advanced."""
        partition_id = PartitionId(partition.topic_id, partition.partition)
        for session in self._sessions.values():
            session.note(partition_id, partition.log_end_offset)
            if session.held and self._allowance(session):
                session.wake()

    def ask_anew(self, partition_id: PartitionId, nodes: Sequence[int]) -> None:
        """Answers these followers' waiting fetches of a partition, so that they send their state again. Where nothing
        is written, the fetch of a follower that was removed from the in-sync set would otherwise wait on without a new
        report, and a deletion would wait for the next batch."""
        for node in nodes:
            session = self._sessions.get(node)
            # A question that is held has data: it is answered when the throttle lets it.
            if session is not None and partition_id in session.questions and partition_id not in session.held:
                session.make_ready(partition_id)

    def _release(self) -> None:
        """Answers followers with the data that the throttle has held back, as far as it is allowed now: the throttle,
        or the set of throttled replicas, has changed."""
        for session in self._sessions.values():
            held, session.held = session.held, {}
            for partition_id in held:
                session.has_data(partition_id)
            if session.held:
                session.wake()

    def forget(self, partition_id: PartitionId) -> None:
        """Answers the followers of a partition that this broker does not lead it any more, or leads it in another
        epoch."""
        for session in self._sessions.values():
            question = session.questions.get(partition_id)
            if question is not None:
                # The verdict is of a leadership that has ended: its offsets may be truncated by the next.
                question.verdict = FetchStatus.UNKNOWN_EPOCH
                session.make_ready(partition_id)

    # -- from the followers ------------------------------------------------------------------------------------------

    async def fetch(self, caller: Hello, request: FetchReplicas) -> Answer:
        """Answers a follower's fetch as soon as there is data or a status to send, or when its time is up. Raises
        `StaleBrokerEpoch`, `ImplausibleNumber`."""
        # Everything is checked before the session is touched: a refused fetch must leave no trace.
        self._check(request.replica, request.broker_epoch)
        for state in request.changed:
            check_state(state)
        session = self._session(caller, request)
        if session is None:
            return Answer(ReplicasFetched((), is_session_lost=True))
        # Counted before waiting: a fetch sent twice finds the second one out of turn, and is answered once.
        session.number = request.number + 1
        for topic_id, partition in request.forgotten:
            session.close(PartitionId(TopicId(topic_id), partition))
            session.reported.pop(PartitionId(TopicId(topic_id), partition), None)
        for state in request.changed:
            self._open(session, request, state)
        session.granted = request.throttled_bytes_max
        if not session.ready and not (session.held and self._allowance(session)):
            await self._wait(session, min(request.wait_ms, WAIT_MS_MAX) / 1000)
        return self._answer(session, min(request.bytes_max, BYTES_MAX))

    def _check(self, replica: int, broker_epoch: int) -> None:
        # An earlier process of that broker may have had a longer log; what it reports must not count for the present
        # one.
        if broker_epoch < self._broker_epoch(replica):
            raise StaleBrokerEpoch(f"broker {replica} has registered again since; this is an earlier life of it")

    def _session(self, caller: Hello, request: FetchReplicas) -> Session | None:
        session = self._sessions.get(request.replica)
        if request.number == 0:
            if session is not None:
                session.wake()
            # Whatever was lost of the session before, an answer or a process, everything is asked anew in this one.
            is_throttled = partial(self._is_held, request.replica)
            session = self._sessions[request.replica] = Session(request.session, caller.incarnation, is_throttled)
            return session
        if session is None or (session.name, session.number) != (request.session, request.number):
            return None
        return session

    def _open(self, session: Session, request: FetchReplicas, state: FollowerState) -> None:
        """Passes a follower's fetch of one partition to the leader's state machine, and keeps it in the session until
        it is answered: with the next answer, if there is something to send already."""
        partition_id = PartitionId(TopicId(state.topic_id), state.partition)
        session.close(partition_id)
        partition = self._partitions.get(partition_id)
        question = session.questions[partition_id] = Question(state, FetchStatus.UNKNOWN_EPOCH)
        # This broker has yet to hear of its leadership: the follower asks again.
        if partition is None or state.leader_epoch > partition.leader_epoch:
            session.make_ready(partition_id)
            return
        # The follower goes by an older leader: what its log holds beyond the epochs in common may be truncated yet.
        if state.leader_epoch < partition.leader_epoch:
            question.verdict = FetchStatus.FENCED_EPOCH
            session.make_ready(partition_id)
            return
        question.verdict = partition.fetched(
            isr.FollowerFetched(
                request.replica,
                request.broker_epoch,
                state.fetch_offset,
                state.durable_offset,
                None if state.last_epoch < 0 else state.last_epoch,
                self._now_ms(),
                partition.may_repair(state.damaged),
                state.log_start_offset,
            )
        )
        if not isinstance(question.verdict, isr.Serve):
            session.make_ready(partition_id)
        elif question.verdict.from_offset < partition.log_end_offset:
            session.has_data(partition_id)
        elif session.reported.get(partition_id) != _state_of(partition):
            session.advanced[partition_id] = None

    async def _wait(self, session: Session, seconds: float) -> None:
        """Waits until one of the follower's partitions can be answered, or, if the throttle holds one back, until this
        broker has an allowance to send; the follower sends a new fetch when it has an allowance to receive."""
        if session.held and session.granted:
            seconds = min(seconds, self._throttle.sending.ready_in_s())
        loop = asyncio.get_running_loop()
        session.waiter = loop.create_future()
        timer = loop.call_later(seconds, session.wake)
        try:
            await session.waiter
        finally:
            timer.cancel()
            session.waiter = None

    def flushed(self, report: ReplicasFlushed) -> None:
        """Takes a follower's report that its logs are flushed further, while its fetch waits here. Raises
        `ImplausibleNumber`."""
        for state in report.states:
            check_state(state)
        self._stats.replica_reports += 1
        if report.broker_epoch < self._broker_epoch(report.replica):
            return
        session = self._sessions.get(report.replica)
        # The fetch that waits cannot carry them; answered now, it is followed by one that does.
        if report.has_questions and session is not None:
            session.wake()
        for state in report.states:
            partition = self._partitions.get(PartitionId(TopicId(state.topic_id), state.partition))
            # A report of another epoch speaks of a log that may have been truncated since.
            if partition is not None and partition.leader_epoch == state.leader_epoch:
                partition.tell(
                    isr.FollowerFlushed(
                        report.replica,
                        report.broker_epoch,
                        state.fetch_offset,
                        state.durable_offset,
                        None if state.last_epoch < 0 else state.last_epoch,
                        self._now_ms(),
                        partition.may_repair(state.damaged),
                        state.log_start_offset,
                    )
                )

    # -- answers -----------------------------------------------------------------------------------------------------

    def _answer(self, session: Session, bytes_max: int) -> Answer:
        entries: list[PartitionFetched] = []
        payload: list[Buffer] = []
        room = bytes_max
        for partition_id in list(session.ready):
            # What finds no room stays ready, and completes the next fetch at once.
            if room <= 0:
                break
            entry, data = self._entry(session.questions[partition_id], partition_id, min(room, PARTITION_BYTES_MAX))
            session.close(partition_id)
            entries.append(entry)
            payload.extend(data)
            room -= entry.size
        # Throttled replicas get what room is left: those in sync must not wait for them.
        room = self._answer_held(session, room, entries, payload)
        for partition_id in list(session.advanced):
            question = session.questions[partition_id]
            partition = self._partitions.get(partition_id)
            if partition is None:
                continue
            if session.reported.get(partition_id) != _state_of(partition):
                # Only news: the answer to thousands of quiet partitions is empty.
                entry, _ = self._entry(question, partition_id, 0)
                session.close(partition_id)
                entries.append(entry)
        session.advanced.clear()
        for entry in entries:
            session.tell(entry)
        self._stats.replica_fetches += 1
        self._stats.replica_fetched_bytes += bytes_max - room
        return Answer(ReplicasFetched(tuple(entries)), payload)

    def _answer_held(self, session: Session, room: int, entries: list[PartitionFetched], payload: list[Buffer]) -> int:
        """Adds data that the throttle has held back and allows now, the replicas that lack the fewest records first;
        returns the remaining room in bytes."""
        for partition_id in sorted(session.held, key=lambda held: self._missing(session, held)):
            allowed = min(room, self._allowance(session), PARTITION_BYTES_MAX)
            if allowed <= 0:
                break
            entry, data = self._entry(session.questions[partition_id], partition_id, allowed)
            session.close(partition_id)
            entries.append(entry)
            payload.extend(data)
            room -= entry.size
            session.granted -= entry.size
            self._throttle.sent(entry.size)
        return room

    def _allowance(self, session: Session) -> int:
        """Returns the number of bytes of throttled replicas that this session may be sent now."""
        return min(session.granted, self._throttle.sending.allowance())

    def _is_held(self, replica: int, partition_id: PartitionId) -> bool:
        return self._throttle.is_held(partition_id, replica)

    def _missing(self, session: Session, partition_id: PartitionId) -> int:
        """Returns the number of records that the follower of this session lacks."""
        partition = self._partitions.get(partition_id)
        return 0 if partition is None else partition.log_end_offset - session.questions[partition_id].state.fetch_offset

    def _entry(
        self, question: Question, partition_id: PartitionId, bytes_max: int
    ) -> tuple[PartitionFetched, Sequence[Buffer]]:
        partition = self._partitions.get(partition_id)
        verdict = question.verdict
        if partition is None or partition.leader_epoch != question.state.leader_epoch:
            # The leadership has changed while the question was open: what was judged then holds no more.
            verdict = verdict if isinstance(verdict, FetchStatus) else FetchStatus.UNKNOWN_EPOCH
            return self._fetched(question.state, verdict, None), ()
        match verdict:
            case FetchStatus():
                return self._fetched(question.state, verdict, partition), ()
            case isr.Diverging(epoch, end_offset):
                diverging = self._fetched(
                    question.state, FetchStatus.DIVERGING, partition, epoch=epoch, end_offset=end_offset
                )
                return diverging, ()
            case isr.OutOfRange(_, log_end_offset):
                return self._out_of_range(question.state, partition, log_end_offset)
            case isr.Serve(from_offset):
                return self._served(question.state, partition, from_offset, bytes_max)
            case _:
                return self._fetched(question.state, FetchStatus.UNKNOWN_EPOCH, partition), ()

    def _served(
        self, state: FollowerState, partition: Partition, from_offset: int, bytes_max: int
    ) -> tuple[PartitionFetched, Sequence[Buffer]]:
        try:
            data = partition.read_for_follower(from_offset, bytes_max)
        except OffsetOutOfRange:
            # Retention may have deleted the records since the question was judged.
            return self._out_of_range(state, partition, partition.log_end_offset)
        except (DamagedBatch, TidelogError):
            return self._fetched(state, FetchStatus.DAMAGED, partition), ()
        return self._fetched(state, FetchStatus.OK, partition, size=sum(map(len, data))), data

    def _out_of_range(
        self, state: FollowerState, partition: Partition, log_end_offset: int
    ) -> tuple[PartitionFetched, Sequence[Buffer]]:
        """Returns an answer with the states of the producers of deleted records. The follower starts over at this log's
        start, and may lead later: without them it would accept a repeated batch as new."""
        try:
            producers = partition.producers_for_follower()
        except TidelogError:
            return self._fetched(state, FetchStatus.DAMAGED, None), ()
        size = len(producers)
        answer = self._fetched(state, FetchStatus.OUT_OF_RANGE, partition, size=size, end_offset=log_end_offset)
        return answer, (producers,)

    @staticmethod
    def _fetched(
        state: FollowerState,
        status: FetchStatus,
        partition: Partition | None,
        *,
        size: int = 0,
        epoch: int = -1,
        end_offset: int = -1,
    ) -> PartitionFetched:
        return PartitionFetched(
            state.topic_id,
            state.partition,
            state.leader_epoch,
            state.fetch_offset,
            state.last_epoch,
            status,
            size,
            -1 if partition is None else partition.high_watermark,
            -1 if partition is None else partition.log_start_offset,
            epoch,
            end_offset,
        )

    def _now_ms(self) -> int:
        return int(self._clock.monotonic_s() * 1000)


def _state_of(partition: Partition) -> tuple[int, int, int]:
    """Returns the leader epoch, high watermark and log start offset that each answer to a follower carries."""
    return partition.leader_epoch, partition.high_watermark, partition.log_start_offset
