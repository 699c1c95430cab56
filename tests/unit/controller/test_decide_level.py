"""When the cluster's feature level rises, and what is written before and after it."""

from __future__ import annotations

from itertools import product
from typing import Any

import msgspec
import pytest

from tests.unit.controller.cluster import Cluster, newest, registration, topic_id
from tidelog.controller.apply import apply
from tidelog.controller.commands import (
    AlterTopicConfigs,
    BrokerAdmitted,
    CreateTopic,
    FenceBroker,
    LevelAnswered,
    NewTopic,
    NoteStamps,
    RaiseLevel,
    SpokenLevels,
    Stamped,
)
from tidelog.controller.decide import decide
from tidelog.controller.partition_commands import LostReplica, ReportLostReplicas
from tidelog.controller.records import (
    BrokerRegistered,
    BrokersStamped,
    ClusterCreated,
    ClusterRecovered,
    LevelRaised,
    MetadataRecord,
    PartitionChange,
    PartitionsChanged,
    decode_record,
    encode_record,
    encode_records,
)
from tidelog.controller.snapshot import decode_image, encode_image
from tidelog.model.errors import UnsupportedLevel
from tidelog.model.ids import NodeId
from tidelog.model.levels import LevelRange

NODES = (1, 2, 3)
OLD, NEW, NEWER = LevelRange(1, 1), LevelRange(1, 2), LevelRange(1, 3)


def started(level: int = 1) -> Cluster:
    return Cluster(level=level)


def register(cluster: Cluster, node: int, levels: LevelRange, process: str = "p") -> None:
    command = registration(node, process=process, replaces=newest(cluster.image, node))
    assert isinstance(cluster.do(msgspec.structs.replace(command, levels=levels)), BrokerAdmitted)
    cluster.heartbeat(node)


def registered(**fields: Any) -> BrokerRegistered:
    return BrokerRegistered(
        node_id=1, incarnation="p", rack=None, peer_host="h", peer_port=1, storage="d", is_clean=True, **fields
    )


def spoken(levels: dict[int, LevelRange], process: str = "p") -> tuple[SpokenLevels, ...]:
    return tuple(SpokenLevels(node, process, one) for node, one in levels.items())


@pytest.mark.parametrize("ranges", list(product((OLD, NEW, NEWER), repeat=3)))
def test_it_rises_to_what_the_newest_speaks_if_all_do(ranges: tuple[LevelRange, ...]) -> None:
    cluster = started()
    levels = dict(zip(NODES, ranges, strict=True))
    for node, one in levels.items():
        register(cluster, node, one)
    highest = max(one.highest for one in ranges)
    behind = [node for node, one in levels.items() if highest not in one]
    if behind:
        with pytest.raises(UnsupportedLevel) as refused:
            cluster.do(RaiseLevel(spoken=spoken(levels)))
        for node in NODES:
            assert (f"broker {node} speaks {levels[node]}" in refused.value.message) == (node in behind)
        assert cluster.image.level == 1
        return
    assert cluster.do(RaiseLevel(validate_only=True, spoken=spoken(levels))) == LevelAnswered(
        cluster.image.position, 1, highest
    )
    assert cluster.image.level == 1
    answer = cluster.do(RaiseLevel(spoken=spoken(levels)))
    assert answer == LevelAnswered(cluster.image.position, 1, highest)
    assert cluster.image.level == highest
    again = decide(cluster.image, RaiseLevel(spoken=spoken(levels)), cluster.config)
    assert again.records == ()
    assert again.answer(cluster.image) == LevelAnswered(cluster.image.position, highest, highest)


def test_at_the_first_level_a_broker_that_is_away_has_said_nothing() -> None:
    cluster = started()
    for node in NODES:
        register(cluster, node, NEW)
    assert all(broker.levels == OLD for broker in cluster.image.brokers.values())
    cluster.do(FenceBroker(3, cluster.image.brokers[NodeId(3)].epoch))
    with pytest.raises(UnsupportedLevel, match="broker 3 is not heard of now, and is known for feature level 1"):
        cluster.do(RaiseLevel(spoken=spoken({1: NEW, 2: NEW})))


