"""What leaders ask for, in the order in which it is checked; and elections that are asked for."""

from __future__ import annotations

import msgspec
import pytest

from tests.unit.controller.cluster import IsrCluster, topic_id
from tidelog.config.schema import BrokerConfig
from tidelog.controller.decide import decide
from tidelog.controller.partition_commands import (
    ANY_LIFE,
    AlterCode,
    AlterOutcome,
    AlterPartition,
    ElectionAnswer,
    ElectionCode,
    ElectionType,
    ElectLeaders,
    IsrMember,
    LeadersElected,
    PartitionNamed,
    PartitionsAltered,
)
from tidelog.controller.upkeep import preferred_election
from tidelog.model.errors import NotController, StaleBrokerEpoch
from tidelog.model.ids import NodeId

ONE = NodeId(1)


def test_a_leader_gets_the_isr_it_asks_for_in_the_order_of_replicas() -> None:
    cluster = IsrCluster()
    shrunk = cluster.ask(1)
    assert (shrunk.outcome, shrunk.isr, shrunk.partition_epoch, shrunk.leader_epoch) == ("applied", (1,), 1, 0)
    assert cluster.sets == (1, (1,), (2, 3))
    grown = cluster.ask(3, 1)
    assert (grown.isr, grown.partition_epoch) == ((1, 3), 2)
    assert cluster.sets == (1, (1, 3), ())


def test_asking_twice_is_asking_once() -> None:
    cluster = IsrCluster()
    asked = cluster.asked(1, 2)
    first = cluster.ask_as(asked)
    image = cluster.image
    assert cluster.ask_as(asked) == first
    assert cluster.image == image
    assert cluster.ask(1, 2).partition_epoch == first.partition_epoch, "it is so already"


def test_what_a_leader_did_not_see_it_cannot_change() -> None:
    cluster = IsrCluster()
    old = cluster.asked(1)
    cluster.fence(3)
    answer = cluster.ask_as(old)
    assert (answer.code, answer.outcome) == (AlterCode.INVALID_UPDATE_VERSION, AlterOutcome.STALE)
    assert (answer.isr, answer.partition_epoch) == ((1, 2), 1)
    cluster.ask(1)
    cluster.ask(1, 2)
    assert cluster.ask_as(old).code is AlterCode.INVALID_UPDATE_VERSION
    assert cluster.sets == (1, (1, 2), ())


def test_a_leader_of_the_past_is_told_so() -> None:
    cluster = IsrCluster()
    old = cluster.asked(1)
    cluster.fence(1)
    cluster.heartbeat(1)
    assert (cluster.ask_as(old, 1).code, cluster.ask_as(old, 1).outcome) == ("fenced leader epoch", "stale")
    assert cluster.ask_as(cluster.asked(1, 2), 1).code is AlterCode.INVALID_REQUEST
    assert cluster.sets == (2, (2, 3), ())


@pytest.mark.parametrize("change", [{"leader_epoch": 1}, {"partition_epoch": 1}])
def test_a_leader_that_knows_more_is_not_judged(change: dict[str, int]) -> None:
    cluster = IsrCluster()
    with pytest.raises(NotController):
        cluster.ask(1, **change)


def test_an_old_process_asks_for_nothing() -> None:
    cluster = IsrCluster()
    command = AlterPartition(1, cluster.image.brokers[ONE].epoch, [cluster.asked(1)])
    cluster.crash(1)
    with pytest.raises(StaleBrokerEpoch):
        cluster.do(command)


def test_an_isr_is_of_replicas_once_each_with_the_leader() -> None:
    cluster = IsrCluster(brokers=4)
    for nodes in ((), (2,), (1, 4), (1, 2, 2)):
        answer = cluster.ask(*nodes)
        assert (answer.code, answer.outcome) == (AlterCode.INVALID_REQUEST, AlterOutcome.STALE)
    assert cluster.sets == (1, (1, 2, 3), ())
    unknown = msgspec.structs.replace(cluster.asked(1), partition=1)
    assert cluster.ask_as(unknown).code is AlterCode.UNKNOWN_PARTITION
    assert cluster.ask_as(msgspec.structs.replace(unknown, topic_id="f" * 32)).code is AlterCode.UNKNOWN_PARTITION


def test_nobody_joins_who_is_fenced_or_fetched_in_an_earlier_life() -> None:
    cluster = IsrCluster()
    asked = cluster.asked(1, 2, 3)
    cluster.crash(3)
    asked = msgspec.structs.replace(asked, partition_epoch=cluster.partition.partition_epoch)
    fenced = cluster.ask(1, 2, 3)
    assert (fenced.code, fenced.outcome) == (AlterCode.INELIGIBLE_REPLICA, AlterOutcome.NOT_APPLIED)
    cluster.heartbeat(3)
    asked = msgspec.structs.replace(asked, partition_epoch=cluster.partition.partition_epoch)
    assert cluster.ask_as(asked).code is AlterCode.INELIGIBLE_REPLICA, "the log that it fetched may be another"
    assert cluster.ask(1, 2, 3).outcome is AlterOutcome.APPLIED


