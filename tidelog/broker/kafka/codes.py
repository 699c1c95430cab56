"""The one place where an error becomes a code of Kafka's protocol.

The code of each error stands beside it in `model/errors.py`, by the rule at the top of that file: what is definite has
a code after which clients know that nothing was appended, what is indefinite is REQUEST_TIMED_OUT. Three things are
added here: the right that is missing is told by the kind of its resource, what nobody foresaw is indefinite, and Fetch
has fewer codes. Java's consumer throws IllegalStateException to its program for a code that it does not expect there.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

from tidelog.model.errors import NotAuthorized, TidelogError
from tidelog.model.kafka_codes import KafkaCode

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
"""Answers to a Fetch after which Java's consumer would end, though what they tell of passes by itself."""


def code_of(error: TidelogError, resource_type: str = "Topic") -> KafkaCode:
    """Returns what a client is told of an error about a resource of this type."""
    if type(error) is NotAuthorized:
        return _RIGHTS[resource_type]
    return UNFORESEEN if error.kafka is None else error.kafka


def fetch_code_of(error: TidelogError) -> KafkaCode:
    """Returns what a client is told of an error about a partition that it fetches. What passes by itself is
    NOT_LEADER_OR_FOLLOWER, after which all clients look for the leader and ask again."""
    code = code_of(error)
    return KafkaCode.NOT_LEADER_OR_FOLLOWER if code in _PASSING else code
