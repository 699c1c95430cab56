"""Raw record batches: bytes in, the same bytes out."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from tests.integration.http.conftest import Site, simulated
from tidelog.model.batch_codec import decode_batch
from tidelog.model.batch_header import Compression, assign_offsets, iter_batches, parse_header, seal, split_batches
from tidelog.sim.kit.disk import SimDisk
from tidelog.sim.kit.rot import flip_bit

TARGET = "/topics/t/partitions/0/batches"
RAW = {"Content-Type": "application/vnd.tidelog.batches"}


async def test_batches_are_appended_as_they_are(site: Site) -> None:
    sent = [site.batch(b"a", b"b"), site.batch(b"c", compression=Compression.ZSTD)]
    reply = await site.ask("POST", TARGET, b"".join(sent), RAW)
    assert reply.json() == {
        "topic": "t",
        "partition": 0,
        "batches": [{"base_offset": 0, "last_offset": 1}, {"base_offset": 2, "last_offset": 2}],
        "leader_epoch": 0,
        "acked_by": [1],
        "durability": "fsynced",
    }
    read = await site.get(f"{TARGET}?offset=0")
    expected = b""
    offset = 0
    for data in sent:
        (batch,) = split_batches(data, batch_bytes_max=1 << 20)
        expected += bytes(assign_offsets(batch, offset, 0).data)
        offset += batch.header.record_count
    assert read.body == expected
    assert read.headers["content-type"] == "application/vnd.tidelog.batches"
    names = ("high-watermark", "log-start-offset", "log-end-offset", "leader-epoch")
    assert [read.headers[f"tidelog-{name}"] for name in names] == ["3", "0", "3", "0"]


async def test_offsets_of_the_sender_mean_nothing(site: Site) -> None:
    reply = await site.ask("POST", TARGET, site.batch(b"a", base_offset=500, leader_epoch=9))
    assert reply.json()["batches"] == [{"base_offset": 0, "last_offset": 0}]


async def test_acks(site: Site) -> None:
    assert (await site.ask("POST", f"{TARGET}?acks=1", site.batch(b"a"))).json()["durability"] == "leader"
    for query in ("acks=0", "async=true"):
        reply = await site.ask("POST", f"{TARGET}?{query}", site.batch(b"b"))
        assert (reply.status, reply.body) == (204, b"")
    await site.produce(1)
    assert site.values() == [b"a", b"b", b"b", b"1"]


async def test_a_repeat_of_an_idempotent_producer_gets_its_first_answer(site: Site) -> None:
    def numbered(sequence: int, *values: bytes) -> bytes:
        return site.batch(*values, producer_id=7, producer_epoch=0, base_sequence=sequence)

    first = await site.ask("POST", TARGET, numbered(0, b"a", b"b"))
    assert (await site.ask("POST", TARGET, numbered(0, b"a", b"b"))).json() == first.json()
    assert (await site.ask("POST", TARGET, numbered(2, b"c"))).json()["batches"][0]["base_offset"] == 2
    gap = await site.ask("POST", TARGET, numbered(9, b"x"))
    assert (gap.status, gap.code) == (409, 40904)
    for sequence in range(3, 9):
        await site.ask("POST", TARGET, numbered(sequence, b"d"))
    old = await site.ask("POST", TARGET, numbered(0, b"a", b"b"))
    assert (old.status, old.json()["batches"]) == (200, [{"base_offset": None, "last_offset": None}])
    newer = site.batch(b"e", producer_id=7, producer_epoch=1, base_sequence=0)
    assert (await site.ask("POST", TARGET, newer)).status == 200
    fenced = await site.ask("POST", TARGET, numbered(9, b"x"))
    assert (fenced.status, fenced.code) == (409, 40905)
    assert len(site.values()) == 10


async def test_a_batch_may_expect_where_the_partition_ends(site: Site) -> None:
    assert (await site.ask("POST", f"{TARGET}?expected_end_offset=0", site.batch(b"a"))).status == 200
    moved = await site.ask("POST", f"{TARGET}?expected_end_offset=0", site.batch(b"b"))
    assert (moved.status, moved.code) == (412, 41201)
    beyond = await site.ask("POST", f"{TARGET}?expected_end_offset=2", site.batch(b"b"))
    assert (beyond.status, beyond.code) == (503, 50302)
    assert (await site.ask("POST", f"{TARGET}?expected_end_offset=soon", site.batch(b"b"))).code == 40002
    assert (await site.ask("POST", f"{TARGET}?expected_end_offset=1", site.batch(b"b"))).status == 200
    assert site.values() == [b"a", b"b"]


@pytest.mark.parametrize("order", ["key", "none"])
async def test_only_where_the_order_is_total_a_batch_may_expect_an_end(site: Site, order: str) -> None:
    await site.topic("u", commit_protocol="paxos", commit_order=order)
    target = TARGET.replace("/t/", "/u/")
    assert (await site.ask("POST", target, site.batch(b"a"))).status == 200
    for query in ("expected_end_offset=1", "expected_end_offset=0", "expected_end_offset=1&acks=0"):
        refused = await site.ask("POST", f"{target}?{query}", site.batch(b"b"))
        assert (refused.status, refused.code) == (409, 40926)
        assert f"topic u has commit.order={order}; nothing was appended" in refused.json()["message"]
    assert (await site.ask("POST", target, site.batch(b"c"))).json()["batches"][0]["base_offset"] == 1


def _patched(batch: bytes, position: int, value: bytes, *, sealed: bool = True) -> bytes:
    data = bytearray(batch)
    data[position : position + len(value)] = value
    if sealed:
        seal(data)
    return bytes(data)


BAD_BATCHES: dict[str, tuple[Callable[[bytes], bytes], int]] = {
    "bad CRC": (lambda batch: _patched(batch, 70, b"\xff", sealed=False), 40003),
    "magic 1": (lambda batch: _patched(batch, 16, b"\x01"), 40003),
    "magic 3": (lambda batch: _patched(batch, 16, b"\x03"), 40003),
    "length too long": (lambda batch: _patched(batch, 8, b"\x7f\xff\xff\xff"), 40003),
    "length negative": (lambda batch: _patched(batch, 8, b"\xff\xff\xff\xff"), 40003),
    "length too short": (lambda batch: _patched(batch, 8, b"\x00\x00\x00\x01"), 40003),
    "count lies": (lambda batch: _patched(batch, 57, b"\x00\x00\x00\x05"), 40003),
    "count 0": (lambda batch: _patched(batch, 57, b"\x00\x00\x00\x00"), 40003),
    "unknown codec": (lambda batch: _patched(batch, 22, b"\x07"), 40003),
    "control bit": (lambda batch: _patched(batch, 22, b"\x20"), 40003),
    "transactional bit": (lambda batch: _patched(batch, 22, b"\x10"), 40003),
    "append time bit": (lambda batch: _patched(batch, 22, b"\x08"), 40003),
    "producer without epoch": (lambda batch: _patched(batch, 43, b"\x00" * 7 + b"\x01"), 40003),
    "cut short": (lambda batch: batch[:-1], 40003),
    "only a header": (lambda batch: batch[:61], 40003),
    "less than a header": (lambda batch: batch[:60], 40003),
    "trailing bytes": (lambda batch: batch + b"\x00", 40003),
    "not a batch": (lambda _: b"x" * 100, 40003),
    "json": (lambda _: b'{"records":[]}', 40003),
    "empty": (lambda _: b"", 42206),
    "far timestamp": (lambda batch: _patched(batch, 35, b"\x00\x00\x10" + b"\x00" * 5), 40004),
}


@pytest.mark.parametrize("name", BAD_BATCHES)
async def test_a_bad_batch_leaves_nothing_appended(site: Site, name: str) -> None:
    spoil, code = BAD_BATCHES[name]
    good = site.batch(b"good")
    bodies = [spoil(site.batch(b"spoilt"))] + ([good + spoil(site.batch(b"spoilt"))] if code == 40003 else [])
    for body in bodies:
        reply = await site.ask("POST", TARGET, body)
        assert (reply.status, reply.code) == (code // 100, code), reply.message
    assert site.values() == []


async def test_a_batch_over_the_topics_bound(site: Site) -> None:
    await site.topic("small", 1, max_message_bytes="100")
    reply = await site.ask("POST", "/topics/small/partitions/0/batches", site.batch(b"x") + site.batch(b"x" * 100))
    assert (reply.status, reply.code, site.values("small")) == (413, 41301, [])


async def test_records_inside_a_sound_batch_are_not_looked_at_until_somebody_reads_them(site: Site) -> None:
    """A decompression bomb, and plain garbage, behind a correct checksum."""
    bomb = site.batch(b"\x00" * 900_000, compression=Compression.ZSTD)
    payload = bytearray(bomb)
    assert (await site.ask("POST", TARGET, bytes(payload))).status == 200
    garbage = _patched(site.batch(b"\x00" * 50), 61, b"\xff" * 20)
    assert (await site.ask("POST", TARGET, garbage)).status == 200
    assert (await site.get(f"{TARGET}?offset=1")).status == 200
    reply = await site.get("/topics/t/partitions/0/records?offset=1")
    assert (reply.status, reply.code) == (406, 40601)
    assert "offset 1" in reply.message


async def test_a_bomb_is_not_unpacked_beyond_its_bound() -> None:
    async with simulated(decoded_bytes_max=100_000) as site:
        await site.ask("POST", TARGET, site.batch(b"\x00" * 900_000, compression=Compression.GZIP))
        reply = await site.get("/topics/t/partitions/0/records?offset=0")
        assert (reply.status, reply.code) == (406, 40601)


# -- reading -------------------------------------------------------------------------------------------------------


async def _fill(site: Site, batches: int, records: int = 3) -> None:
    for number in range(batches):
        values = [b"%d-%d" % (number, index) for index in range(records)]
        await site.ask("POST", TARGET, site.batch(*values))


def offsets(body: bytes) -> list[int]:
    return [batch.header.base_offset for batch in iter_batches(body)]


async def test_reading_begins_with_the_batch_that_holds_the_offset(site: Site) -> None:
    await _fill(site, 4)
    assert offsets((await site.get(f"{TARGET}?offset=4")).body) == [3, 6, 9]
    assert offsets((await site.get(f"{TARGET}?offset=earliest")).body) == [0, 3, 6, 9]
    assert (await site.get(f"{TARGET}?offset=latest")).body == b""
    one = (await site.get(f"{TARGET}?offset=4&max_bytes=1")).body
    assert offsets(one) == [3]


async def test_out_of_range_names_the_range(site: Site) -> None:
    await _fill(site, 2)
    reply = await site.get(f"{TARGET}?offset=7")
    assert (reply.status, reply.code) == (416, 41601)
    assert "0 to 6" in reply.message
    assert (reply.headers["tidelog-log-start-offset"], reply.headers["tidelog-log-end-offset"]) == ("0", "6")
    assert (await site.get(f"{TARGET}?offset=6")).status == 200


async def test_waiting_ends_when_there_is_data(site: Site) -> None:
    async with await site.wire() as wire:
        waiting = asyncio.ensure_future(wire.request("GET", f"{TARGET}?offset=0&wait_ms=20000"))
        await site.until(lambda: site.broker.purgatory.waiting == 1)
        await _fill(site, 1)
        assert offsets((await waiting).body) == [0]


async def test_waiting_for_many_bytes_ends_at_the_deadline_with_what_there_is(site: Site) -> None:
    await _fill(site, 1)
    reply = await site.get(f"{TARGET}?offset=0&min_bytes=100000&wait_ms=30")
    assert offsets(reply.body) == [0]
    reply = await site.get(f"{TARGET}?offset=3&wait_ms=30")
    assert (reply.status, reply.body) == (200, b"")


async def test_a_waiting_client_that_goes_away_is_forgotten(site: Site) -> None:
    wire = await site.wire()
    waiting = asyncio.ensure_future(wire.request("GET", f"{TARGET}?offset=0&wait_ms=20000"))
    await site.until(lambda: site.broker.purgatory.waiting == 1)
    waiting.cancel()
    await wire.close()
    await site.until(lambda: site.broker.purgatory.waiting == 0)


async def test_a_range_is_streamed_whole(site: Site) -> None:
    await _fill(site, 10)
    reply = await site.get(f"{TARGET}?offset=4&to=20")
    assert offsets(reply.body) == [3, 6, 9, 12, 15, 18]
    assert offsets((await site.get(f"{TARGET}?offset=0&to=21")).body)[-1] == 18
    assert reply.headers["transfer-encoding"] == "chunked"
    assert reply.headers["tidelog-high-watermark"] == "30"


async def test_a_range_is_clipped_to_the_high_watermark(site: Site) -> None:
    await _fill(site, 2)
    assert offsets((await site.get(f"{TARGET}?offset=0&to=9223372036854775807")).body) == [0, 3]
    for query in ("offset=6&to=100", "offset=3&to=3", "offset=3&to=1", "offset=latest&to=7"):
        reply = await site.get(f"{TARGET}?{query}")
        assert (reply.status, reply.body) == (200, b"")


async def test_a_large_range_comes_in_pieces() -> None:
    async with simulated(range_piece_bytes=1000) as site:
        await _fill(site, 50)
        body = (await site.get(f"{TARGET}?offset=0&to=150")).body
        values = [record.value for batch in iter_batches(body) for record in decode_batch(batch)]
        assert values == site.values()
        await site.until_idle()


async def test_large_answers_are_whole(site: Site) -> None:
    for _ in range(3):
        await site.ask("POST", TARGET, site.batch(b"x" * 1_000_000))
    reply = await site.get(f"{TARGET}?offset=0&max_bytes=10000000")
    assert offsets(reply.body) == [0, 1, 2]
    assert len(reply.body) == int(reply.headers["content-length"])
    assert parse_header(reply.body).base_offset == 0


async def test_a_damaged_batch_is_told_and_ends_a_range_that_has_begun() -> None:
    disk = SimDisk()
    async with simulated(disk, range_piece_bytes=100) as site:
        await _fill(site, 4)
        third = (await site.get(f"{TARGET}?offset=6&max_bytes=1")).body
        _flip(disk, third)
        reply = await site.get(f"{TARGET}?offset=6")
        assert (reply.status, reply.code) == (503, 50303)
        async with await site.wire() as wire:
            with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
                await wire.request("GET", f"{TARGET}?offset=0&to=12")
        assert offsets((await site.get(f"{TARGET}?offset=9")).body) == [9]


def _flip(disk: SimDisk, batch: bytes) -> None:
    """Damages a stored batch, wherever it is."""
    ((path, position),) = [
        (path, node.data.find(batch)) for path, node in disk.medium.walk().items() if node.data.find(batch) >= 0
    ]
    flip_bit(disk.medium, path, position + 65)


@pytest.mark.parametrize(
    "query",
    ["", "offset=", "offset=-1", "offset=x", "offset=9223372036854775808", "offset=0&max_bytes=-1",
     "offset=0&max_bytes=x", "offset=0&min_bytes=-1",
     "offset=0&wait_ms=-5", "offset=0&wait_ms=1e3", "offset=0&offset=1",
     "offset=0&to=x",
     "offset=0&to=-1", "offset=0&to=5&wait_ms=5", "offset=0&to=5&max_bytes=5", "offset=0&replica=none", "offset=%zz"],
)  # fmt: skip
async def test_bad_parameters(site: Site, query: str) -> None:
    reply = await site.get(f"{TARGET}?{query}")
    assert (reply.status, reply.code) == (400, 40002)


async def test_replica(site: Site) -> None:
    await _fill(site, 1)
    for replica in ("local", "any"):
        reply = await site.get(f"{TARGET}?offset=0&replica={replica}")
        assert (offsets(reply.body), reply.headers["tidelog-replica"]) == ([0], "1")
    assert "tidelog-replica" not in (await site.get(f"{TARGET}?offset=0")).headers
