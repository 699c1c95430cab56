"""Accepted losses: ranges that were given up, their records, and their bounds."""

from __future__ import annotations

import pytest

from tests.unit.controller.cluster import IsrCluster, topic_id
from tidelog.controller.commands import DeleteTopic
from tidelog.controller.decide_losses import RANGES_MAX, STATEMENTS_MAX, WORD_CHARS_MAX
from tidelog.controller.partition_commands import AcceptLoss
from tidelog.controller.records import GivenUpRange
from tidelog.controller.snapshot import decode_image, encode_image
from tidelog.model.errors import InvalidRequest, UnknownPartition, UnknownTopic
from tidelog.model.losses import LOSSES_MAX, AcceptedLoss, LossStatement, LostRanges

SAID = (LossStatement(1, "damaged"), LossStatement(2, "unreachable"))


def accept(*ranges: tuple[int, int], by: str = "op", partition: int = 0, topic: str = "t") -> AcceptLoss:
    lost = tuple(GivenUpRange(start, end, SAID, ("ab",)) for start, end in ranges)
    return AcceptLoss(topic_id(topic), partition, lost, by, 2, 1_000)


def test_a_loss_is_told_with_who_and_what_was_said() -> None:
    cluster = IsrCluster()
    cluster.do(accept((10, 15)))
    assert cluster.partition.losses == (AcceptedLoss(10, 15, 1_000, "op", 2, SAID, ("ab",)),)
    assert decode_image(encode_image(cluster.image)) == cluster.image


def test_a_loss_outlives_other_changes_of_the_partition() -> None:
    cluster = IsrCluster()
    cluster.do(accept((10, 15)))
    epoch = cluster.partition.partition_epoch
    losses = cluster.partition.losses
    cluster.fence(1)
    cluster.crash(2, new_disk=True)
    assert cluster.partition.partition_epoch > epoch
    assert cluster.partition.losses == losses


def test_a_repetition_changes_nothing() -> None:
    cluster = IsrCluster()
    cluster.do(accept((10, 15), (20, 21)))
    before = cluster.image
    cluster.do(accept((10, 15), (20, 21), by="another"))
    cluster.do(accept((11, 13)))
    assert cluster.image is before


def test_overlapping_losses_end_in_their_union_and_the_first_record_stays() -> None:
    cluster = IsrCluster()
    cluster.do(accept((10, 15)))
    cluster.do(accept((5, 20), by="another"))
    assert [(loss.start, loss.end, loss.by) for loss in cluster.partition.losses] == [
        (5, 10, "another"),
        (10, 15, "op"),
        (15, 20, "another"),
    ]
    assert list(LostRanges(cluster.partition.losses)) == [(5, 20)]


@pytest.mark.parametrize(
    ("command", "error"),
    [
        (accept((0, 1), topic="none"), UnknownTopic),
        (accept((0, 1), partition=1), UnknownPartition),
        (accept((0, 1), partition=-1), UnknownPartition),
        (accept(), InvalidRequest),
        (accept((1, 1)), InvalidRequest),
        (accept((-1, 1)), InvalidRequest),
        (accept((5, 6), (2, 3)), InvalidRequest),
        (accept((5, 8), (7, 9)), InvalidRequest),
        (accept((0, 1), by="x" * (WORD_CHARS_MAX + 1)), InvalidRequest),
        (accept(*((2 * i, 2 * i + 1) for i in range(RANGES_MAX + 1))), InvalidRequest),
        (
            AcceptLoss(topic_id("t"), 0, (GivenUpRange(0, 1, (SAID[0],) * (STATEMENTS_MAX + 1)),), "op", 1, 0),
            InvalidRequest,
        ),
    ],
)
def test_what_is_no_loss_is_refused(command: AcceptLoss, error: type[Exception]) -> None:
    cluster = IsrCluster()
    before = cluster.image
    with pytest.raises(error):
        cluster.do(command)
    assert cluster.image is before


def test_losses_are_bounded() -> None:
    cluster = IsrCluster()
    for start in range(0, 2 * LOSSES_MAX, 2 * RANGES_MAX):
        parts = range(start, min(start + 2 * RANGES_MAX, 2 * LOSSES_MAX), 2)
        cluster.do(accept(*((at, at + 1) for at in parts)))
    with pytest.raises(InvalidRequest, match=str(LOSSES_MAX)):
        cluster.do(accept((5_000, 5_001)))
    cluster.do(accept((0, 1)))
    assert len(cluster.partition.losses) == LOSSES_MAX


def test_losses_go_with_their_topic() -> None:
    cluster = IsrCluster()
    cluster.do(accept((10, 15)))
    cluster.do(DeleteTopic("t", topic_id("t")))
    with pytest.raises(UnknownTopic):
        cluster.do(accept((10, 15)))