def test_above_it_a_broker_that_is_away_counts_with_what_it_registered() -> None:
    cluster = started(2)
    for node in NODES:
        register(cluster, node, NEWER)
    cluster.do(FenceBroker(3, cluster.image.brokers[NodeId(3)].epoch))
    cluster.do(RaiseLevel(spoken=spoken({1: NEWER, 2: NEWER})))
    assert cluster.image.level == 3
    assert cluster.image.brokers[NodeId(3)].levels == NEWER


def test_an_earlier_process_of_a_broker_says_nothing_of_the_one_that_is_registered() -> None:
    cluster = started()
    for node in NODES:
        register(cluster, node, NEW)
    register(cluster, 3, OLD, process="older")
    with pytest.raises(UnsupportedLevel, match="broker 3 is not heard of"):
        cluster.do(RaiseLevel(spoken=spoken(dict.fromkeys(NODES, NEW))))


def test_a_voter_that_is_not_registered_holds_it_up() -> None:
    cluster = Cluster(voters=3, level=2)
    for node in (1, 2):
        register(cluster, node, NEW)
    with pytest.raises(UnsupportedLevel, match="broker 3 votes on the metadata log, and is not registered"):
        cluster.do(RaiseLevel(spoken=spoken({1: NEW, 2: NEW})))


def test_a_broker_that_does_not_speak_the_level_is_not_registered() -> None:
    cluster = started(2)
    with pytest.raises(UnsupportedLevel, match="node 1 speaks feature level 1, and the cluster is at level 2; start"):
        register(cluster, 1, OLD)
    register(cluster, 1, NEW)
    assert cluster.image.brokers[NodeId(1)].levels == NEW


def test_it_never_falls() -> None:
    cluster = started(2)
    register(cluster, 1, LevelRange(2, 3))
    cluster.do(RaiseLevel(spoken=spoken({1: LevelRange(2, 3)})))
    for record in (LevelRaised(2, ()), ClusterCreated("c1")):
        assert apply(cluster.image, record, cluster.image.position).level == 3


def test_a_setting_that_is_newer_than_the_cluster_is_refused() -> None:
    cluster = started()
    register(cluster, 1, NEW)
    configs = {"min.insync.racks": "1"}
    with pytest.raises(UnsupportedLevel, match=r"min\.insync\.racks needs feature level 2"):
        cluster.do(CreateTopic(NewTopic("t", configs=configs), topic_id("t")))
    cluster.create("t")
    with pytest.raises(UnsupportedLevel, match=r"min\.insync\.racks needs feature level 2"):
        cluster.do(AlterTopicConfigs("t", configs))
    cluster.do(RaiseLevel(spoken=spoken({1: NEW})))
    cluster.do(AlterTopicConfigs("t", configs))
    assert cluster.image.topics["t"].configs["min.insync.racks"] == "1"


@pytest.mark.parametrize("level", [1, 2])
def test_an_order_of_commits_needs_level_3(level: int) -> None:
    cluster = started(level)
    register(cluster, 1, NEWER)
    for order in ("total", "key", "none"):
        new = NewTopic("t", configs={"commit.protocol": "paxos", "commit.order": order})
        with pytest.raises(
            UnsupportedLevel, match=rf"commit\.order needs feature level 3, and the cluster is at level {level}"
        ):
            cluster.do(CreateTopic(new, topic_id("t")))
    assert not cluster.image.topics
    cluster.do(RaiseLevel(spoken=spoken({1: NEWER})))
    cluster.do(CreateTopic(new, topic_id("t")))
    assert cluster.image.topics["t"].configs["commit.order"] == "none"


