"""Whatever is sent, whenever it is taken: every record is in exactly one batch, in order, within the bounds."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tidelog.model.batch_codec import decode_batch
from tidelog.model.batch_header import HEADER_BYTES, Compression, RecordBatch, parse_header
from tidelog.model.ids import TopicPartition
from tidelog.producer.accumulator import Accumulator, Batch, BatchReceipt, PartitionQueue
from tidelog.producer.checks import checked_record

LINGER_S = 5.0
BATCH_BYTES = 500
REQUEST_BYTES = 1200

values = st.binary(max_size=300)
actions = st.lists(
    st.one_of(
        st.tuples(st.just("send"), st.integers(0, 2), values),
        st.tuples(st.just("tick"), st.floats(0, LINGER_S), st.none()),
        st.tuples(st.just("hurry"), st.integers(0, 2), st.none()),
        st.tuples(st.just("take"), st.integers(0, 2), st.integers(1, 3)),
        st.tuples(st.just("settle"), st.integers(0, 2), st.none()),
    ),
    max_size=80,
)


class Model:
    """An accumulator beside the dumbest thing that could be right: a list of records per partition."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.accumulator = Accumulator(
            batch_bytes=BATCH_BYTES,
            linger_s=LINGER_S,
            compression=Compression.NONE,
            buffer_memory=10 * BATCH_BYTES,
            on_ready=lambda queue: None,
        )
        self.queues = [self.accumulator.queue(TopicPartition("t", number)) for number in range(3)]
        self.sent: list[list[tuple[float, bytes]]] = [[], [], []]
        self.taken: list[list[bytes]] = [[], [], []]
        self.under_way: list[Batch] = []

    def send(self, number: int, value: bytes) -> None:
        record, size = checked_record(1, None, value, None)
        queue = self.queues[number]
        batch = queue.open
        if batch is None or batch.room < size:
            if not self.accumulator.has_memory_for(size):
                return
            if batch is not None:
                self.accumulator.seal(queue)
            batch = self.accumulator.open_batch(queue, size, self.now_s)
        batch.room -= size
        batch.records.append(record)
        self.sent[number].append((self.now_s, value))

    def hurry(self, queue: PartitionQueue) -> None:
        if queue.open is not None:
            queue.hurry(queue.open)

    def take(self, number: int, batches_max: int) -> None:
        queue = self.queues[number]
        taken = self.accumulator.take(queue, self.now_s, bytes_max=REQUEST_BYTES, batches_max=batches_max)
        assert len(taken) <= batches_max
        assert len(taken) <= 1 or sum(len(batch.data) for batch in taken) <= REQUEST_BYTES
        for batch in taken:
            stored = decode_batch(RecordBatch(parse_header(batch.data), memoryview(batch.data)))
            assert 0 < len(stored) == batch.record_count
            assert len(stored) == 1 or len(batch.data) <= BATCH_BYTES + HEADER_BYTES
            self.taken[number] += [record.value or b"" for record in stored]
        self.under_way += taken

    def settle(self) -> None:
        if self.under_way:
            batch = self.under_way.pop(0)
            self.accumulator.release(batch)
            batch.settle(BatchReceipt(0, 0, (), ""))

    def check(self) -> None:
        waiting = 0
        for number, queue in enumerate(self.queues):
            sent = [value for _, value in self.sent[number]]
            assert self.taken[number] == sent[: len(self.taken[number])]
            if queue.due_s is not None and queue.open is not None and not queue.sealed:
                oldest_s = self.sent[number][len(self.taken[number])][0]
                assert queue.due_s <= oldest_s + LINGER_S
            assert (queue.due_s is None) == (len(self.taken[number]) == len(sent))
            waiting += sum(batch.reserved_bytes for batch in queue.sealed)
            waiting += queue.open.reserved_bytes if queue.open is not None else 0
        assert self.accumulator.reserved_bytes == waiting + sum(batch.reserved_bytes for batch in self.under_way)


@given(actions)
def test_records_are_batched_once_in_order_and_within_bounds(steps: list[tuple[str, float, object]]) -> None:
    model = Model()
    for kind, where, what in steps:
        match kind, what:
            case "send", bytes(value):
                model.send(int(where), value)
            case "tick", _:
                model.now_s += where
            case "hurry", _:
                model.hurry(model.queues[int(where)])
            case "take", int(batches_max):
                model.take(int(where), batches_max)
            case _:
                model.settle()
        model.check()
    model.now_s += LINGER_S
    for number in range(3):
        while model.queues[number].due_s is not None:
            model.take(number, 100)
    while model.under_way:
        model.settle()
    model.check()
    assert model.taken == [[value for _, value in sent] for sent in model.sent]
    assert model.accumulator.reserved_bytes == 0