def test_only_who_is_in_sync_already_may_go_without_its_epoch() -> None:
    cluster = IsrCluster()
    anyhow = [IsrMember(1, ANY_LIFE), IsrMember(2, ANY_LIFE)]
    assert cluster.ask_as(msgspec.structs.replace(cluster.asked(1), isr=anyhow)).isr == (1, 2)
    anyhow.append(IsrMember(3, ANY_LIFE))
    assert cluster.ask_as(msgspec.structs.replace(cluster.asked(1), isr=anyhow)).code is AlterCode.INELIGIBLE_REPLICA


def test_a_no_holds_for_what_was_sent_before_too() -> None:
    cluster = IsrCluster()
    cluster.fence(3)
    sent_twice = cluster.asked(1, 2, 3)
    assert cluster.ask_as(sent_twice).outcome is AlterOutcome.NOT_APPLIED
    cluster.heartbeat(3)
    assert cluster.ask_as(sent_twice).outcome is AlterOutcome.STALE
    assert cluster.sets == (1, (1, 2), ())


def test_partitions_are_judged_one_by_one_and_recorded_together() -> None:
    cluster = IsrCluster()
    good, bad = cluster.asked(1, 2), cluster.asked(2)
    command = AlterPartition(1, cluster.image.brokers[ONE].epoch, [good, bad, good])
    decision = decide(cluster.image, command, cluster.config)
    assert len(decision.records) == 1
    answer = cluster.do(command)
    assert isinstance(answer, PartitionsAltered)
    assert [one.code for one in answer.partitions] == ["none", "invalid update version", "none"]
    assert cluster.sets == (1, (1, 2), ())


def test_a_member_is_two_numbers_on_the_wire() -> None:
    assert msgspec.json.encode(IsrMember(1, 7)) == b"[1,7]"


# -- elections ---------------------------------------------------------------------------------------------------------


def elect(cluster: IsrCluster, election: ElectionType, *, named: bool = True) -> list[ElectionAnswer]:
    partitions = [PartitionNamed(topic_id("t"), 0), PartitionNamed(topic_id("t"), 1)] if named else None
    answer = cluster.do(ElectLeaders(election, partitions))
    assert isinstance(answer, LeadersElected)
    return answer.partitions


def test_the_preferred_leader_leads_if_it_is_in_sync() -> None:
    cluster = IsrCluster()
    one, unknown = elect(cluster, ElectionType.PREFERRED)
    assert (one.code, one.leader) == (ElectionCode.ELECTION_NOT_NEEDED, 1)
    assert unknown.code is ElectionCode.UNKNOWN_PARTITION
    cluster.fence(1)
    cluster.heartbeat(1)
    one, _ = elect(cluster, ElectionType.PREFERRED)
    assert (one.code, one.leader) == (ElectionCode.PREFERRED_LEADER_NOT_AVAILABLE, 2)
    assert elect(cluster, ElectionType.PREFERRED, named=False) == []
    cluster.ask(1, 2, 3)
    (one,) = elect(cluster, ElectionType.PREFERRED, named=False)
    assert (one.code, one.leader) == (ElectionCode.NONE, 1)
    assert (cluster.partition.leader_epoch, cluster.sets) == (2, (1, (1, 2, 3), ()))


def test_an_operator_may_give_records_up() -> None:
    cluster = IsrCluster()
    assert elect(cluster, ElectionType.UNCLEAN)[0].code is ElectionCode.ELECTION_NOT_NEEDED
    cluster.fence(3, 2, 1)
    assert elect(cluster, ElectionType.UNCLEAN)[0].code is ElectionCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
    assert elect(cluster, ElectionType.UNCLEAN, named=False) == []
    cluster.heartbeat(3)
    assert cluster.sets == (-1, (), (1, 2))
    (one,) = elect(cluster, ElectionType.UNCLEAN, named=False)
    assert (one.code, one.leader, cluster.sets) == (ElectionCode.NONE, 3, (3, (3,), ()))


def test_leaders_go_back_by_themselves_unless_that_is_turned_off() -> None:
    cluster = IsrCluster()
    assert preferred_election(cluster.image, cluster.config) is None
    cluster.fence(1)
    cluster.heartbeat(1)
    assert preferred_election(cluster.image, cluster.config) is None
    cluster.ask(1, 2, 3)
    assert preferred_election(cluster.image, cluster.config) == ElectLeaders(ElectionType.PREFERRED)
    assert preferred_election(cluster.image, BrokerConfig(auto_leader_rebalance_enable=False)) is None
