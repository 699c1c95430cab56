"""Topics: may they exist, and where do their replicas go."""

from __future__ import annotations

import pytest

from tests.unit.controller.cluster import CONFIG, Cluster, topic_id
from tidelog.config.schema import BrokerConfig
from tidelog.controller.commands import (
    AddPartitions,
    AlterTopicConfigs,
    CreateOffsetsTopic,
    CreateTopic,
    DeleteTopic,
    Done,
    FenceBroker,
    NewTopic,
    RemoveBroker,
    ReportRemoved,
    TopicPlaced,
)
from tidelog.controller.decide import decide
from tidelog.model.errors import InvalidRequest, LeaderNotAvailable, UnknownTopic
from tidelog.model.ids import NodeId, TopicId


@pytest.fixture
def cluster() -> Cluster:
    made = Cluster()
    made.start(1, 2, 3, 4, 5)
    return made


def fence(cluster: Cluster, *nodes: int) -> None:
    for node in nodes:
        cluster.do(FenceBroker(node, cluster.image.brokers[NodeId(node)].epoch))


def refusal(cluster: Cluster, topic: NewTopic) -> str:
    with pytest.raises(InvalidRequest) as refused:
        cluster.do(CreateTopic(topic, topic_id(topic.name)))
    return refused.value.message


def test_replicas_go_round_the_brokers(cluster: Cluster) -> None:
    assert cluster.create("t", 6, 3) == [[1, 2, 3], [2, 3, 4], [3, 4, 5], [4, 5, 1], [5, 1, 2], [1, 3, 4]]
    assert cluster.leaders("t") == [1, 2, 3, 4, 5, 1]
    assert all(info.isr == info.replicas for info in cluster.image.topics["t"].partitions), "all are equally empty"
    assert cluster.create("u", 1, 1) == [[2]], "a new topic begins where the fewest lead"


def test_the_default_is_three_replicas_or_all_brokers_there_are() -> None:
    small = Cluster()
    small.start(1)
    assert small.create("t") == [[1]]
    small.start(2, 3, 4)
    assert [len(replicas) for replicas in small.create("u")] == [3]


def test_a_broker_that_is_down_for_a_moment_does_not_make_new_topics_weaker(cluster: Cluster) -> None:
    fence(cluster, 1, 2, 3)
    assert cluster.create("t", 2) == [[4, 5, 1], [5, 4, 2]]
    assert cluster.leaders("t") == [4, 5]


def test_live_brokers_alone_are_used_where_they_are_enough(cluster: Cluster) -> None:
    fence(cluster, 2)
    assert cluster.create("t", 4, 2) == [[1, 3], [3, 4], [4, 5], [5, 1]]


def test_more_replicas_than_brokers_are_refused(cluster: Cluster) -> None:
    assert "replication factor 6 needs as many brokers, and the cluster has 5" in refusal(cluster, NewTopic("t", 1, 6))
    assert "replication factor 0" in refusal(cluster, NewTopic("t", 1, 0))


def test_without_a_live_broker_there_is_no_topic() -> None:
    cluster = Cluster()
    cluster.register(1)
    with pytest.raises(LeaderNotAvailable, match="no broker is live"):  # which passes by itself: clients try again
        cluster.do(CreateTopic(NewTopic("t"), topic_id("t")))
    assert "none of its replicas [1] is live" in refusal(cluster, NewTopic("t", assignments={0: [1]}))


def test_brokers_with_and_without_racks_are_refused_with_what_to_do() -> None:
    cluster = Cluster()
    cluster.start(1, 2, racks={1: "a"})
    assert "set broker.rack on all, or on none" in refusal(cluster, NewTopic("t"))


def test_racks_are_spread() -> None:
    cluster = Cluster()
    cluster.start(1, 2, 3, 4, racks={1: "a", 2: "a", 3: "b", 4: "b"})
    for replicas in cluster.create("t", 8, 2):
        assert {node > 2 for node in replicas} == {True, False}


