"""The rules of a term, on a log that fails as it is told to."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from tidelog.log.entries import entry_record
from tidelog.log.errors import WriterFenced
from tidelog.log.term import Term
from tidelog.model.batch_codec import decode_batch
from tidelog.model.batch_header import RecordBatch, parse_header
from tidelog.model.errors import EndOffsetMoved, TidelogError, TooLarge
from tidelog.model.ids import ProducerId
from tidelog.model.ports import Buffer
from tidelog.transport.errors import BufferFull, ClientClosed, DeliveryExpired, DeliveryUnknown

END = 11


class ScriptedLog:
    """A log that ends at `end`: takes what expects that, and answers when `gate` is open, or with the next error."""

    def __init__(self) -> None:
        self.end = END
        self.errors: list[TidelogError | None] = []
        self.requests: list[tuple[int, list[bytes | None]]] = []
        """First sequence and values of each."""
        self.gate = asyncio.Event()
        self.gate.set()
        self.under_way = 0

    async def append(self, batch: Buffer, deadline_s: float, *, expected_end: int | None = None) -> int:
        self.under_way += 1
        assert self.under_way == 1, "nothing is sent behind what is not settled"
        try:
            header = parse_header(batch)
            self.requests.append((header.base_sequence, values(batch)))
            await self.gate.wait()
            error = self.errors.pop(0) if self.errors else None
            if error is not None:
                raise error
            if expected_end != self.end:
                raise EndOffsetMoved("it moved")
            self.end += header.record_count
            return expected_end
        finally:
            self.under_way -= 1


def values(batch: Buffer) -> list[bytes | None]:
    return [record.value for record in decode_batch(RecordBatch(parse_header(batch), memoryview(batch)))]


def a_term(log: ScriptedLog, group_bytes_max: int = 1 << 20) -> Term:
    return Term(log, ProducerId(7), END, group_bytes_max)


def submit(term: Term, data: bytes, wait_s: float = 10.0) -> asyncio.Future[int]:
    return term.submit(entry_record(1, data), asyncio.get_running_loop().time() + wait_s)


async def outcomes(futures: Sequence[asyncio.Future[int]]) -> list[int | type[BaseException]]:
    found = await asyncio.gather(*futures, return_exceptions=True)
    return [type(one) if isinstance(one, BaseException) else one for one in found]


async def test_entries_that_wait_share_a_request_in_their_order() -> None:
    log = ScriptedLog()
    term = a_term(log)
    log.gate.clear()
    futures = [submit(term, b"a")]
    await asyncio.sleep(0)
    futures += [submit(term, b"b"), submit(term, b"c")]
    log.gate.set()
    assert await outcomes(futures) == [11, 12, 13]
    assert log.requests == [(1, [b"a"]), (2, [b"b", b"c"])]
    assert term.end == 14


async def test_a_request_is_not_larger_than_it_may_be() -> None:
    log = ScriptedLog()
    term = a_term(log, group_bytes_max=500)
    futures = [submit(term, bytes(100)) for _ in range(7)] + [submit(term, bytes(1000))]
    assert await outcomes(futures) == list(range(11, 19))
    assert [len(found) for _, found in log.requests] == [3, 3, 1, 1]


async def test_a_fenced_writer_appends_nothing_more() -> None:
    log = ScriptedLog()
    term = a_term(log)
    assert await submit(term, b"a") == 11
    log.end += 1  # another writer's claim
    log.gate.clear()
    futures = [submit(term, b"b")]
    await asyncio.sleep(0)
    futures += [submit(term, b"c")]
    log.gate.set()
    assert await outcomes(futures) == [WriterFenced, WriterFenced]
    with pytest.raises(WriterFenced):
        submit(term, b"d")
    assert len(log.requests) == 2


async def test_after_an_unknown_outcome_nothing_is_sent() -> None:
    log = ScriptedLog()
    term = a_term(log)
    log.errors = [DeliveryUnknown("who knows")]
    log.gate.clear()
    futures = [submit(term, b"a")]
    await asyncio.sleep(0)
    futures += [submit(term, b"b")]
    log.gate.set()
    assert await outcomes(futures) == [DeliveryUnknown, ClientClosed]
    with pytest.raises(ClientClosed, match="start the writer again"):
        submit(term, b"c")
    assert len(log.requests) == 1


async def test_what_surely_is_not_in_the_log_leaves_its_number_and_its_place_to_the_next() -> None:
    log = ScriptedLog()
    term = a_term(log)
    log.errors = [TooLarge("too large"), DeliveryExpired("too late")]
    for error in (TooLarge, DeliveryExpired):
        with pytest.raises(error):
            await submit(term, b"x")
    assert await submit(term, b"a") == 11
    assert [sequence for sequence, _ in log.requests] == [1, 1, 1]


async def test_an_entry_that_waited_too_long_is_not_sent() -> None:
    log = ScriptedLog()
    term = a_term(log)
    log.gate.clear()
    futures = [submit(term, b"a")]
    await asyncio.sleep(0)
    futures += [submit(term, b"late", wait_s=0.0), submit(term, b"b")]
    log.gate.set()
    assert await outcomes(futures) == [11, DeliveryExpired, 12]


async def test_what_waits_is_bounded() -> None:
    log = ScriptedLog()
    term = a_term(log)
    log.gate.clear()
    futures = [submit(term, bytes(1 << 20)) for _ in range(31)]
    with pytest.raises(BufferFull):
        for _ in range(3):
            futures.append(submit(term, bytes(1 << 20)))
            await asyncio.sleep(0)
    log.gate.set()
    assert await outcomes(futures) == list(range(11, 11 + len(futures)))


async def test_closing_waits_for_what_is_under_way_and_starting_again_does_not() -> None:
    log = ScriptedLog()
    term = a_term(log)
    log.gate.clear()
    kept = [submit(term, b"a"), submit(term, b"b")]
    finish = asyncio.create_task(term.finish())
    await asyncio.sleep(0)
    with pytest.raises(ClientClosed):
        submit(term, b"c")
    log.gate.set()
    await finish
    assert await outcomes(kept) == [11, 12]

    log.gate.clear()
    other = Term(log, ProducerId(8), log.end, 1 << 20)
    cut = [submit(other, b"d")]
    await asyncio.sleep(0)
    cut += [submit(other, b"e")]
    await other.abort()
    assert await outcomes(cut) == [DeliveryUnknown, ClientClosed]
