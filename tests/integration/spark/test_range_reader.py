"""One range, read from brokers that stop in the middle, lead no more, know less, or have lost it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.integration.spark.scripted import Script, ScriptedBroker, batches, error, scripted_broker
from tidelog.model.batch_codec import encode_batch
from tidelog.model.batch_header import Compression, iter_batches
from tidelog.model.errors import DamagedBatch, InvalidBatch, LeaderNotAvailable, OffsetOutOfRange, TidelogError
from tidelog.spark import range_reader
from tidelog.spark.cluster import Cluster
from tidelog.spark.decode import decode_piece
from tidelog.spark.errors import DataLoss, LossRule
from tidelog.spark.planner import OffsetRange
from tidelog.spark.range_reader import read_range


@pytest.fixture
def broker() -> Iterator[ScriptedBroker]:
    with scripted_broker() as broker:
        yield broker


def log(start: int, end: int, *, size: int = 10, compression: Compression = Compression.NONE) -> bytes:
    """Batches of `size` records whose values are their offsets."""
    return b"".join(
        encode_batch(
            [(1, None, b"%d" % offset) for offset in range(first, first + size)],
            base_offset=first,
            compression=compression,
        )
        for first in range(start, end, size)
    )


def read(
    broker: ScriptedBroker, start: int, end: int, *, fails: bool = True, timeout_s: float = 20.0, leader: bool = True
) -> list[int]:
    cluster = Cluster([broker.url], timeout_s=timeout_s)
    one = OffsetRange("t", 0, start, end, "id")
    try:
        return [
            offset
            for piece in read_range(cluster, one, broker.url if leader else None, LossRule(fails))
            for batch in decode_piece(piece, one, ["offset"])
            for offset in batch.column("offset").to_pylist()
        ]
    finally:
        cluster.close()


def test_one_request_for_a_range(broker: ScriptedBroker) -> None:
    broker.answers = [batches(log(0, 50), 50)]
    assert read(broker, 7, 43) == [*range(7, 43)]
    assert broker.asked == ["/topics/t/partitions/0/batches?offset=7&to=43"]


def test_who_leads_is_looked_up_if_it_is_not_known(broker: ScriptedBroker) -> None:
    broker.answers = [batches(log(0, 10), 10)]
    assert read(broker, 0, 10, leader=False) == [*range(10)]


@pytest.mark.parametrize("at", [1, 61, 100, 500])
def test_a_stream_that_breaks_off_is_taken_up_where_it_ended(broker: ScriptedBroker, at: int) -> None:
    data = log(0, 50)
    position = [0, *(batch.header.next_offset for batch in iter_batches(data[:at]))][-1]
    broker.answers = [batches(data[:at], 50, is_cut=True), batches(log(position, 50), 50)]
    assert read(broker, 0, 50) == [*range(50)]
    assert broker.asked[1] == f"/topics/t/partitions/0/batches?offset={position}&to=50"


@pytest.mark.parametrize("refusal", [error(50302), error(50307), error(50305), error(50306), error(50001)])
def test_what_may_pass_is_tried_again(broker: ScriptedBroker, refusal: Script) -> None:
    broker.answers = [refusal, batches(log(0, 10), 10)]
    assert read(broker, 0, 10) == [*range(10)]


def test_a_new_leader_that_knows_less_is_waited_for(broker: ScriptedBroker) -> None:
    broker.answers = [
        batches(log(0, 20), 20),
        error(41601, Tidelog_Log_Start_Offset="0", Tidelog_Log_End_Offset="19"),
        batches(log(20, 40), 40),
    ]
    assert read(broker, 0, 40) == [*range(40)]


def test_a_gap_at_the_end_is_no_reason_to_wait(broker: ScriptedBroker) -> None:
    broker.answers = [batches(log(0, 20), 100)]
    assert read(broker, 0, 40) == [*range(20)]


def test_patience_ends(broker: ScriptedBroker) -> None:
    broker.answers = [batches(b"", 0)] * 10
    with pytest.raises(LeaderNotAvailable, match=r"t-0 \[0, 40\): not known to be committed beyond 0"):
        read(broker, 0, 40, timeout_s=0.3)


@pytest.mark.parametrize(
    ("refusal", "raised"),
    [
        (error(50303), DamagedBatch),
        (error(41601, Tidelog_Log_Start_Offset="0", Tidelog_Log_End_Offset="5"), OffsetOutOfRange),
    ],
)
def test_the_last_error_is_told_as_it_came(broker: ScriptedBroker, refusal: Script, raised: type[TidelogError]) -> None:
    broker.answers = [refusal] * 10
    with pytest.raises(raised):
        read(broker, 20, 40, timeout_s=0.3)


def test_records_that_were_deleted_meanwhile(broker: ScriptedBroker) -> None:
    gone = error(41601, Tidelog_Log_Start_Offset="30", Tidelog_Log_End_Offset="50")
    broker.answers = [gone]
    with pytest.raises(DataLoss, match="records 10 to 29 have been deleted"):
        read(broker, 10, 50)
    broker.answers = [gone, batches(log(30, 50), 50)]
    assert read(broker, 10, 50, fails=False) == [*range(30, 50)]
    broker.answers = [gone]
    assert read(broker, 10, 25, fails=False) == []


def passing(data: bytes, high_watermark: int, lost: str) -> Script:
    """An answer that passes accepted losses."""
    script = batches(data, high_watermark)
    script.headers["Tidelog-Lost"] = lost
    return script


def test_an_accepted_loss_fails_behind_what_was_there(broker: ScriptedBroker) -> None:
    broker.answers = [passing(log(0, 10) + log(20, 50), 50, "10-19"), batches(log(0, 10), 50)]
    cluster, one = Cluster([broker.url], timeout_s=20), OffsetRange("t", 0, 0, 50, "id")
    pieces = read_range(cluster, one, broker.url, LossRule())
    assert bytes(next(pieces)) == log(0, 10)
    with pytest.raises(DataLoss, match=r"records 10-19 are lost.*set failOnDataLoss to false") as caught:
        next(pieces)
    assert caught.value.lost == (10, 20)
    assert [path.partition("?")[2] for path in broker.asked] == ["offset=0&to=50", "offset=0&to=10"]
    cluster.close()


def test_accepted_losses_are_passed_with_a_warning_each(
    broker: ScriptedBroker, caplog: pytest.LogCaptureFixture
) -> None:
    broker.answers = [
        passing(log(0, 10) + log(20, 30) + log(40, 50), 60, "10-19, 30-39, 50-59"),
        batches(log(0, 10), 60),
        passing(log(20, 30) + log(40, 50), 60, "30-39, 50-59"),
        error(50302),
        batches(log(20, 30), 60),
        passing(log(40, 50), 60, "50-59"),
        batches(log(40, 50), 60),
    ]
    assert read(broker, 5, 60, fails=False) == [*range(5, 10), *range(20, 30), *range(40, 50)]
    assert broker.answers == []
    lost = [line.getMessage().partition(" are lost")[0] for line in caplog.records if "are lost" in line.getMessage()]
    assert lost == [f"t-0 [5, 60): records {each}" for each in ("10-19", "30-39", "50-59")]


def test_only_a_loss_within_the_range_is_one(broker: ScriptedBroker) -> None:
    broker.answers = [passing(log(10, 20), 50, "0-9, 20-29")]
    assert read(broker, 10, 20) == [*range(10, 20)]
    broker.answers = [passing(log(20, 30), 50, "10-19")]
    with pytest.raises(DataLoss, match="records 15-19 are lost"):
        read(broker, 15, 30)


def test_a_topic_that_is_gone_or_another_one(broker: ScriptedBroker) -> None:
    broker.answers = [error(40401)]
    with pytest.raises(DataLoss, match="the topic is gone"):
        read(broker, 0, 10)
    broker.topic_id = "another"
    with pytest.raises(DataLoss, match="the topic is gone"):
        read(broker, 0, 10, leader=False)
    assert read(broker, 0, 10, leader=False, fails=False) == []


def test_what_will_be_wrong_again_is_not_tried_again(broker: ScriptedBroker) -> None:
    broker.answers = [error(40002)]
    with pytest.raises(TidelogError, match="because"):
        read(broker, 0, 10)
    broker.answers = [batches(bytes(100), 10)]
    with pytest.raises(InvalidBatch):
        read(broker, 0, 10)


def test_nobody_there() -> None:
    with scripted_broker() as broker:
        pass
    with pytest.raises(TidelogError, match="no connection"):
        read(broker, 0, 10, timeout_s=0.2)


def test_a_connection_that_was_closed_while_it_rested_is_replaced(broker: ScriptedBroker) -> None:
    cluster = Cluster([broker.url], timeout_s=5.0)
    broker.answers = [Script(200, log(0, 10), {"Tidelog-High-Watermark": "10"}, closes=True)]
    assert len(list(read_range(cluster, OffsetRange("t", 0, 0, 10, "id"), broker.url, LossRule()))) == 1
    assert cluster.metadata(["t"]).topics[0].topic_id == "id"
    cluster.close()


@pytest.mark.parametrize("compression", Compression)
@pytest.mark.parametrize(("read_bytes", "room_bytes"), [(64, 128), (64, 1500), (999, 1500), (1 << 20, 1 << 20)])
def test_pieces_are_whole_batches_whatever_comes_at_once(
    broker: ScriptedBroker,
    monkeypatch: pytest.MonkeyPatch,
    compression: Compression,
    read_bytes: int,
    room_bytes: int,
) -> None:
    monkeypatch.setattr(range_reader, "READ_BYTES", read_bytes)
    monkeypatch.setattr(range_reader, "ROOM_BYTES", room_bytes)
    monkeypatch.setattr(range_reader, "PIECE_RECORDS", 25)
    data = log(0, 100, compression=compression)
    broker.answers = [batches(data, 100)]
    cluster = Cluster([broker.url], timeout_s=5.0)
    one = OffsetRange("t", 0, 0, 100, "id")
    pieces = [bytes(piece) for piece in read_range(cluster, one, broker.url, LossRule())]
    cluster.close()
    assert b"".join(pieces) == data
    assert [sum(batch.header.record_count for batch in iter_batches(piece)) for piece in pieces] == [30, 30, 30, 10]