def test_given_assignments_are_taken_if_they_are_sound(cluster: Cluster) -> None:
    answer = cluster.do(CreateTopic(NewTopic("t", assignments={0: [3, 1], 1: [2, 3]}), topic_id("t")))
    assert isinstance(answer, TopicPlaced)
    assert answer.assignments == [[3, 1], [2, 3]]
    wrong: list[dict[int, list[int]]] = [{0: [1, 1]}, {0: [9]}, {1: [1]}, {0: [1], 1: [1, 2]}, {0: []}, {}]
    for assignments in wrong:
        refusal(cluster, NewTopic("u", assignments=assignments))


def test_the_same_creation_twice_is_one_topic_and_has_one_answer(cluster: Cluster) -> None:
    command = CreateTopic(NewTopic("t", 2, 2), topic_id("t"))
    first = cluster.do(command)
    assert cluster.do(command) == first
    with pytest.raises(InvalidRequest, match="exists already"):
        cluster.do(CreateTopic(NewTopic("t", 2, 2), topic_id("other")))
    cluster.do(DeleteTopic("t", topic_id("t")))
    with pytest.raises(InvalidRequest, match="deleted by somebody since"):
        cluster.do(command)


def test_validation_alone_shows_the_placement_and_changes_nothing(cluster: Cluster) -> None:
    before = cluster.image
    answer = cluster.do(CreateTopic(NewTopic("t", 2, 2), topic_id("t"), validate_only=True))
    assert isinstance(answer, TopicPlaced)
    assert (answer.assignments, cluster.image) == ([[1, 2], [2, 3]], before)
    with pytest.raises(InvalidRequest, match=r"no\.such"):
        cluster.do(CreateTopic(NewTopic("t", configs={"no.such": "1"}), topic_id("t"), validate_only=True))


def test_names_of_the_brokers_own_topics_are_refused(cluster: Cluster) -> None:
    assert "two underscores" in refusal(cluster, NewTopic("__mine"))
    assert refusal(cluster, NewTopic("a/b"))


def test_a_topic_grows_as_if_it_had_been_made_so(cluster: Cluster) -> None:
    whole = cluster.create("whole", 9, 3)
    cluster.do(DeleteTopic("whole", topic_id("whole")))
    cluster.create("t", 4, 3)
    answer = cluster.do(AddPartitions("t", 4, 9))
    assert isinstance(answer, TopicPlaced)
    assert answer.assignments == whole
    assert cluster.do(AddPartitions("t", 4, 9)) == answer, "a repetition"
    for have, total in ((9, 9), (9, 4), (4, 10_001)):
        with pytest.raises(InvalidRequest):
            cluster.do(AddPartitions("t", have, total))
    with pytest.raises(UnknownTopic):
        cluster.do(AddPartitions("nobody", 1, 2))


def test_new_partitions_go_where_they_are_assigned(cluster: Cluster) -> None:
    cluster.create("t", 1, 2)
    grow = AddPartitions("t", 1, 3, {1: [5, 4], 2: [4, 3]})
    answer = cluster.do(grow)
    assert isinstance(answer, TopicPlaced)
    assert answer.assignments[1:] == [[5, 4], [4, 3]]
    assert cluster.do(grow) == answer, "a repetition"
    wrong: list[dict[int, list[int]]] = [{}, {2: [1, 2]}, {3: [1]}, {3: [1, 2, 3]}, {3: [1, 9]}, {3: [1, 2], 4: [1, 2]}]
    for assignments in wrong:
        with pytest.raises(InvalidRequest):
            cluster.do(AddPartitions("t", 3, 4, assignments))


def test_a_deleted_topic_is_remembered_until_every_replica_has_removed_it(cluster: Cluster) -> None:
    cluster.create("t", 2, 2)
    name = TopicId(topic_id("t"))
    cluster.do(DeleteTopic("t"))
    assert dict(cluster.image.deleted_topics) == {name: (1, 2, 3)}
    for node in (1, 1, 3):
        cluster.do(ReportRemoved(node, [name]))
    assert dict(cluster.image.deleted_topics) == {name: (2,)}
    cluster.do(RemoveBroker(2))
    assert not cluster.image.deleted_topics


