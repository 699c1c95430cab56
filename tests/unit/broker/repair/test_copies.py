"""A replica's denial is passed on, unless it stands in for a replica that was lost: then it never knew."""

from __future__ import annotations

from typing import Any, cast

import pytest
from msgspec import UNSET

from tests.unit.broker.repair.stage import Replica
from tests.unit.storage.test_log_manager import one_batch
from tidelog.broker.partitions.replica_logs import is_lost, may_deny
from tidelog.broker.repair.copies import Copies
from tidelog.broker.repair.repair_messages import RecoverQuery, RecoverReply, RequestedBatch
from tidelog.model.cluster import PartitionInfo
from tidelog.model.holdings import Holding
from tidelog.model.ids import NodeId, PartitionId, TopicId
from tidelog.sim.kit.disk import SimDisk
from tidelog.storage.log_manager import LogManager
from tidelog.storage.partition_log import LogSettings, PartitionLog

LOG = PartitionId(TopicId("ab" * 16), 0)
ME, OTHER = NodeId(2), NodeId(1)


def log_of_one_batch() -> PartitionLog:
    manager = LogManager(SimDisk(0), open_max=64, new_incarnation=lambda: "i")
    log, _ = manager.open_log(LOG, LogSettings(segment_bytes=1 << 20, segment_ms=1 << 40), 0)
    log.append(one_batch(0), 0)
    log.flush()
    return log


@pytest.mark.parametrize(("denies", "said"), [(True, Holding.DONT_HAVE), (False, Holding.UNKNOWN)])
def test_only_a_replica_in_good_standing_denies(denies: bool, said: Holding) -> None:
    log = log_of_one_batch()
    holder = Replica(log, leader_epoch=3, high_watermark=1)
    copies = Copies(lambda _: holder, lambda _: denies, lambda: 7, cast("Any", None))
    query = RecoverQuery(LOG.topic_id, 0, (RequestedBatch(0, -1, b""), RequestedBatch(5, 1, b"d" * 16)))
    reply = copies.answer(query).message
    assert isinstance(reply, RecoverReply)
    assert [held.holding for held in reply.held] == [Holding.HAVE, said]


@pytest.mark.parametrize(
    ("stands_in_since", "isr", "lost", "denies"),
    [
        (UNSET, (OTHER,), False, True),
        (5, (OTHER, ME), True, False),
        (4, (OTHER,), False, False),
        (4, (OTHER, ME), False, True),
    ],
    ids=["never lost", "lost, and not known to be", "known to be lost, not filled", "filled again"],
)
def test_a_stand_in_denies_when_its_leader_has_found_it_complete(
    stands_in_since: Any, isr: tuple[NodeId, ...], lost: bool, denies: bool
) -> None:
    log = log_of_one_batch()
    log.stands_in_since = stands_in_since
    info = PartitionInfo(0, OTHER, 0, (OTHER, ME), isr, since=((OTHER, 5), (ME, 5)))
    assert is_lost(log, info, ME) is lost
    assert may_deny(log, info, ME) is denies
