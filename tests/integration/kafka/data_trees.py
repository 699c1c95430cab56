"""A small request of each call that is not of administration, as a tree of kio's; topics have their ids where the
newest version takes ids."""

from __future__ import annotations

from typing import Any, Final
from uuid import UUID

from tests.integration.kafka.conftest import batch, fetch_tree
from tests.integration.kafka.groups.conftest import GROUP, consumer_tree, join_tree, member_tree
from tidelog.broker.kafka.apis import Key

_MEMBER: Final = {"member_id": "", "generation_id_or_member_epoch": -1, "group_instance_id": None}


def data_trees(topic_id: UUID) -> dict[Key, dict[str, Any]]:
    """Requests about topic `t`, which has this id, and about a group; the caller is no member of it."""
    partition = {"partition_index": 0, "committed_offset": 0, "committed_leader_epoch": -1, "committed_metadata": ""}
    offsets = {
        "group_id": GROUP,
        "member_id": None,
        "member_epoch": -1,
        "topics": [{"name": "t", "topic_id": topic_id, "partition_indexes": (0,)}],
    }
    return {
        Key.PRODUCE: {
            "transactional_id": None,
            "acks": -1,
            "timeout": 5_000,
            "topic_data": [
                {"name": "t", "topic_id": topic_id, "partition_data": [{"index": 0, "records": batch(b"a")}]}
            ],
        },
        Key.FETCH: fetch_tree((topic_id, 0, 0)),
        Key.LIST_OFFSETS: {
            "replica_id": -1,
            "isolation_level": 0,
            "topics": [{"name": "t", "partitions": [{"partition_index": 0, "timestamp": -1}]}],
            "timeout": 1_000,
        },
        Key.METADATA: {"topics": [{"topic_id": None, "name": "t"}], "include_topic_authorized_operations": False},
        Key.OFFSET_COMMIT: {
            "group_id": GROUP,
            **_MEMBER,
            "topics": [{"name": "t", "topic_id": topic_id, "partitions": [partition]}],
        },
        Key.OFFSET_FETCH: {"groups": [offsets], "require_stable": False},
        Key.FIND_COORDINATOR: {"key_type": 0, "coordinator_keys": (GROUP,)},
        Key.JOIN_GROUP: join_tree(),
        Key.HEARTBEAT: member_tree("m", 1),
        Key.LEAVE_GROUP: {
            "group_id": GROUP,
            "members": [{"member_id": "m", "group_instance_id": None, "reason": None}],
        },
        Key.SYNC_GROUP: member_tree("m", 1),
        Key.DESCRIBE_GROUPS: {"groups": (GROUP,), "include_authorized_operations": False},
        Key.LIST_GROUPS: {"states_filter": (), "types_filter": ()},
        Key.SASL_HANDSHAKE: {"mechanism": "GSSAPI"},
        Key.API_VERSIONS: {"client_software_name": "tests", "client_software_version": "1"},
        Key.INIT_PRODUCER_ID: {
            "transactional_id": None,
            "transaction_timeout": 0,
            "producer_id": -1,
            "producer_epoch": -1,
        },
        Key.OFFSET_FOR_LEADER_EPOCH: {
            "replica_id": -1,
            "topics": [{"topic": "t", "partitions": [{"partition": 0, "current_leader_epoch": -1, "leader_epoch": 0}]}],
        },
        Key.SASL_AUTHENTICATE: {"auth_bytes": b"n,,n=x,r=y"},
        Key.DELETE_GROUPS: {"groups_names": (GROUP,)},
        Key.OFFSET_DELETE: {"group_id": GROUP, "topics": [{"name": "t", "partitions": [{"partition_index": 0}]}]},
        Key.DESCRIBE_CLUSTER: {"include_cluster_authorized_operations": False, "include_fenced_brokers": False},
        Key.CONSUMER_GROUP_HEARTBEAT: consumer_tree("m", 0),
        Key.CONSUMER_GROUP_DESCRIBE: {"group_ids": (GROUP,), "include_authorized_operations": False},
    }
