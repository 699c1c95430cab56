"""A small request of each call of administration, as a tree of kio's."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from tidelog.broker.kafka.apis import Key

_TIME: Final = {"timeout": 1_000}
_ACL_FILTER: Final = {
    "resource_type_filter": 1,
    "resource_name_filter": None,
    "pattern_type_filter": 1,
    "principal_filter": None,
    "host_filter": None,
    "operation": 1,
    "permission_type": 1,
}
ACL: Final = {
    "resource_type": 2,
    "resource_name": "t",
    "resource_pattern_type": 3,
    "principal": "User:alice",
    "host": "*",
    "operation": 3,
    "permission_type": 3,
}
NEW_TOPIC: Final = {"name": "new", "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}
TREES: Final[Mapping[Key, dict[str, Any]]] = MappingProxyType(
    {
        Key.CREATE_TOPICS: {"topics": [NEW_TOPIC], "validate_only": False, **_TIME},
        Key.DELETE_TOPICS: {"topics": [{"name": "t", "topic_id": None}], **_TIME},
        Key.CREATE_PARTITIONS: {
            "topics": [{"name": "t", "count": 5, "assignments": None}],
            "validate_only": False,
            **_TIME,
        },
        Key.DESCRIBE_TOPIC_PARTITIONS: {"topics": [{"name": "t"}], "response_partition_limit": 10, "cursor": None},
        Key.DESCRIBE_CONFIGS: {
            "resources": [
                {"resource_type": 2, "resource_name": "t", "configuration_keys": None},
                {"resource_type": 4, "resource_name": "1", "configuration_keys": None},
                {"resource_type": 8, "resource_name": "1", "configuration_keys": None},
            ],
            "include_synonyms": False,
            "include_documentation": False,
        },
        Key.INCREMENTAL_ALTER_CONFIGS: {
            "resources": [
                {
                    "resource_type": 2,
                    "resource_name": "t",
                    "configs": [{"name": "retention.ms", "config_operation": 0, "value": "5"}],
                },
                {"resource_type": 8, "resource_name": "1", "configs": []},
            ],
            "validate_only": False,
        },
        Key.ALTER_CONFIGS: {
            "resources": [
                {"resource_type": 2, "resource_name": "t", "configs": [{"name": "retention.ms", "value": "6"}]}
            ],
            "validate_only": False,
        },
        Key.LIST_CONFIG_RESOURCES: {"resource_types": ()},
        Key.DESCRIBE_LOG_DIRS: {"topics": None},
        Key.ALTER_REPLICA_LOG_DIRS: {"dirs": [{"path": "elsewhere", "topics": [{"name": "t", "partitions": (0,)}]}]},
        Key.DESCRIBE_QUORUM: {"topics": [{"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}]},
        Key.DESCRIBE_PRODUCERS: {"topics": [{"name": "t", "partition_indexes": (0,)}]},
        Key.DELETE_RECORDS: {
            "topics": [{"name": "t", "partitions": [{"partition_index": 0, "offset": 0}]}],
            **_TIME,
        },
        Key.ELECT_LEADERS: {"election_type": 0, "topic_partitions": [{"topic": "t", "partitions": (0,)}], **_TIME},
        Key.ALTER_PARTITION_REASSIGNMENTS: {
            "allow_replication_factor_change": True,
            "topics": [{"name": "t", "partitions": [{"partition_index": 0, "replicas": (1,)}]}],
            **_TIME,
        },
        Key.LIST_PARTITION_REASSIGNMENTS: {"topics": [{"name": "t", "partition_indexes": (0,)}], **_TIME},
        Key.DESCRIBE_ACLS: _ACL_FILTER,
        Key.CREATE_ACLS: {"creations": [ACL]},
        Key.DELETE_ACLS: {"filters": [_ACL_FILTER]},
        Key.DESCRIBE_USER_SCRAM_CREDENTIALS: {"users": None},
        Key.ALTER_USER_SCRAM_CREDENTIALS: {
            "deletions": [],
            "upsertions": [
                {"name": "alice", "mechanism": 1, "iterations": 4096, "salt": b"salt", "salted_password": bytes(32)}
            ],
        },
        Key.DESCRIBE_CLIENT_QUOTAS: {
            "components": [{"entity_type": "user", "match_type": 0, "match": "alice"}],
            "strict": False,
        },
        Key.ALTER_CLIENT_QUOTAS: {
            "entries": [
                {
                    "entity": [{"entity_type": "user", "entity_name": "alice"}],
                    "ops": [{"key": "request_rate", "value": 5.0, "remove": False}],
                }
            ],
            "validate_only": False,
        },
    }
)
