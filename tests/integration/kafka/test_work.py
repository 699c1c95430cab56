"""The bounds on the work of small requests: callbacks and timers of the event loop, tasks, writes, garbage."""

from __future__ import annotations

import asyncio
import gc
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, cast

import pytest

from tests.integration.kafka.conftest import KafkaSite, batch, fetch_tree, read_answer, request_frame
from tests.integration.kafka.groups.conftest import lead, member_tree
from tidelog.adapters.client_frames import ClientFrames
from tidelog.adapters.client_network import TIMEOUTS
from tidelog.broker.assembly import KAFKA_WORDS
from tidelog.broker.kafka.apis import Key
from tidelog.model.ports import Buffer

PIPELINED = 16
COUNTED = ("call_soon", "call_at", "call_later", "create_task")


class Wire:
    """A connection without a socket: requests are given to its protocol, whose writes are kept."""

    def __init__(self, site: KafkaSite) -> None:
        self.writes: list[bytes] = []
        self.protocol = ClientFrames(site.server._connected, TIMEOUTS, KAFKA_WORDS, lambda: "", 1 << 20)
        self.protocol.connection_made(cast("asyncio.Transport", self))

    def get_extra_info(self, name: str) -> Any:
        return {"peername": ("127.0.0.1", 1), "socket": self}.get(name)

    def setsockopt(self, *_: Any) -> None:
        pass

    def set_write_buffer_limits(self, *, high: int) -> None:
        pass

    def writelines(self, buffers: Sequence[Buffer]) -> None:
        self.writes.append(b"".join(buffers))

    def close(self) -> None:
        self.protocol.connection_lost(None)

    def abort(self) -> None:
        raise AssertionError("it was closed in time")

    def pause_reading(self) -> None:
        raise AssertionError("nothing has to wait here")

    def feed(self, frame: bytes, count: int = PIPELINED) -> None:
        """Has requests arrive in one piece."""
        data = (len(frame).to_bytes(4) + frame) * count
        self.protocol.get_buffer(-1)[: len(data)] = data
        self.protocol.buffer_updated(len(data))

    async def answers(self, key: Key, version: int, count: int = PIPELINED) -> list[Any]:
        """The answers of the only write so far."""
        async with asyncio.timeout(10):
            while not self.writes:
                await asyncio.sleep(0)
        (data,) = self.writes
        self.writes.clear()
        size = 4 + int.from_bytes(data[:4])
        assert len(data) == count * size
        return [read_answer(key, version, data[begin + 4 : begin + size]) for begin in range(0, len(data), size)]


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], None]], Counter[str]]:
    """Returns what a call makes the event loop do later."""

    def counted(call: Callable[[], None]) -> Counter[str]:
        counts, loop = Counter[str](), asyncio.get_running_loop()

        def counting(name: str) -> Callable[..., Any]:
            real = getattr(loop, name)

            def count(*words: Any, **named: Any) -> Any:
                counts[name] += 1
                return real(*words, **named)

            return count

        with monkeypatch.context() as patched:
            for name in COUNTED:
                patched.setattr(loop, name, counting(name))
            call()
        return counts

    return counted


async def test_produces_that_come_together_are_one_write_and_have_one_timer(
    site: KafkaSite, made: Callable[[Callable[[], None]], Counter[str]]
) -> None:
    wire, stats = Wire(site), site.broker.stats
    topics = [{"name": "t", "partition_data": [{"index": 0, "records": batch(b"x" * 100)}]}]
    tree = {"transactional_id": None, "acks": 1, "timeout": 30_000, "topic_data": topics}
    frame = request_frame(Key.PRODUCE, 9, tree)
    writes = stats.append_writes
    # The end of the turn, the partition's task; and the deadline of all, which the next ones share.
    assert made(lambda: wire.feed(frame)) == {"call_soon": 2, "call_at": 1}
    answers = await wire.answers(Key.PRODUCE, 9)
    assert [answer.responses[0].partition_responses[0].base_offset for answer in answers] == [*range(PIPELINED)]
    assert made(lambda: wire.feed(frame)) == {"call_soon": 2}
    await wire.answers(Key.PRODUCE, 9)
    assert stats.append_writes - writes == 2


async def test_a_fetch_that_finds_data_and_heartbeats_take_no_task_and_no_timer(
    site: KafkaSite, made: Callable[[Callable[[], None]], Counter[str]]
) -> None:
    client = await site.client()
    await client.produce(("t", 0, batch(b"x" * 1_000)))
    joined = await lead(client)
    wire = Wire(site)
    fetch = request_frame(Key.FETCH, 12, fetch_tree(("t", 0, 0), max_wait=500))
    # The end of the turn, one write of the answers, and for each fetch the memory of its records.
    assert made(lambda: wire.feed(fetch)) == {"call_soon": 2 + PIPELINED}
    assert {len(answer.responses[0].partitions[0].records) > 1_000 for answer in await wire.answers(Key.FETCH, 12)} == {
        True
    }
    beat = request_frame(Key.HEARTBEAT, 4, member_tree(joined.member_id, joined.generation_id))
    assert made(lambda: wire.feed(beat)) == {"call_soon": 2}
    assert {answer.error_code.value for answer in await wire.answers(Key.HEARTBEAT, 4)} == {0}


@pytest.mark.parametrize("key", [Key.PRODUCE, Key.FETCH, Key.HEARTBEAT], ids=lambda key: key.label)
async def test_answered_requests_leave_nothing_to_the_garbage_collector(site: KafkaSite, key: Key) -> None:
    """References in a cycle are freed by a collection only, and each collection looks at everything."""
    client = await site.client()
    await client.produce(("t", 0, batch(b"x" * 1_000)))
    topics = [{"name": "t", "partition_data": [{"index": 0, "records": batch(b"x" * 100)}]}]
    member = (await lead(client)).member_id if key is Key.HEARTBEAT else ""
    version, tree = {
        Key.PRODUCE: (9, {"transactional_id": None, "acks": -1, "timeout": 30_000, "topic_data": topics}),
        Key.FETCH: (12, fetch_tree(("t", 0, 0), max_wait=500)),
        Key.HEARTBEAT: (4, member_tree(member, 1)),
    }[key]
    wire, frame, rounds = Wire(site), request_frame(key, version, tree), 10

    async def serve() -> None:
        for _ in range(rounds):
            wire.feed(frame)
            while not wire.writes:
                await asyncio.sleep(0)
            wire.writes.clear()

    await serve()
    gc.collect()
    gc.disable()
    try:
        await asyncio.wait_for(serve(), 30)
        assert gc.collect() < rounds * PIPELINED
    finally:
        gc.enable()