def test_deleting_what_the_asker_saw_may_be_repeated_and_hits_nothing_else(cluster: Cluster) -> None:
    cluster.create("t")
    command = DeleteTopic("t", topic_id("t"))
    cluster.do(command)
    cluster.do(CreateTopic(NewTopic("t"), topic_id("second")))
    assert isinstance(cluster.do(command), Done)
    assert "t" in cluster.image.topics
    with pytest.raises(UnknownTopic):
        cluster.do(DeleteTopic("nobody"))
    kept = Cluster(config=BrokerConfig(delete_topic_enable=False))
    with pytest.raises(InvalidRequest, match=r"delete\.topic\.enable"):
        kept.do(DeleteTopic("t"))


def test_settings_of_a_topic_are_checked_and_repeated_without_effect(cluster: Cluster) -> None:
    cluster.create("t")
    command = AlterTopicConfigs("t", {"retention.ms": "5000"})
    assert decide(cluster.image, AlterTopicConfigs("t", command.changes, validate_only=True), CONFIG).records == ()
    cluster.do(command)
    assert dict(cluster.image.topics["t"].configs) == {"retention.ms": "5000"}
    assert decide(cluster.image, command, CONFIG).records == ()
    cluster.do(AlterTopicConfigs("t", {"retention.ms": None}))
    assert not cluster.image.topics["t"].configs
    for changes in ({"no.such": "1"}, {"retention.ms": "soon"}, {"commit.protocol": "isr"}, {"commit.order": "key"}):
        with pytest.raises(InvalidRequest):
            cluster.do(AlterTopicConfigs("t", changes))


# -- bounds --------------------------------------------------------------------------------------------------------


def bounded(**settings: int) -> Cluster:
    made = Cluster(
        config=BrokerConfig.model_validate({name.replace("_", "."): value for name, value in settings.items()})
    )
    made.start(1, 2, 3)
    return made


def test_so_many_topics_and_no_more() -> None:
    cluster = bounded(topics_max=2)
    cluster.create("t")
    cluster.create("u")
    assert "no more than 2 (topics.max)" in refusal(cluster, NewTopic("v"))


def test_a_topic_has_so_many_partitions_and_gets_so_many_at_once() -> None:
    cluster = bounded(topic_partitions_max=5, request_partitions_max=3)
    assert "1 to 5 partitions (topic.partitions.max), not 6" in refusal(cluster, NewTopic("t", 6))
    assert "at most 3 partitions (request.partitions.max), not 4" in refusal(cluster, NewTopic("t", 4))
    assert "request.partitions.max" in refusal(cluster, NewTopic("t", assignments={n: [1] for n in range(4)}))
    cluster.create("t", 3)
    with pytest.raises(InvalidRequest, match=r"topic\.partitions\.max"):
        cluster.do(AddPartitions("t", 3, 6))
    cluster.do(AddPartitions("t", 3, 5))


def test_a_broker_holds_so_many_partitions_and_no_more() -> None:
    cluster = bounded(broker_partitions_max=4)
    cluster.create("t", 4, 2)  # of eight replicas 1 and 2 have three each
    message = refusal(cluster, NewTopic("u", assignments={0: [1], 1: [1]}))
    assert "broker 1 holds 3 partitions, and 2 more would be over the limit of 4 (broker.partitions.max)" in message
    with pytest.raises(InvalidRequest, match=r"broker\.partitions\.max"):
        cluster.do(AddPartitions("t", 4, 8))
    cluster.do(AddPartitions("t", 4, 5))


def test_no_topic_gets_the_id_of_another_or_of_one_that_is_being_removed(cluster: Cluster) -> None:
    cluster.create("one")
    taken = topic_id("one")
    for command in (CreateTopic(NewTopic("two"), taken), CreateOffsetsTopic(taken)):
        with pytest.raises(InvalidRequest, match="has the id of topic one"):
            cluster.do(command)
    cluster.do(DeleteTopic("one"))
    for command, words in (
        (CreateTopic(NewTopic("two"), taken), "deleted by somebody since"),
        (CreateOffsetsTopic(taken), "has the id of one that was deleted"),
    ):
        with pytest.raises(InvalidRequest, match=words):
            cluster.do(command)
