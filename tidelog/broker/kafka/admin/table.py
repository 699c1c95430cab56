"""Table of the admin request types and their handlers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

from tidelog.broker.kafka.admin.acls import create_acls, delete_acls, describe_acls
from tidelog.broker.kafka.admin.altered_configs import alter_configs, incremental_alter_configs
from tidelog.broker.kafka.admin.config_resources import list_config_resources
from tidelog.broker.kafka.admin.deletion import delete_records
from tidelog.broker.kafka.admin.described_configs import describe_configs
from tidelog.broker.kafka.admin.desk import Desk, Tree
from tidelog.broker.kafka.admin.elections import elect_leaders
from tidelog.broker.kafka.admin.log_dirs import alter_replica_log_dirs, describe_log_dirs
from tidelog.broker.kafka.admin.producers import describe_producers
from tidelog.broker.kafka.admin.quorum import describe_quorum
from tidelog.broker.kafka.admin.quotas import alter_client_quotas, describe_client_quotas
from tidelog.broker.kafka.admin.reassignments import alter_partition_reassignments, list_partition_reassignments
from tidelog.broker.kafka.admin.scram import alter_user_scram_credentials, describe_user_scram_credentials
from tidelog.broker.kafka.admin.topic_partitions import describe_topic_partitions
from tidelog.broker.kafka.admin.topics import create_partitions, create_topics, delete_topics
from tidelog.broker.kafka.apis import Key
from tidelog.broker.kafka.call import Call
from tidelog.broker.kafka.listener_parts import Parts
from tidelog.model.access import Caller

CALLS: Final[Mapping[Key, Callable[[Desk, Any], Awaitable[Tree]]]] = MappingProxyType(
    {
        Key.CREATE_TOPICS: create_topics,
        Key.DELETE_TOPICS: delete_topics,
        Key.CREATE_PARTITIONS: create_partitions,
        Key.DESCRIBE_TOPIC_PARTITIONS: describe_topic_partitions,
        Key.DESCRIBE_CONFIGS: describe_configs,
        Key.INCREMENTAL_ALTER_CONFIGS: incremental_alter_configs,
        Key.ALTER_CONFIGS: alter_configs,
        Key.LIST_CONFIG_RESOURCES: list_config_resources,
        Key.DESCRIBE_LOG_DIRS: describe_log_dirs,
        Key.ALTER_REPLICA_LOG_DIRS: alter_replica_log_dirs,
        Key.DESCRIBE_QUORUM: describe_quorum,
        Key.DESCRIBE_PRODUCERS: describe_producers,
        Key.DELETE_RECORDS: delete_records,
        Key.ELECT_LEADERS: elect_leaders,
        Key.ALTER_PARTITION_REASSIGNMENTS: alter_partition_reassignments,
        Key.LIST_PARTITION_REASSIGNMENTS: list_partition_reassignments,
        Key.DESCRIBE_ACLS: describe_acls,
        Key.CREATE_ACLS: create_acls,
        Key.DELETE_ACLS: delete_acls,
        Key.DESCRIBE_USER_SCRAM_CREDENTIALS: describe_user_scram_credentials,
        Key.ALTER_USER_SCRAM_CREDENTIALS: alter_user_scram_credentials,
        Key.DESCRIBE_CLIENT_QUOTAS: describe_client_quotas,
        Key.ALTER_CLIENT_QUOTAS: alter_client_quotas,
    }
)


async def administer(parts: Parts, call: Call, request: Any, caller: Caller) -> Tree:
    """Returns the answer to an admin request, as nested dicts with the field names of the library kio."""
    desk = Desk(parts, call, caller)
    tree = await CALLS[call.api.key](desk, request)
    return {"throttle_time": desk.throttle_ms, **tree}
