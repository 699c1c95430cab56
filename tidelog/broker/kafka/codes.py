"""Mapping of errors to Kafka's error codes.

Each error class has its code in `model/errors.py`: a definite error has a code by which clients know that nothing was
appended; an indefinite one is REQUEST_TIMED_OUT. Three rules are added here. A missing right is reported by the type of
its resource. An unforeseen error counts as indefinite. Fetch uses fewer codes, since Java's consumer throws
IllegalStateException to its application for a code that it does not expect there.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

from tidelog.model.errors import InvalidRequest, NotAuthorized, TidelogError
from tidelog.model.kafka_codes import KafkaCode
from tidelog.model.names import check_topic_name

NONE: Final = 0
UNFORESEEN: Final = KafkaCode.REQUEST_TIMED_OUT
_RIGHTS: Final = MappingProxyType(
    {
        "Topic": KafkaCode.TOPIC_AUTHORIZATION_FAILED,
        "Group": KafkaCode.GROUP_AUTHORIZATION_FAILED,
        "Cluster": KafkaCode.CLUSTER_AUTHORIZATION_FAILED,
        "User": KafkaCode.CLUSTER_AUTHORIZATION_FAILED,
    }
)
_PASSING: Final = frozenset(
    {
        KafkaCode.LEADER_NOT_AVAILABLE,
        KafkaCode.NOT_ENOUGH_REPLICAS,
        KafkaCode.REQUEST_TIMED_OUT,
        KafkaCode.THROTTLING_QUOTA_EXCEEDED,
    }
)
"""Transient errors for which Java's consumer would fail if it got them in an answer to Fetch."""


def code_of(error: TidelogError, resource_type: str = "Topic") -> KafkaCode:
    """Returns Kafka's code for an error about a resource of this type."""
    if type(error) is NotAuthorized:
        return _RIGHTS[resource_type]
    return UNFORESEEN if error.kafka is None else error.kafka


def fetch_code_of(error: TidelogError) -> KafkaCode:
    """Returns Kafka's code for an error about a partition in a Fetch. A transient error becomes NOT_LEADER_OR_FOLLOWER,
    after which all clients refresh their metadata and fetch again."""
    code = code_of(error)
    return KafkaCode.NOT_LEADER_OR_FOLLOWER if code in _PASSING else code


def epoch_code(client_epoch: int, leader_epoch: int) -> int:
    """Returns the error code for a client whose metadata have this leader epoch; 0 if it is the current one, or if the
    client names none (-1)."""
    if client_epoch < 0 or client_epoch == leader_epoch:
        return 0
    return KafkaCode.FENCED_LEADER_EPOCH if client_epoch < leader_epoch else KafkaCode.UNKNOWN_LEADER_EPOCH


def unknown_topic_code(name: str | None) -> KafkaCode:
    """Returns the error code for a topic that does not exist. `name` is the name that the client gave, None if it gave
    an id."""
    if name is None:
        return KafkaCode.UNKNOWN_TOPIC_ID
    try:
        check_topic_name(name)
    except InvalidRequest:
        return KafkaCode.INVALID_TOPIC_EXCEPTION
    return KafkaCode.UNKNOWN_TOPIC_OR_PARTITION
