"""The request types of Kafka's protocol that this listener answers, and their versions.

A client asks for this table first (ApiVersions); a key that is absent means that the broker lacks the feature.
Transactions (keys 24 to 28), share groups and telemetry are left out on purpose. Produce is offered from version 0 but
refused below 3, because librdkafka before 2.10 does not compress records for a broker that does not offer version 0.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple


class Key(enum.IntEnum):
    """Kafka's API keys."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    DESCRIBE_ACLS = 29
    CREATE_ACLS = 30
    DELETE_ACLS = 31
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    ALTER_REPLICA_LOG_DIRS = 34
    DESCRIBE_LOG_DIRS = 35
    SASL_AUTHENTICATE = 36
    CREATE_PARTITIONS = 37
    DELETE_GROUPS = 42
    ELECT_LEADERS = 43
    INCREMENTAL_ALTER_CONFIGS = 44
    ALTER_PARTITION_REASSIGNMENTS = 45
    LIST_PARTITION_REASSIGNMENTS = 46
    OFFSET_DELETE = 47
    DESCRIBE_CLIENT_QUOTAS = 48
    ALTER_CLIENT_QUOTAS = 49
    DESCRIBE_USER_SCRAM_CREDENTIALS = 50
    ALTER_USER_SCRAM_CREDENTIALS = 51
    DESCRIBE_QUORUM = 55
    DESCRIBE_CLUSTER = 60
    DESCRIBE_PRODUCERS = 61
    CONSUMER_GROUP_HEARTBEAT = 68
    CONSUMER_GROUP_DESCRIBE = 69
    LIST_CONFIG_RESOURCES = 74
    DESCRIBE_TOPIC_PARTITIONS = 75

    @property
    def label(self) -> str:
        """Kafka's name of the request type, such as `InitProducerId`."""
        return self.name.title().replace("_", "")


NEVER: Final = 1 << 15


class Api(NamedTuple):
    """A request type: its oldest and newest supported version, and the first flexible one (with tagged fields)."""

    key: Key
    oldest: int
    newest: int
    flexible_from: int


APIS: Final[Mapping[int, Api]] = MappingProxyType(
    {
        api.key: api
        for api in (
            Api(Key.PRODUCE, 0, 13, 9),
            Api(Key.FETCH, 4, 17, 12),
            Api(Key.LIST_OFFSETS, 1, 11, 6),
            Api(Key.METADATA, 0, 13, 9),
            Api(Key.OFFSET_COMMIT, 2, 10, 8),
            Api(Key.OFFSET_FETCH, 1, 10, 6),
            Api(Key.FIND_COORDINATOR, 0, 6, 3),
            Api(Key.JOIN_GROUP, 0, 9, 6),
            Api(Key.HEARTBEAT, 0, 4, 4),
            Api(Key.LEAVE_GROUP, 0, 5, 4),
            Api(Key.SYNC_GROUP, 0, 5, 4),
            Api(Key.DESCRIBE_GROUPS, 0, 6, 5),
            Api(Key.LIST_GROUPS, 0, 5, 3),
            Api(Key.SASL_HANDSHAKE, 0, 1, NEVER),
            Api(Key.API_VERSIONS, 0, 4, 3),
            Api(Key.INIT_PRODUCER_ID, 0, 4, 2),
            Api(Key.OFFSET_FOR_LEADER_EPOCH, 2, 4, 4),
            Api(Key.SASL_AUTHENTICATE, 0, 2, 2),
            Api(Key.DELETE_GROUPS, 0, 2, 2),
            Api(Key.OFFSET_DELETE, 0, 0, NEVER),
            Api(Key.DESCRIBE_CLUSTER, 0, 2, 0),
            Api(Key.CONSUMER_GROUP_HEARTBEAT, 0, 1, 0),
            Api(Key.CONSUMER_GROUP_DESCRIBE, 0, 1, 0),
            Api(Key.CREATE_TOPICS, 2, 7, 5),
            Api(Key.DELETE_TOPICS, 1, 6, 4),
            Api(Key.DELETE_RECORDS, 0, 2, 2),
            Api(Key.DESCRIBE_ACLS, 1, 3, 2),
            Api(Key.CREATE_ACLS, 1, 3, 2),
            Api(Key.DELETE_ACLS, 1, 3, 2),
            Api(Key.DESCRIBE_CONFIGS, 1, 4, 4),
            Api(Key.ALTER_CONFIGS, 0, 2, 2),
            Api(Key.ALTER_REPLICA_LOG_DIRS, 1, 2, 2),
            Api(Key.DESCRIBE_LOG_DIRS, 1, 5, 2),
            Api(Key.CREATE_PARTITIONS, 0, 3, 2),
            Api(Key.ELECT_LEADERS, 0, 2, 2),
            Api(Key.INCREMENTAL_ALTER_CONFIGS, 0, 1, 1),
            Api(Key.ALTER_PARTITION_REASSIGNMENTS, 0, 1, 0),
            Api(Key.LIST_PARTITION_REASSIGNMENTS, 0, 0, 0),
            Api(Key.DESCRIBE_CLIENT_QUOTAS, 0, 1, 1),
            Api(Key.ALTER_CLIENT_QUOTAS, 0, 1, 1),
            Api(Key.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, 0, 0),
            Api(Key.ALTER_USER_SCRAM_CREDENTIALS, 0, 0, 0),
            Api(Key.DESCRIBE_QUORUM, 0, 2, 0),
            Api(Key.DESCRIBE_PRODUCERS, 0, 0, 0),
            Api(Key.LIST_CONFIG_RESOURCES, 0, 1, 0),
            Api(Key.DESCRIBE_TOPIC_PARTITIONS, 0, 0, 0),
        )
    }
)
BEFORE_LOGIN: Final = frozenset({Key.API_VERSIONS, Key.SASL_HANDSHAKE, Key.SASL_AUTHENTICATE})
"""The only request types that a client may send before it has logged in, if the listener requires a login."""
