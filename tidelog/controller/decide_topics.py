"""Decisions about topics: creation, placement of replicas, partitions, settings and deletion."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain

from tidelog.config.schema import BrokerConfig
from tidelog.config.topics import is_fixed, new_topic_overrides, refuse_compaction, topic_config
from tidelog.controller import commands
from tidelog.controller.apply import apply_all
from tidelog.controller.decision import Decision
from tidelog.controller.leadership import under_rules
from tidelog.controller.protocols import rules_of
from tidelog.controller.records import (
    ConfigsAltered,
    MetadataRecord,
    PartitionsAdded,
    TopicCreated,
    TopicDeleted,
    TopicRemoved,
    check_setting_levels,
)
from tidelog.model.cluster import NO_LEADER, BrokerInfo, ClusterImage, Topic
from tidelog.model.errors import InvalidRequest, LeaderNotAvailable, TopicExists, UnknownTopic
from tidelog.model.ids import NodeId
from tidelog.model.names import check_topic_name, is_internal
from tidelog.placement.striped import UsableBroker, arrange, assigned_replicas, least_leading

FIXED_INSIDE = ("cleanup.policy", "unclean.leader.election.enable")
"""The settings that internal topics do not let users change: other values would lose the brokers' own data."""


def topic_named(image: ClusterImage, name: str) -> Topic:
    """Returns the topic with this name. Raises `UnknownTopic`."""
    topic = image.topics.get(name)
    if topic is None:
        raise UnknownTopic(f"there is no topic {name!r}")
    return topic


def create_topic(image: ClusterImage, command: commands.CreateTopic, config: BrokerConfig) -> Decision:
    """Creates a topic. Raises `InvalidRequest`: an invalid or used name, an invalid setting, counts out of range,
    replicas that do not exist. Raises `UnsupportedLevel`: a setting that is newer than the cluster's feature level;
    `LeaderNotAvailable`: too few brokers are live yet."""
    request = command.topic
    existing = image.topics.get(request.name)
    # The command has come before, and its answer was lost: it gets the same answer.
    if existing is not None and existing.topic_id == command.topic_id:
        return Decision(answer=lambda after: placed(after, existing))
    # The command has been carried out, and the topic was deleted since: carried out again it would undo that.
    if command.topic_id in image.deleted_topics:
        raise InvalidRequest(f"topic {request.name} was created, and deleted by somebody since")
    check_new_id(image, command.topic_id)
    _check_new_topic(image, request, config)
    configs = new_topic_overrides(config, request.configs)
    check_setting_levels(configs, image.level)
    assignments = _assignments(image, request, config)
    check_room(image, Counter(node for replicas in assignments for node in replicas), config)
    record = TopicCreated(request.name, command.topic_id, assignments, configs)
    # The record is tried on the image, by the very rules that will apply it: nothing is decided twice.
    preview = apply_all(image, (record,), image.position)
    check_electable(preview.topics[request.name])
    return _unless_validating(command, record, preview)


def check_new_id(image: ClusterImage, topic_id: str) -> None:
    """Raises `InvalidRequest` if the id belongs to another topic, deleted ones included: both would have the same log
    directory."""
    existing = image.topic_by_id(topic_id)
    # Brokers may still hold logs under the id, and would take them for the new topic's.
    if topic_id in image.deleted_topics:
        raise InvalidRequest(f"a new topic has the id of one that was deleted, {topic_id}; ids have to be drawn anew")
    if existing is not None:
        raise InvalidRequest(f"a new topic has the id of topic {existing.name}, {topic_id}; ids have to be drawn anew")


def _unless_validating(command: commands.CreateTopic, record: MetadataRecord, preview: ClusterImage) -> Decision:
    name = command.topic.name
    if command.validate_only:
        return Decision(answer=lambda after: placed(after, preview.topics[name]))
    return Decision((record,), lambda after: placed(after, after.topics[name]))


def placed(image: ClusterImage, topic: Topic) -> commands.CommandAnswer:
    """Returns the answer with the replicas of an existing topic."""
    return commands.TopicPlaced(image.position, topic.topic_id, [list(info.target) for info in topic.partitions])


def _check_new_topic(image: ClusterImage, request: commands.NewTopic, config: BrokerConfig) -> None:
    check_topic_name(request.name)
    if is_internal(request.name):
        raise InvalidRequest(f"topic names that begin with two underscores are the brokers' own: {request.name}")
    if request.name in image.topics:
        raise TopicExists(f"topic {request.name} exists already")
    if len(image.topics) >= config.topics_max:
        raise InvalidRequest(
            f"there are {len(image.topics)} topics, and may be no more than {config.topics_max} (topics.max); delete "
            "some first"
        )


# -- where replicas go ---------------------------------------------------------------------------------------------