@pytest.mark.parametrize("level", [1, 2])
def test_a_hole_span_needs_level_3(level: int) -> None:
    cluster = started(level)
    register(cluster, 1, NEWER)
    cluster.do(CreateTopic(NewTopic("t", configs={"commit.protocol": "paxos"}), topic_id("t")))
    span = AlterTopicConfigs("t", {"commit.hole.span": "16"})
    with pytest.raises(UnsupportedLevel, match=r"commit\.hole\.span needs feature level 3"):
        cluster.do(span)
    cluster.do(RaiseLevel(spoken=spoken({1: NEWER})))
    cluster.do(span)
    assert cluster.image.topics["t"].configs["commit.hole.span"] == "16"


def test_a_log_names_its_level_before_what_needs_it() -> None:
    record = registered(levels=NEW)
    lines = encode_records([record, LevelRaised(2, ()), record], 1).split(b"\n")
    assert [b'"levels":[1,2]' in line for line in lines] == [False, False, True]
    assert [decode_record(line) for line in lines][1:] == [LevelRaised(2, ()), record]
    assert b"level" not in encode_records([ClusterCreated("c")], 1)
    with pytest.raises(UnsupportedLevel):
        encode_record(LevelRaised(2, ()), 1)


def test_at_the_first_level_no_record_says_that_a_replica_has_begun_anew() -> None:
    change = PartitionChange(topic_id("t"), 0, 2, 1, [2], 1)
    assert encode_record(PartitionsChanged([change]), 1)
    with pytest.raises(UnsupportedLevel, match="cannot begin anew at feature level 1"):
        encode_record(PartitionsChanged([change, msgspec.structs.replace(change, renewed=[1])]), 1)


@pytest.mark.parametrize(("level", "version"), [(1, 5), (2, 9), (3, 10)])
def test_a_snapshot_is_of_the_format_of_its_level(level: int, version: int) -> None:
    cluster = started(level)
    register(cluster, 1, NEWER)
    data = encode_image(cluster.image)
    assert b'"format":%d' % version in data and (b"level" in data) == (level > 1)
    assert decode_image(data) == cluster.image


def test_at_the_first_level_a_snapshot_loses_nothing() -> None:
    """A broker that begins with a snapshot has the image of the brokers that applied all records."""
    cluster = started()
    for node in NODES:
        register(cluster, node, NEW)
    cluster.create("t", 2, 3)
    command = registration(1, process="q", replaces=newest(cluster.image, 1))
    cluster.do(msgspec.structs.replace(command, starts=4, stamp=9))
    cluster.do(NoteStamps([Stamped(1, newest(cluster.image, 1), 12)]))
    assert cluster.image.level == 1
    assert decode_image(encode_image(cluster.image)) == cluster.image
    cluster.do(RaiseLevel(spoken=spoken(dict.fromkeys(NODES, NEW)) + spoken({1: NEW}, "q")))
    cluster.do(NoteStamps([Stamped(1, newest(cluster.image, 1), 12)]))
    assert (cluster.image.brokers[NodeId(1)].stamp, cluster.image.level) == (12, 2)
    assert decode_image(encode_image(cluster.image)) == cluster.image


def test_at_the_first_level_nobody_is_told_of_lost_logs() -> None:
    cluster = started()
    register(cluster, 1, NEW)
    cluster.create("t")
    lost = ReportLostReplicas(1, newest(cluster.image, 1), [LostReplica(topic_id("t"), 0, 0)])
    with pytest.raises(UnsupportedLevel, match="logs of broker 1 are lost"):
        cluster.do(lost)


@pytest.mark.parametrize(
    "record", [BrokersStamped([]), ClusterRecovered(1, 2, "me", 3, ()), registered(levels=NEW), registered(starts=1)]
)
def test_a_record_shows_the_level_that_it_needs(record: MetadataRecord) -> None:
    """A log that was written between two releases says nothing of levels; its records do."""
    assert apply(started().image, record, 100).level == 2
    assert apply(started().image, registered(), 100).level == 1


def test_a_recovered_log_is_at_a_level_that_can_say_so() -> None:
    for record in (BrokersStamped([]), ClusterRecovered(1, 2, "me", 3, ())):
        with pytest.raises(UnsupportedLevel):
            encode_record(record, 1)
    assert b"starts" not in encode_record(registered(starts=1), 1)
