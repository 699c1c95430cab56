"""The one place where an error becomes a code of Kafka's protocol.

The code of each error stands beside it in `model/errors.py`, by the rule at the top of that file: what is definite has
a code after which clients know that nothing was appended, what is indefinite is REQUEST_TIMED_OUT. Two things are added
here: the right that is missing is told by the kind of its resource, and what nobody foresaw is indefinite.
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


def code_of(error: TidelogError, resource_type: str = "Topic") -> KafkaCode:
    """Returns what a client is told of an error about a resource of this type."""
    if type(error) is NotAuthorized:
        return _RIGHTS[resource_type]
    return UNFORESEEN if error.kafka is None else error.kafka
