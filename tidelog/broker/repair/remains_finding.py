"""Asks the replicas of a partition that has no leader how much of it is left, before an operator makes it continue with
that.

Any broker may ask. Nothing is changed. A replica whose metadata is older counts as one that cannot be asked: its answer
may be from before the last such decision.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tidelog.broker.repair.copies import Peers
from tidelog.broker.repair.remains_report import RemainsReport, judge_remains
from tidelog.broker.repair.repair_messages import ReplicaState, ReplicaStateQuery
from tidelog.model.cluster import PAXOS, ClusterImage, PartitionInfo, Topic
from tidelog.model.errors import LeaderNotAvailable, NotFound, TidelogError
from tidelog.model.ids import PartitionId, TopicId
from tidelog.transport.peer import Lane

ANSWER_S_MAX = 5.0


@dataclass(frozen=True, slots=True)
class RemainsFinder:
    """Finds what is left of a partition, for one broker. `replica_state` returns the state of this broker's replica, or
    None."""

    node_id: int
    replica_state: Callable[[PartitionId], ReplicaState | None]
    image: Callable[[], ClusterImage]
    peers: Peers

    def answer(self, query: ReplicaStateQuery) -> ReplicaState:
        """Returns the state of this broker's replica. Raises `NotFound` if there is none that takes part."""
        state = self.replica_state(PartitionId(TopicId(query.topic_id), query.partition))
        if state is None:
            raise NotFound(f"broker {self.node_id} has no replica of this partition that takes part now")
        return state

    async def find(self, topic: Topic, info: PartitionInfo, even_though: Sequence[int]) -> RemainsReport:
        """Asks all replicas for their state, and returns whether and with what the partition can continue. Raises
        `LeaderNotAvailable` if no replica can be asked."""
        query = ReplicaStateQuery(topic.topic_id, info.partition)
        live: list[int] = [node for node in info.replicas if self.image().is_live(node)]
        answers = await asyncio.gather(*(self._state_at(node, query) for node in live))
        replies = {
            node: state
            for node, state in zip(live, answers, strict=True)
            if state is not None and state.partition_epoch >= info.partition_epoch and state.era == info.eras[0]
        }
        if not replies:
            raise LeaderNotAvailable(f"no replica of {topic.name}-{info.partition} can be asked now")
        return judge_remains(info, replies, even_though, votes=topic.commit_protocol == PAXOS)

    async def _state_at(self, node: int, query: ReplicaStateQuery) -> ReplicaState | None:
        try:
            if node == self.node_id:
                return self.answer(query)
            answer = await self.peers.request(node, query, deadline_s=ANSWER_S_MAX, lane=Lane.DATA)
        except (TidelogError, TimeoutError):
            return None
        assert isinstance(answer.message, ReplicaState)
        return answer.message