def _assignments(image: ClusterImage, request: commands.NewTopic, config: BrokerConfig) -> list[list[int]]:
    if request.assignments is not None:
        _check_partitions(len(request.assignments), 0, config)
        return _check_assignments(image, request.assignments, range(len(request.assignments)))
    partitions = config.num_partitions if request.partitions is None else request.partitions
    _check_partitions(partitions, 0, config)
    factor = request.replication_factor
    if factor is None:
        factor = config.replication_factor_for(len(image.brokers))
    return assign(image, range(partitions), factor, None)


def assign(image: ClusterImage, partitions: range, replication_factor: int, first: Topic | None) -> list[list[int]]:
    """Returns replicas by the placement rule over live brokers, starting at the broker that leads the fewest
    partitions, or as in the topic `first`.

    Fenced brokers are used only if there are too few live brokers, and are never the preferred leader.
    """
    # A fenced broker never comes first: the preferred leader of a new partition has to be able to lead.
    live, fenced = _usable(image.live_brokers), [broker for broker in image.brokers.values() if broker.is_fenced]
    if not live:
        raise LeaderNotAvailable("no broker is live, so nobody could lead the topic; start a broker")
    if not 1 <= replication_factor <= len(image.brokers):
        raise InvalidRequest(
            f"replication factor {replication_factor} needs as many brokers, and the cluster has {len(image.brokers)}; "
            "ask for fewer replicas, or add brokers first"
        )
    on_live = min(replication_factor, len(live))
    assignments = assigned_replicas(live, partitions, on_live, start=_start(image, live, first))
    spare = [broker.node_id for broker in arrange(_usable(fenced))] if replication_factor > on_live else []
    return [
        # In turns: else one fenced broker would get a replica of every partition.
        replicas + _rotated(spare, partition)[: replication_factor - on_live]
        for partition, replicas in zip(partitions, assignments, strict=True)
    ]


def _usable(brokers: Sequence[BrokerInfo]) -> list[UsableBroker]:
    return [UsableBroker(broker.node_id, broker.rack) for broker in brokers]


def _rotated(nodes: list[NodeId] | list[int], by: int) -> list[int]:
    turn = by % len(nodes) if nodes else 0
    return [*nodes[turn:], *nodes[:turn]]


def _start(image: ClusterImage, live: list[UsableBroker], first: Topic | None) -> int:
    brokers = arrange(live)
    nodes = [broker.node_id for broker in brokers]
    # A topic that grows goes on by the rule it began with, so its partitions lie as if they had been made at once.
    if first is not None and first.partitions[0].replicas[0] in nodes:
        return nodes.index(first.partitions[0].replicas[0])
    topics = [topic for topic in image.topics.values() if not topic.is_internal]
    return least_leading(brokers, [info.leader for topic in topics for info in topic.partitions])


def _check_partitions(partitions: int, have: int, config: BrokerConfig) -> None:
    if not 1 <= partitions <= config.topic_partitions_max:
        raise InvalidRequest(
            f"a topic has 1 to {config.topic_partitions_max} partitions (topic.partitions.max), not {partitions}"
        )
    if partitions - have > config.request_partitions_max:
        raise InvalidRequest(
            f"one request makes at most {config.request_partitions_max} partitions (request.partitions.max), not "
            f"{partitions - have}; let the topic grow in several"
        )


def check_room(image: ClusterImage, more: Mapping[int, int], config: BrokerConfig) -> None:
    """Raises `InvalidRequest` if a broker would exceed its limit of replicas. `more` is the number of additional
    replicas by node id.

    No broker holds more replicas than there are partitions, so in a small cluster replicas are not counted.
    """
    if (
        sum(len(topic.partitions) for topic in image.topics.values()) + max(more.values())
        <= config.broker_partitions_max
    ):
        return
    held = Counter(chain.from_iterable(info.replicas for topic in image.topics.values() for info in topic.partitions))
    for node in sorted(more):
        has = held[NodeId(node)]
        if has + more[node] > config.broker_partitions_max:
            raise InvalidRequest(
                f"broker {node} holds {has} partitions, and {more[node]} more would be over the limit of "
                f"{config.broker_partitions_max} (broker.partitions.max); delete topics, add brokers, or ask for fewer "
                "replicas"
            )


def _check_assignments(
    image: ClusterImage, assignments: Mapping[int, Sequence[int]], partitions: range, factor: int | None = None
) -> list[list[int]]:
    if sorted(assignments) != list(partitions):
        raise InvalidRequest(
            f"replica assignments must name partitions {partitions[0]} to {partitions[-1]} without a gap"
        )
    result = [list(assignments[partition]) for partition in partitions]
    for partition, replicas in zip(partitions, result, strict=True):
        unknown = [node for node in replicas if node not in image.brokers]
        if not replicas or unknown or len(dict.fromkeys(replicas)) != len(replicas):
            raise InvalidRequest(f"partition {partition}: replicas must be distinct, known brokers, not {replicas}")
        if not any(image.is_live(node) for node in replicas):
            raise InvalidRequest(f"partition {partition}: none of its replicas {replicas} is live; name one that is")
        if len(replicas) != (factor or len(result[0])):
            raise InvalidRequest("all partitions of a topic must have the same number of replicas")
    return result


