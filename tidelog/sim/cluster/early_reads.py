"""A client that reads by key, or without order: besides what is below the high watermark, what leaders have released
above it (`commit.order=key` or `none`).

It goes on where it was with whoever leads, as the consumer does: it names the offsets above its position that it has.

| rule | in words |
|---|---|
| fresh | a leader has released all that it has acknowledged |
| once | no offset is shown twice |
| in order | the records of one key, and of one idempotent producer, are shown in order, and none is left out |

And whatever was shown early stays at its offset: `tidelog.checker` compares it with the final log, as polls of a
process that seeks before each.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar

from tidelog.broker.broker import Broker
from tidelog.broker.partitions.early_reads import EarlyReader
from tidelog.broker.paxos.partition import PaxosPartition
from tidelog.broker.paxos.replica import PaxosReplica
from tidelog.checker.operations import Poll, View
from tidelog.model.cluster import KEY
from tidelog.model.early_reads import AboveOffsets
from tidelog.model.errors import OffsetOutOfRange
from tidelog.model.ids import PartitionId, TopicPartition
from tidelog.model.ports import Buffer
from tidelog.sim.cluster.bystanders import Bystander
from tidelog.sim.cluster.clients import AnyBroker, ClusterHistory
from tidelog.sim.kit.history import Sent, records_in

Marks = frozenset[int | bytes]
"""The producer id of a record, if it has one, and its key, if the topic's order is by key."""
FETCH_BYTES = (500, 4_096, 4_096)


class EarlyClient(Bystander):
    """Client that often reads from a partition's leader, and checks all that it was shown at the end."""

    PER_S: ClassVar[float] = 100.0

    def __init__(
        self, partition: TopicPartition, anywhere: AnyBroker, history: ClusterHistory, rng: random.Random, order: str
    ) -> None:
        super().__init__(partition, anywhere, history, rng)
        self._order = order
        self._offset = 0
        self._above: list[int] = []
        """Offsets from `_offset` on that were shown, sorted."""
        self._shown: list[int] = []
        """All offsets that were shown, in the order in which they were."""

    async def _act(self, broker: Broker) -> None:
        where = self._partition
        role = broker.data.replicas.holders.get(PartitionId(broker.topic(where.topic).topic_id, where.partition))
        if isinstance(role, PaxosReplica) and role.leader is not None and role.leader.is_serving:
            self._check_fresh(role.leader)
            self._read(role.leader)

    def _check_fresh(self, leader: PaxosPartition) -> None:
        released = [(batches.base_offset, batches.next_offset) for batches in leader.released()]
        for base, end in self._history.acknowledged.get((self._partition, leader.leader_epoch), ()):
            if end > leader.high_watermark and not any(first <= base and end <= last for first, last in released):
                self._history.violate(f"{self._partition}: {base} to {end} is acknowledged, and not released")

    def _read(self, leader: PaxosPartition) -> None:
        bytes_max = self._rng.choice(FETCH_BYTES)
        try:
            fetched = leader.read_nowait(self._offset, bytes_max=bytes_max)
        except OffsetOutOfRange as error:
            self._go_on(max(self._offset, error.log_start_offset))
            return
        above = AboveOffsets((offset, offset + 1) for offset in self._above)
        batches = EarlyReader(leader, above).batches(fetched, bytes_max)
        for offset, _ in records_in(fetched.data, self._offset):
            if offset not in self._above:
                self._shown.append(offset)
        self._go_on(fetched.next_offset)
        for early in batches:
            self._show(leader, early.batch.data, early.start)

    def _go_on(self, offset: int) -> None:
        self._offset = offset
        self._above = [above for above in self._above if above >= offset]

    def _show(self, leader: PaxosPartition, data: Buffer, start: int) -> None:
        """Notes the records of a batch that is shown early, from the offset `start` on."""
        where, recorder, name = self._partition, self._history.recorder, f"early client {self._partition}"
        given = [(offset, self._history.text(value)) for offset, value in records_in(data, start)]
        self._history.note("seen early", where, given)
        self._history.counters["batch read early"] += 1
        recorder.tell("seek", [str(where)], process=name)
        recorder.complete(recorder.invoke(name, "poll"), "ok", [Poll({str(where): given})], epoch=leader.leader_epoch)
        self._shown += [offset for offset, _ in given]
        self._above = sorted({*self._above, *(offset for offset, _ in given)})

    def check(self, view: View) -> None:
        """Checks the order of all that was shown, given the final content of the partition."""
        for wrong in out_of_order(self._shown, dict(self._marks_in(view))):
            self._history.violate(f"{self._partition}: {wrong}")

    def _marks_in(self, view: View) -> Iterator[tuple[int, Marks]]:
        writers = {self._history.text(value): sent for value, sent in self._history.writers.items()}
        for offset, value in view.records:
            if (sent := writers.get(value)) is not None:
                yield offset, frozenset(self._marks_of(sent, value))

    def _marks_of(self, sent: Sent, text: str) -> Iterator[int | bytes]:
        if sent.producer_id >= 0:
            yield sent.producer_id
        key = next(key for key, value in zip(sent.keys, sent.values, strict=True) if self._history.text(value) == text)
        if self._order == KEY and key is not None:
            yield key


def out_of_order(shown: Sequence[int], marks: Mapping[int, Marks]) -> Iterator[str]:
    """Yields what is wrong with the order in which offsets were shown, given the marks of all offsets in the log: of
    those with a mark in common, each is shown behind all before it, and once."""
    waiting: dict[int | bytes, list[int]] = {}
    for offset in sorted(marks):
        for mark in sorted(marks[offset], key=str):
            waiting.setdefault(mark, []).append(offset)
    seen: set[int] = set()
    for offset in shown:
        if offset in seen:
            yield f"{offset} is shown twice"
        seen.add(offset)
        for mark in sorted(marks.get(offset, ()), key=str):
            if waiting[mark][:1] != [offset]:
                yield f"{offset} is shown without {waiting[mark][:1]}, which it follows"
            waiting[mark] = [other for other in waiting[mark] if other != offset]
