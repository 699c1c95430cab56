"""The rights that a client's command takes, in the words of `model/access.py`.

They are those of the HTTP routes that make these commands, judged once more where they are decided. A command takes
*all* of its needs, and for a need it takes *any* of some rights: to create a topic, `Create` on the cluster or on the
topic's name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

from tidelog.controller.access_commands import RemoveTokens, StoreToken
from tidelog.controller.commands import AddPartitions, AlterTopicConfigs, ClientCommand, CreateTopic, DeleteTopic
from tidelog.controller.partition_commands import AcceptLoss, AlterReassignments, RegroupPartition
from tidelog.model.access import ANY_NAME, CLUSTER, Operation, Resource
from tidelog.model.cluster import ClusterImage
from tidelog.model.credentials import Token


class Right(NamedTuple):
    """The right to do something to a resource."""

    operation: Operation
    resource: Resource


Need = Sequence[Right]
"""Any of these will do."""
ALTER_CLUSTER: Final = Right(Operation.ALTER, CLUSTER)


def alter_cluster(_image: ClusterImage, _command: ClientCommand) -> Sequence[Need]:
    """Returns the need of what is about brokers, ACLs, users, levels or replicas."""
    return [[ALTER_CLUSTER]]


def alter_cluster_configs(_image: ClusterImage, _command: ClientCommand) -> Sequence[Need]:
    """Returns the need of quotas, which are settings of the cluster."""
    return [[Right(Operation.ALTER_CONFIGS, CLUSTER)]]


def create_topic(_image: ClusterImage, command: CreateTopic) -> Sequence[Need]:
    """Returns a need that whoever may create topics of any name has, or of this one."""
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
    """Returns the need of giving up what is lost: the topic's."""
    topic = image.topic_by_id(command.topic_id)
    return [[_alter_topic(None if topic is None else topic.name)]]


def reassign(image: ClusterImage, command: AlterReassignments) -> Sequence[Need]:
    """Returns what moves take; to call them off it is enough to be allowed to alter the topics."""
    # Moves and throttles burden brokers that other topics live on, too; so a right to the topic is not enough.
    if command.throttle is not None or any(move.replicas is not None for move in command.partitions):
        return [[ALTER_CLUSTER]]
    names: dict[str, str] = {topic.topic_id: topic.name for topic in image.topics.values()}
    topics = dict.fromkeys(names.get(move.topic_id) for move in command.partitions)
    return [[ALTER_CLUSTER, _alter_topic(name)] for name in topics]


def store_token(_image: ClusterImage, command: StoreToken) -> Sequence[Need]:
    """Returns the need of a token: a principal's tokens are its own things."""
    return [_manage(command.token)]


def remove_tokens(image: ClusterImage, command: RemoveTokens) -> Sequence[Need]:
    """Returns the needs of tokens; those that are gone already are nobody's."""
    return list(_of_tokens(image, command))


def _of_tokens(image: ClusterImage, command: RemoveTokens) -> Iterator[Need]:
    for token_id in command.token_ids:
        token = image.access.tokens.get(token_id)
        if token is not None:
            yield _manage(token)


def _manage(token: Token) -> Need:
    return [ALTER_CLUSTER, Right(Operation.ALTER, Resource("User", token.caller.name))]


def _alter_topic(name: str | None) -> Right:
    """Returns the right to alter a topic; what is not there, or not any more, is for those who may alter all."""
    return Right(Operation.ALTER, Resource("Topic", ANY_NAME if name is None else name))