def check_electable(topic: Topic) -> None:
    """Raises `LeaderNotAvailable` if a new partition could have no leader, because too few of its replicas are live."""
    for info in topic.partitions:
        if info.leader == NO_LEADER:
            needed = rules_of(topic).live_needed(info)
            raise LeaderNotAvailable(
                f"partition {info.partition} commits by {topic.commit_protocol} and needs {needed} live replicas to "
                f"begin, and of {list(info.replicas)} only {list(info.isr)} are live; start the other brokers, or ask "
                "for fewer replicas"
            )


# -- changing and deleting -----------------------------------------------------------------------------------------


def add_partitions(image: ClusterImage, command: commands.AddPartitions, config: BrokerConfig) -> Decision:
    """Adds partitions to a topic. Raises `UnknownTopic` or `InvalidRequest`; `LeaderNotAvailable` while too few brokers
    are live."""
    topic = topic_named(image, command.name)
    if topic.is_internal:
        raise InvalidRequest(f"topic {command.name} cannot grow: what is in its partitions would not be found any more")
    have = len(topic.partitions)
    _check_partitions(command.total, have, config)
    # The topic has grown from what the asker saw to what it asks for: a repetition.
    if command.have < command.total == have:
        return Decision(answer=lambda after: placed(after, topic))
    if command.total <= have:
        raise InvalidRequest(f"topic {command.name} has {have} partitions, and can only get more")
    added, factor = range(have, command.total), len(topic.partitions[0].target)
    if command.assignments is None:
        assignments = assign(image, added, factor, topic)
    else:
        assignments = _check_assignments(image, command.assignments, added, factor)
    check_room(image, Counter(node for replicas in assignments for node in replicas), config)
    record = PartitionsAdded(topic.topic_id, assignments)
    grown = apply_all(image, (record,), image.position).topics[command.name]
    # Only the new partitions: an old one without a leader is no reason to refuse more.
    check_electable(replace(grown, partitions=grown.partitions[have:]))
    return Decision((record,), lambda after: placed(after, after.topics[command.name]))


def delete_topic(image: ClusterImage, command: commands.DeleteTopic, config: BrokerConfig) -> Decision:
    """Deletes a topic. Raises `UnknownTopic`, or `InvalidRequest` if deletion is turned off."""
    if not config.delete_topic_enable:
        raise InvalidRequest("topics cannot be deleted here: delete.topic.enable is false")
    if is_internal(command.name):
        raise InvalidRequest(f"topic {command.name} is the brokers' own and cannot be deleted; groups can")
    existing = image.topics.get(command.name)
    if command.topic_id and (existing is None or existing.topic_id != command.topic_id):
        return Decision()  # the asker saw a topic that is gone by now: a repetition, or somebody was faster
    return Decision((TopicDeleted(topic_named(image, command.name).topic_id),))


def alter_configs(image: ClusterImage, command: commands.AlterTopicConfigs, config: BrokerConfig) -> Decision:
    """Changes a topic's configuration. Raises `UnknownTopic`, `InvalidRequest` or `UnsupportedLevel`."""
    topic = topic_named(image, command.name)
    _check_changes(topic, command.changes)
    check_setting_levels(command.changes, image.level)
    merged: dict[str, str | None] = {**topic.configs, **command.changes}
    overrides = {key: value for key, value in merged.items() if value is not None}
    topic_config(config, overrides)
    if command.validate_only or overrides == topic.configs:
        return Decision()
    altered = replace(topic, configs=overrides)
    return Decision(
        # Setting and in-sync sets change in one batch: a lower minimum with the set of before would commit what the ELR
        # lacks.
        (ConfigsAltered(topic.topic_id, dict(command.changes)), *under_rules(image, altered, config)),
    )


def _check_changes(topic: Topic, changes: Mapping[str, str | None]) -> None:
    fixed = [key for key in changes if is_fixed(key) or (topic.is_internal and key in FIXED_INSIDE)]
    if fixed:
        raise InvalidRequest(f"{fixed[0]} is fixed when a topic is created")
    refuse_compaction({key: value for key, value in changes.items() if value is not None})


def report_removed(image: ClusterImage, command: commands.ReportRemoved) -> Decision:
    """Records that a broker holds no data of deleted topics any more; a deleted topic that no broker holds is removed
    from the metadata."""
    # Brokers repeat a report until it is in the metadata, so only what is still noted makes a record.
    records = (
        TopicRemoved(topic_id, command.node_id)
        for topic_id, holders in image.deleted_topics.items()
        if topic_id in command.topic_ids and command.node_id in holders
    )
    return Decision(tuple(records))
