from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from tidelog.model.errors import InvalidRequest
from tidelog.model.ids import TopicPartition
from tidelog.model.partitioner import partition_for_key
from tidelog.spark import chunks
from tidelog.spark.chunks import Chunk, Chunker
from tidelog.spark.identity import chunk_producer, fingerprint
from tidelog.spark.sink_rows import SinkRow


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunks, "CHUNK_BYTES", 1000)
    monkeypatch.setattr(chunks, "CHUNK_RECORDS", 20)


def rows(count: int, *, seed: int = 1, timestamp_ms: int = 5) -> list[SinkRow]:
    dice = random.Random(seed)
    return [
        SinkRow(
            dice.choice(["a", "b"]),
            dice.choice([None, None, 1]),
            timestamp_ms + index,
            dice.choice([None, b"k%d" % dice.randrange(9)]),
            b"%d" % index + bytes(dice.randrange(90)),
            (("h", b"1"),) if dice.random() < 0.1 else (),
        )
        for index in range(count)
    ]


def chunked(wanted: Sequence[SinkRow], scope: str = "s") -> list[Chunk]:
    chunker = Chunker({"a": 3, "b": 5}, scope)
    full = [chunk for row in wanted if (chunk := chunker.add(row)) is not None]
    return full + chunker.rest()


def test_a_task_that_is_repeated_makes_the_same_chunks() -> None:
    first, second = chunked(rows(500)), chunked(rows(500, timestamp_ms=99))
    assert [(one.partition, one.position, fingerprint(one.rows)) for one in first] == [
        (one.partition, one.position, fingerprint(one.rows)) for one in second
    ]
    assert [one.rows for one in first] != [one.rows for one in second]


def test_nothing_is_lost_and_order_is_kept_in_a_partition() -> None:
    wanted = rows(500)
    found = chunked(wanted)
    assert sorted(row[2] or b"" for one in found for row in one.rows) == sorted(row.value or b"" for row in wanted)
    for partition in {one.partition for one in found}:
        mine = [one for one in found if one.partition == partition]
        assert [one.position for one in mine] == [str(number) for number in range(len(mine))]
        times = [row[0] for one in mine for row in one.rows]
        assert times == sorted(times)
    assert all(len(one.rows) <= 20 and one.size < 1200 for one in found)


def test_partition_then_key_then_one_that_changes() -> None:
    for one in chunked(rows(500)):
        for _, key, _, _ in one.rows:
            named = one.partition.partition == 1
            assert (
                key is None
                or named
                or one.partition.partition == partition_for_key(key, {"a": 3, "b": 5}[one.partition.topic])
            )
    keyless = [SinkRow("b", None, 0, None, b"v", ())] * 200
    used = [one.partition.partition for one in chunked(keyless)]
    assert sorted(used) == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]
    begins = {chunked(keyless, f"task {number}")[0].partition.partition for number in range(40)}
    assert begins == {0, 1, 2, 3, 4}


def test_keys_are_remembered_within_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunks, "KEYS_REMEMBERED", 3)
    found = chunked([SinkRow("a", None, 0, b"%d" % (index % 7), b"v", ()) for index in range(100)])
    assert all(one.partition.partition == partition_for_key(row[1] or b"", 3) for one in found for row in one.rows)


@pytest.mark.parametrize("partition", [-1, 3])
def test_a_partition_that_is_not_there(partition: int) -> None:
    with pytest.raises(InvalidRequest, match="has 3 partitions"):
        Chunker({"a": 3}, "s").add(SinkRow("a", partition, 0, None, b"v", ()))


def test_a_place_has_one_identity_and_no_other_has_it() -> None:
    places = [
        (scope, topic, partition, number) for scope in "xy" for topic in "ab" for partition in (0, 1) for number in "01"
    ]
    found = [chunk_producer(*place) for place in places]
    assert len({*found}) == len(places)
    assert all(producer_id >> 62 == 1 for producer_id in found)
    assert found == [chunk_producer(*place) for place in places]


def test_every_part_of_the_content_counts() -> None:
    base = (1, b"k", b"v", (("h", b"x"),))
    others = [
        (1, b"K", b"v", (("h", b"x"),)),
        (1, b"k", None, (("h", b"x"),)),
        (1, None, b"v", (("h", b"x"),)),
        (1, b"k", b"v", (("h", None),)),
        (1, b"k", b"v", (("g", b"x"),)),
        (1, b"k", b"v", ()),
        (1, b"kv", b"", (("h", b"x"),)),
    ]
    assert len({fingerprint([one]) for one in [base, *others]}) == len(others) + 1
    assert fingerprint([base, base]) != fingerprint([base])
    assert fingerprint([(9, *base[1:])]) == fingerprint([base])
    assert 0 <= fingerprint([base]) < 2**31


def test_a_chunk_knows_where_the_input_could_have_ended() -> None:
    chunker = Chunker({"a": 1}, "s")
    full = []
    for size in (8, 0, 8, 8, 3):
        added = [chunker.add(SinkRow("a", None, 0, None, b"v", ())) for _ in range(size)]
        full += [chunk for chunk in added if chunk is not None]
        chunker.end_of_batch()
    assert [(one.position, one.cuts) for one in [*full, *chunker.rest()]] == [("0", [8, 16]), ("1", [4, 7])]


def test_the_parts_of_a_chunk() -> None:
    whole = Chunk(TopicPartition("a", 0), "3", [(0, None, b"%d" % number, ()) for number in range(9)], cuts=[2, 5])
    assert (whole.first(2).position, whole.first(2).rows) == ("3", whole.rows[:2])
    rest = whole.after(2)
    assert (rest.position, rest.rows, rest.cuts) == ("3+2", whole.rows[2:], [3])
    assert rest.after(3).position == "3+2+3"
