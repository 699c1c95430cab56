"""The rights that a client's command needs, in the terms of `model/access.py`.

They are those of the HTTP routes from which these commands come, checked again where the commands are decided. A
command needs *all* entries of its list, and each entry is satisfied by *any* of its rights: to create a topic, `Create`
on the cluster or on the topic's name.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from tidelog.controller.access_commands import RemoveTokens, StoreToken
from tidelog.controller.commands import AddPartitions, AlterTopicConfigs, ClientCommand, CreateTopic, DeleteTopic
from tidelog.controller.partition_commands import AcceptLoss, AlterReassignments, RegroupPartition
from tidelog.model.access import ANY_NAME, CLUSTER, Operation, Resource
from tidelog.model.cluster import ClusterImage
from tidelog.model.credentials import Token


class Right(NamedTuple):
    """A right: an operation on a resource."""

    operation: Operation
    resource: Resource


Need = Sequence[Right]
"""Rights of which a caller must have at least one; a command may have several such needs."""
ALTER_CLUSTER: Final = Right(Operation.ALTER, CLUSTER)


def alter_cluster(_image: ClusterImage, _command: ClientCommand) -> Sequence[Need]:
    """Returns the rights for commands about brokers, ACLs, users, feature levels or replicas: `Alter` on the
    cluster."""
    return [[ALTER_CLUSTER]]


def alter_cluster_configs(_image: ClusterImage, _command: ClientCommand) -> Sequence[Need]:
    """Returns the rights for changing quotas: `AlterConfigs` on the cluster."""
    return [[Right(Operation.ALTER_CONFIGS, CLUSTER)]]


def create_topic(_image: ClusterImage, command: CreateTopic) -> Sequence[Need]:
    """Returns the rights for creating a topic: `Create` on the cluster, or on a topic of this name."""
    return [[Right(Operation.CREATE, CLUSTER), Right(Operation.CREATE, Resource("Topic", command.topic.name))]]


def _on_topic(operation: Operation) -> Callable[[ClusterImage, ClientCommand], Sequence[Need]]:
    def needs(_image: ClusterImage, command: ClientCommand) -> Sequence[Need]:
        assert isinstance(command, AddPartitions | DeleteTopic | AlterTopicConfigs)
        return [[Right(operation, Resource("Topic", command.name))]]

    return needs


alter_topic: Final = _on_topic(Operation.ALTER)
delete_topic: Final = _on_topic(Operation.DELETE)
alter_topic_configs: Final = _on_topic(Operation.ALTER_CONFIGS)


def give_up(image: ClusterImage, command: AcceptLoss | RegroupPartition) -> Sequence[Need]:
    """Returns the rights for giving up lost records of a partition: `Alter` on the topic."""
    topic = image.topic_by_id(command.topic_id)
    return [[_alter_topic(None if topic is None else topic.name)]]


def reassign(image: ClusterImage, command: AlterReassignments) -> Sequence[Need]:
    """Returns the rights for reassignments: `Alter` on the cluster; to cancel one, `Alter` on its topic is enough."""
    # Moves and throttles burden brokers that other topics live on, too; so a right to the topic is not enough.
    if command.throttle is not None or any(move.replicas is not None for move in command.partitions):
        return [[ALTER_CLUSTER]]
    names: dict[str, str] = {topic.topic_id: topic.name for topic in image.topics.values()}
    topics = dict.fromkeys(names.get(move.topic_id) for move in command.partitions)
    return [[ALTER_CLUSTER, _alter_topic(name)] for name in topics]


def store_token(_image: ClusterImage, command: StoreToken) -> Sequence[Need]:
    """Returns the rights for creating a token: `Alter` on the cluster, or on the user of the token."""
    return [_manage(command.token)]


def remove_tokens(image: ClusterImage, command: RemoveTokens) -> Sequence[Need]:
    """Returns the rights for removing tokens: `Alter` on the cluster, or on each token's user; tokens that do not exist
    need none."""
    tokens = map(image.access.tokens.get, command.token_ids)
    return [_manage(token) for token in tokens if token is not None]


def _manage(token: Token) -> Need:
    return [ALTER_CLUSTER, Right(Operation.ALTER, Resource("User", token.caller.name))]


def _alter_topic(name: str | None) -> Right:
    """Returns the right to alter a topic; for a topic that does not exist, the right to alter any topic."""
    return Right(Operation.ALTER, Resource("Topic", ANY_NAME if name is None else name))
