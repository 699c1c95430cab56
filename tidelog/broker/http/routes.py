"""The table of all routes, from which requests are served, `/openapi.json` is generated and access is checked.

REST v3 is mounted twice, under `/v3` as in Confluent's REST Proxy and under `/kafka/v3` as in Confluent Server, because
clients use either.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from tidelog.broker.face.records import RecordShown
from tidelog.broker.face.rest_consumers import requests
from tidelog.broker.face.shedding import RequestClass
from tidelog.broker.http import (
    acls_v3,
    batches,
    bulk,
    clusters_v3,
    configs_v3,
    consumer_bodies,
    consumers_v2,
    group_lags_v3,
    group_members,
    group_resets_v3,
    groups_v3,
    json_body,
    logins_v3,
    losses_v3,
    many_batches,
    ops,
    partitions_v3,
    produce_v2,
    produce_v3,
    quotas_v3,
    reassignments_v3,
    records,
    records_v3,
    stream_v3,
    topics_v2,
    topics_v3,
    verification_v3,
)
from tidelog.broker.http.envelope import ResourceList
from tidelog.broker.http.media import BATCHES_TYPE, JSON_TYPE, Embedded
from tidelog.broker.http.route import Handler, Query, ResourceOf, Route
from tidelog.broker.http.route import any_group_resource as groups
from tidelog.broker.http.route import any_topic_resource as topics
from tidelog.broker.http.route import any_user_resource as users
from tidelog.broker.http.route import cluster_resource as cluster
from tidelog.broker.http.route import group_resource as group
from tidelog.broker.http.route import topic_resource as topic
from tidelog.model.access import Operation
from tidelog.model.groups import CommitAnswer, HeartbeatAnswer, OffsetsAnswer
from tidelog.model.partition_batches import PARTITION_BATCHES_TYPE

_INTEGER: Final[Mapping[str, object]] = {"type": "integer", "minimum": 0}
_TEXT: Final[Mapping[str, object]] = {"type": "string"}
_OFFSET: Final = Query("offset", {"type": ["integer", "string"]}, "Where to begin: a number, `earliest` or `latest`.")
_MAX_BYTES: Final = Query("max_bytes", _INTEGER, "The most to return, 1 MiB by default; one record or batch always is.")
_REPLICA: Final = Query("replica", {"enum": ["local", "any"]}, "Read the addressed broker's copy, or any copy.")
_TOPICS: Final = Query("topics", _TEXT, "Names, separated by commas; all topics by default.")
_PRODUCE: Final = (
    Query("acks", {"enum": ["all", "1", "0", "-1"]}, "Who must have the records before the answer; all by default."),
    Query("async", {"type": "boolean"}, "`true` is `acks=0`: answered at once with 204."),
    Query("timeout_ms", _INTEGER, "When to give up waiting: 503 if nothing was appended, 504 if it is unknown."),
)
_PRODUCE_BATCHES: Final = (
    *_PRODUCE,
    Query(
        "expected_end_offset",
        _INTEGER,
        "Append only if the partition's last batch ends here; else 412. Refused unless the topic has "
        "`commit.order=total`.",
    ),
)
_DELETION: Final = (Query("timeout_ms", _INTEGER, "When to give up waiting: they may be deleted later (504)."),)
_GROUP_DEADLINE: Final = (Query("timeout_ms", _INTEGER, "When to give up: 503 if nothing was done, 504 if unknown."),)
_EARLY: Final = (
    Query(
        "order",
        {"enum": ["total", "key", "none"]},
        "`key` and `none`: also what is released above the high watermark; only of topics whose `commit.order` has it.",
    ),
    Query("above", _TEXT, "What was read above the high watermark already: `FIRST-LAST,...`, sorted; 1,000 at most."),
)
_READ_RECORDS: Final = (
    _OFFSET,
    Query("timestamp", _INTEGER, "Begin at the first record of this time (ms) or later."),
    _MAX_BYTES,
    Query("timeout", _INTEGER, "How long to wait for a record, in ms; 0 by default."),
    _REPLICA,
    *_EARLY,
)
_READ_BATCHES: Final = (
    _OFFSET,
    Query(
        "to",
        _INTEGER,
        "Stream up to this offset (exclusive), clipped to the high watermark, and to where a 65th range was given up.",
    ),
    _MAX_BYTES,
    Query("min_bytes", _INTEGER, "How much to wait for; 1 by default."),
    Query("wait_ms", _INTEGER, "How long to wait for it; 0 by default."),
    _REPLICA,
    *_EARLY,
)
_READ_INSTANCE: Final = (
    Query("timeout", _INTEGER, "How long to wait for a record, in ms; by default as long as the instance says."),
    Query("max_bytes", _INTEGER, "The most to return, consumer.request.max.bytes by default; one record always is."),
)
_COMMIT: Final = (Query("async", {"type": "boolean"}, "`true`: answered at once, whatever becomes of it."),)
_OFFSET_TYPE: Final = Query("offset_type", {"enum": ["earliest_and_latest"]}, "The only one there is.")
_VERIFY: Final = (
    Query("offset", _INTEGER, "Where to begin; the log's start by default."),
    Query("to", _INTEGER, "Where to end (exclusive), clipped to the high watermark. An answer may end before."),
    Query("batches", {"type": "boolean"}, "`true`: name every batch."),
)
_ACL_QUERY: Final = tuple(
    Query(name, _TEXT, f"Only ACLs with this {name}{more}.")
    for name, more in (
        ("resource_type", ""),
        ("pattern_type", "; `MATCH`: those whose pattern fits the name"),
        ("resource_name", ""),
        ("principal", ""),
        ("host", ""),
        ("operation", ""),
        ("permission", ""),
    )
)
_CHECK_QUERY: Final = tuple(
    Query(name, _TEXT, f"The {name} of the question.")
    for name in ("resource_type", "resource_name", "principal", "host", "operation")
)
_V2_ANSWER: Final = (topics_v2.ANSWER_TYPE,)
_V2_CONTROL: Final = (topics_v2.ANSWER_TYPE, JSON_TYPE)
_V2_RECORDS: Final = (Embedded.JSON.value, Embedded.TEXT.value, Embedded.BINARY.value, JSON_TYPE)
_V2_READ: Final = tuple(embedded.value for embedded in Embedded)

_TOPIC: Final = "/topics/{topic}"
_INSTANCE: Final = "/consumers/{group}/instances/{instance}"
_PARTITION: Final = "/topics/{topic}/partitions/{partition}"
_GROUP: Final = "/consumer-groups/{group}"
_CONSUMER: Final = "/consumer-groups/{group}/consumers/{consumer}"
_OPEN, _READ, _WRITE, _CREATE = Operation.NONE, Operation.READ, Operation.WRITE, Operation.CREATE
_DELETE, _ALTER, _DESCRIBE = Operation.DELETE, Operation.ALTER, Operation.DESCRIBE
_DESCRIBE_CONFIGS, _ALTER_CONFIGS = Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS
_PRODUCES, _READS, _WAITS = RequestClass.PRODUCE, RequestClass.READ, RequestClass.LONG_POLL


def _always(path: str, operation: Operation, handler: Handler, answer: Any, media: str = JSON_TYPE) -> Route:
    """Returns a GET route that is served whatever state the broker is in."""
    return Route(
        "GET",
        path,
        operation,
        cluster,
        handler,
        None,
        answer,
        answer_media=(media,),
        is_always_on=True,
        request_class=None,
    )


def _v2(path: str, resource: ResourceOf, handler: Handler, answer: Any) -> Route:
    """Returns a GET route of REST v2."""
    return Route("GET", path, _DESCRIBE, resource, handler, None, answer, answer_media=_V2_ANSWER)


def _v2_produce(path: str, handler: Handler) -> Route:
    """Returns a produce route of REST v2."""
    return Route(
        "POST",
        path,
        _WRITE,
        topic,
        handler,
        json_body.JsonRecords,
        produce_v2.ProducedV2,
        (200, 204),
        _PRODUCE,
        _V2_RECORDS,
        _V2_ANSWER,
        request_class=_PRODUCES,
    )


def _consumer(
    method: str,
    path: str,
    handler: Handler,
    request: Any = None,
    answer: Any = None,
    query: tuple[Query, ...] = (),
    answer_media: tuple[str, ...] = _V2_ANSWER,
    **options: Any,
) -> Route:
    """Returns a route of the v2 consumer API; without an answer type its status is 204. `options` are other fields of
    `Route`.
    """
    statuses, media = (204,) if answer is None else (200,), (_V2_CONTROL, answer_media)
    return Route(method, path, _READ, group, handler, request, answer, statuses, query, *media, **options)


def _v3(
    method: str,
    path: str,
    operation: Operation,
    resource: ResourceOf,
    handler: Handler,
    request: Any = None,
    answer: Any = None,
    *statuses: int,
    **options: Any,
) -> Route:
    """Returns a route of REST v3; `path` follows the cluster's path, `options` are other fields of `Route`."""
    path = f"/clusters/{{cluster_id}}{path}"
    return Route(method, path, operation, resource, handler, request, answer, statuses or (200,), **options)


def _get(path: str, operation: Operation, resource: ResourceOf, handler: Handler, answer: Any, **options: Any) -> Route:
    """Returns a GET route of REST v3."""
    return _v3("GET", path, operation, resource, handler, None, answer, **options)


def _list(path: str, operation: Operation, resource: ResourceOf, handler: Handler, kind: Any, **options: Any) -> Route:
    """Returns a GET route of REST v3 that lists resources of a type."""
    return _get(path, operation, resource, handler, ResourceList[kind], **options)


def _delete(path: str, operation: Operation, resource: ResourceOf, handler: Handler) -> Route:
    """Returns a DELETE route of REST v3 that answers 204."""
    return _v3("DELETE", path, operation, resource, handler, None, None, 204)


OPS: Final = (
    _always("/healthz", _OPEN, ops.get_health, ops.Health),
    _always("/readyz", _OPEN, ops.get_readiness, ops.Readiness),
    _always("/metrics", _DESCRIBE, ops.get_metrics, str, "text/plain"),
)
"""The routes of operators (health and metrics): served to clients only if operators have no listener of their own."""

OWN: Final = (
    _always("/openapi.json", _OPEN, ops.get_openapi, dict),
    Route("GET", "/metadata", _DESCRIBE, topics, bulk.get_metadata, None, bulk.MetadataShown, query=(_TOPICS,),
          request_class=None),
    Route("POST", "/offsets", _DESCRIBE, topics, bulk.post_offsets, bulk.OffsetsRequest, bulk.OffsetsAnswer,
          request_class=_WAITS),
    Route("GET", f"{_PARTITION}/records", _READ, topic, records.get_records, None, list[RecordShown],
          query=_READ_RECORDS, answer_media=_V2_READ, request_class=_READS, wait_query="timeout"),
    Route("POST", f"{_PARTITION}/batches", _WRITE, topic, batches.post_batches, None, batches.BatchesReceipt,
          (200, 204), _PRODUCE_BATCHES, (BATCHES_TYPE,), has_raw_body=True, request_class=_PRODUCES),
    Route("POST", "/batches", _WRITE, topics, many_batches.post_many_batches, None, many_batches.PartitionReceipts,
          (200, 204), _PRODUCE, (PARTITION_BATCHES_TYPE,), has_raw_body=True, request_class=_PRODUCES),
    Route("GET", f"{_PARTITION}/batches", _READ, topic, batches.get_batches, query=_READ_BATCHES,
          answer_media=(BATCHES_TYPE,), request_class=_READS, wait_query="wait_ms"),
    Route("POST", "/groups/{group}/heartbeat", _READ, group, group_members.post_heartbeat, group_members.HeartbeatAsked,
          HeartbeatAnswer, query=_GROUP_DEADLINE, request_class=None, is_vital=True),
    Route("POST", "/groups/{group}/offsets", _READ, group, group_members.commit_offsets, group_members.CommitAsked,
          CommitAnswer, query=_GROUP_DEADLINE, request_class=None, is_vital=True),
    Route("POST", "/groups/{group}/offsets:fetch", _READ, group, group_members.fetch_offsets,
          group_members.OffsetsAsked, OffsetsAnswer, query=_GROUP_DEADLINE, request_class=None),
)  # fmt: skip

V2: Final = (
    _always("/", _OPEN, topics_v2.get_root, topics_v2.Nothing, topics_v2.ANSWER_TYPE),
    Route("POST", "/", _OPEN, cluster, topics_v2.post_root, None, topics_v2.Nothing, answer_media=_V2_ANSWER),
    _v2("/brokers", cluster, topics_v2.list_brokers, topics_v2.BrokersV2),
    _v2("/topics", topics, topics_v2.list_topics, list[str]),
    _v2(_TOPIC, topic, topics_v2.get_topic, topics_v2.TopicV2),
    _v2(f"{_TOPIC}/partitions", topic, topics_v2.list_partitions, list[topics_v2.PartitionV2]),
    _v2(_PARTITION, topic, topics_v2.get_partition, topics_v2.PartitionV2),
    _v2(f"{_PARTITION}/offsets", topic, topics_v2.get_offsets, topics_v2.OffsetsV2),
    _v2_produce(_TOPIC, produce_v2.produce_to_topic),
    _v2_produce(_PARTITION, produce_v2.produce_to_partition),
)

CONSUMERS: Final = (
    _consumer("POST", "/consumers/{group}", consumers_v2.create, consumer_bodies.NewConsumer,
              consumer_bodies.ConsumerCreated),
    _consumer("DELETE", _INSTANCE, consumers_v2.delete),
    _consumer("POST", f"{_INSTANCE}/subscription", consumers_v2.subscribe, consumer_bodies.Subscription),
    _consumer("GET", f"{_INSTANCE}/subscription", consumers_v2.get_subscription, None, consumer_bodies.TopicsShown),
    _consumer("DELETE", f"{_INSTANCE}/subscription", consumers_v2.unsubscribe),
    _consumer("POST", f"{_INSTANCE}/assignments", consumers_v2.assign, consumer_bodies.PartitionsNamed),
    _consumer("GET", f"{_INSTANCE}/assignments", consumers_v2.get_assignments, None, consumer_bodies.PartitionsShown),
    _consumer("POST", f"{_INSTANCE}/positions", consumers_v2.seek, consumer_bodies.SoughtPositions),
    _consumer("POST", f"{_INSTANCE}/positions/beginning", consumers_v2.seek_to_beginning,
              consumer_bodies.PartitionsNamed),
    _consumer("POST", f"{_INSTANCE}/positions/end", consumers_v2.seek_to_end, consumer_bodies.PartitionsNamed),
    _consumer("GET", f"{_INSTANCE}/records", consumers_v2.get_records, None, list[RecordShown], _READ_INSTANCE,
              _V2_READ, request_class=_WAITS),
    _consumer("POST", f"{_INSTANCE}/offsets", consumers_v2.commit, consumer_bodies.OffsetsToCommit,
              list[requests.OffsetRefused], _COMMIT, is_vital=True),
    _consumer("GET", f"{_INSTANCE}/offsets", consumers_v2.get_offsets, consumer_bodies.PartitionsNamed,
              consumer_bodies.CommittedListed),
)  # fmt: skip

V3: Final = (
    Route("GET", "/clusters", _DESCRIBE, cluster, clusters_v3.list_clusters, None, ResourceList[clusters_v3.ClusterV3]),
    _get("", _DESCRIBE, cluster, clusters_v3.get_cluster, clusters_v3.ClusterV3),
    _v3("POST", "/producer-ids", Operation.IDEMPOTENT_WRITE, cluster, clusters_v3.allocate_producer_id, None,
        clusters_v3.ProducerIdV3, 201, request_class=_PRODUCES),
    _v3("POST", "/feature-level:raise", _ALTER, cluster, clusters_v3.raise_feature_level, clusters_v3.RaiseAsked,
        clusters_v3.LevelRaisedV3),
    _list("/brokers", _DESCRIBE, cluster, clusters_v3.list_brokers, clusters_v3.BrokerV3),
    _get("/brokers/{broker_id}", _DESCRIBE, cluster, clusters_v3.get_broker, clusters_v3.BrokerV3),
    _delete("/brokers/{broker_id}", _ALTER, cluster, clusters_v3.remove_broker),
    _list("/brokers/{broker_id}/partition-replicas", _DESCRIBE, cluster, clusters_v3.list_broker_replicas,
          partitions_v3.ReplicaV3),
    _get("/brokers/{broker_id}/verification", _DESCRIBE, cluster, verification_v3.verify_broker,
         verification_v3.BrokerVerificationV3),
    _list("/broker-configs", _DESCRIBE_CONFIGS, cluster, configs_v3.list_cluster_configs, configs_v3.ClusterConfigV3),
    _list("/brokers/-/configs", _DESCRIBE_CONFIGS, cluster, configs_v3.list_all_broker_configs,
          configs_v3.BrokerConfigV3),
    _list("/brokers/{broker_id}/configs", _DESCRIBE_CONFIGS, cluster, configs_v3.list_broker_configs,
          configs_v3.BrokerConfigV3),
    _get("/brokers/{broker_id}/configs/{name}", _DESCRIBE_CONFIGS, cluster, configs_v3.get_broker_config,
         configs_v3.BrokerConfigV3),
    _v3("PUT", "/brokers/{broker_id}/configs/{name}", _ALTER_CONFIGS, cluster, configs_v3.put_broker_config,
        configs_v3.ConfigValue, None, 204),
    _delete("/brokers/{broker_id}/configs/{name}", _ALTER_CONFIGS, cluster, configs_v3.delete_broker_config),
    _list("/quotas", _DESCRIBE_CONFIGS, cluster, quotas_v3.list_quotas, quotas_v3.QuotaV3),
    _v3("POST", "/quotas:alter", _ALTER_CONFIGS, cluster, quotas_v3.alter_quotas, quotas_v3.QuotasAsked, None, 204),
    _list("/topics", _DESCRIBE, topics, topics_v3.list_topics, topics_v3.TopicV3),
    _v3("POST", "/topics", _CREATE, topics, topics_v3.create_topic, topics_v3.CreateTopic, topics_v3.TopicV3,
        200, 201),
    _get(_TOPIC, _DESCRIBE, topic, topics_v3.get_topic, topics_v3.TopicV3),
    _v3("PATCH", _TOPIC, _ALTER, topic, topics_v3.grow_topic, topics_v3.GrowTopic, topics_v3.TopicV3),
    _delete(_TOPIC, _DELETE, topic, topics_v3.delete_topic),
    _list("/topics/-/configs", _DESCRIBE_CONFIGS, topics, configs_v3.list_all_topic_configs, configs_v3.TopicConfigV3),
    _list(f"{_TOPIC}/configs", _DESCRIBE_CONFIGS, topic, configs_v3.list_topic_configs, configs_v3.TopicConfigV3),
    _get(f"{_TOPIC}/configs/{{name}}", _DESCRIBE_CONFIGS, topic, configs_v3.get_topic_config, configs_v3.TopicConfigV3),
    _v3("PUT", f"{_TOPIC}/configs/{{name}}", _ALTER_CONFIGS, topic, configs_v3.put_topic_config, configs_v3.ConfigValue,
        None, 204),
    _delete(f"{_TOPIC}/configs/{{name}}", _ALTER_CONFIGS, topic, configs_v3.delete_topic_config),
    _v3("POST", f"{_TOPIC}/configs:alter", _ALTER_CONFIGS, topic, configs_v3.alter_topic_configs,
        configs_v3.ConfigChanges, None, 204),
    _list(f"{_TOPIC}/partitions", _DESCRIBE, topic, partitions_v3.list_partitions, partitions_v3.PartitionV3),
    _list("/topics/-/partitions/-/reassignment", _DESCRIBE, topics, reassignments_v3.list_all,
          reassignments_v3.ReassignmentV3),
    _v3("POST", "/topics/-/partitions/-/reassignment", _ALTER, cluster, reassignments_v3.begin,
        reassignments_v3.MovesAsked, None, 204),
    _delete("/topics/-/partitions/-/reassignment", _ALTER, cluster, reassignments_v3.call_off_all),
    _list(f"{_TOPIC}/partitions/-/reassignment", _DESCRIBE, topic, reassignments_v3.list_of_topic,
          reassignments_v3.ReassignmentV3),
    _get(f"{_PARTITION}/reassignment", _DESCRIBE, topic, reassignments_v3.get_one, reassignments_v3.ReassignmentV3),
    _delete(f"{_PARTITION}/reassignment", _ALTER, topic, reassignments_v3.call_off_one),
    _v3("POST", "/brokers:rebalance", _ALTER, cluster, reassignments_v3.rebalance, reassignments_v3.RebalanceAsked,
        reassignments_v3.Planned),
    _v3("POST", "/topics/-/partitions:elect", _ALTER, cluster, reassignments_v3.elect,
        reassignments_v3.ElectionAsked, reassignments_v3.ElectionsShown),
    _get(_PARTITION, _DESCRIBE, topic, partitions_v3.get_partition, partitions_v3.PartitionV3),
    _get(f"{_PARTITION}/offset", _DESCRIBE, topic, partitions_v3.get_offset, partitions_v3.PartitionOffsetV3,
         query=(_OFFSET_TYPE,)),
    _list(f"{_PARTITION}/replicas", _DESCRIBE, topic, partitions_v3.list_replicas, partitions_v3.ReplicaV3),
    _get(f"{_PARTITION}/replicas/{{broker_id}}", _DESCRIBE, topic, partitions_v3.get_replica, partitions_v3.ReplicaV3),
    _get(f"{_PARTITION}/replicas/{{broker_id}}/verification", _DESCRIBE, topic, verification_v3.verify_replica,
         verification_v3.VerificationV3, query=_VERIFY),
    _list("/topics/-/partitions/-/losses", _DESCRIBE, topics, losses_v3.list_all, losses_v3.LossV3),
    _list(f"{_TOPIC}/partitions/-/losses", _DESCRIBE, topic, losses_v3.list_of_topic, losses_v3.LossV3),
    _list(f"{_PARTITION}/losses", _DESCRIBE, topic, losses_v3.list_of_partition, losses_v3.LossV3),
    _v3("POST", f"{_PARTITION}/losses", _ALTER, topic, losses_v3.accept, losses_v3.LossesAsked,
        losses_v3.LossesJudged),
    _v3("POST", f"{_PARTITION}/records:delete", _DELETE, topic, partitions_v3.delete_records,
        partitions_v3.DeletionAsked, None, 204, query=_DELETION),
    _v3("POST", f"{_TOPIC}/records", _WRITE, topic, stream_v3.produce_stream, json_body.RecordV3,
        (records_v3.ReceiptV3, records_v3.FailureV3), query=_PRODUCE, has_raw_body=True, is_stream=True,
        request_class=_PRODUCES),
    _v3("POST", f"{_TOPIC}/records:batch", _WRITE, topic, produce_v3.produce_entries, json_body.EntriesV3,
        produce_v3.BatchReceiptV3, 207, query=_PRODUCE, request_class=_PRODUCES),
    _list("/consumer-groups", _DESCRIBE, groups, groups_v3.list_groups, groups_v3.ConsumerGroupV3),
    _get(_GROUP, _DESCRIBE, group, groups_v3.get_group, groups_v3.ConsumerGroupV3),
    _delete(_GROUP, _DELETE, group, groups_v3.delete_group),
    _list(f"{_GROUP}/consumers", _DESCRIBE, group, groups_v3.list_consumers, groups_v3.ConsumerV3),
    _get(_CONSUMER, _DESCRIBE, group, groups_v3.get_consumer, groups_v3.ConsumerV3),
    _list(f"{_CONSUMER}/assignments", _DESCRIBE, group, groups_v3.list_assignments, groups_v3.AssignmentV3),
    _get(f"{_CONSUMER}/assignments/{{topic}}/partitions/{{partition}}", _DESCRIBE, group, groups_v3.get_assignment,
         groups_v3.AssignmentV3),
    _get(f"{_GROUP}/lag-summary", _DESCRIBE, group, group_lags_v3.get_summary, group_lags_v3.LagSummaryV3),
    _list(f"{_GROUP}/lags", _DESCRIBE, group, group_lags_v3.list_lags, group_lags_v3.LagV3),
    _get(f"{_GROUP}/lags/{{topic}}/partitions/{{partition}}", _DESCRIBE, group, group_lags_v3.get_lag,
         group_lags_v3.LagV3),
    _list("/acls", _DESCRIBE, cluster, acls_v3.list_acls, acls_v3.AclV3, query=_ACL_QUERY),
    _v3("POST", "/acls", _ALTER, cluster, acls_v3.create_acl, acls_v3.AclAsked, None, 201),
    _v3("DELETE", "/acls", _ALTER, cluster, acls_v3.delete_acls, None, acls_v3.AclsDeletedV3, query=_ACL_QUERY),
    _v3("POST", "/acls:batch", _ALTER, cluster, acls_v3.create_acls, acls_v3.AclsAsked, None, 201),
    _get("/acls:check", _DESCRIBE, cluster, acls_v3.check_access, acls_v3.CheckedV3, query=_CHECK_QUERY),
    _list("/users", _DESCRIBE, cluster, logins_v3.list_users, logins_v3.UserV3),
    _v3("POST", "/users", _ALTER, cluster, logins_v3.create_user, logins_v3.UserAsked, logins_v3.UserV3, 201),
    _v3("PUT", "/users/{user}/password", _ALTER, cluster, logins_v3.set_password, logins_v3.PasswordAsked, None, 204),
    _delete("/users/{user}", _ALTER, cluster, logins_v3.delete_user),
    _list("/tokens", _ALTER, users, logins_v3.list_tokens, logins_v3.TokenV3),
    _v3("POST", "/tokens", _ALTER, users, logins_v3.create_token, logins_v3.TokenAsked, logins_v3.TokenV3, 201),
    _delete("/tokens/{token_id}", _ALTER, users, logins_v3.delete_token),
    _v3("POST", f"{_GROUP}/offsets:reset", _READ, group, group_resets_v3.reset_offsets, group_resets_v3.ResetAsked,
        group_resets_v3.GroupResetV3, is_recorded=True),
)  # fmt: skip

CLIENT: Final = (
    *OWN,
    *V2,
    *CONSUMERS,
    *(replace(route, prefix=prefix) for prefix in ("/v3", "/kafka/v3") for route in V3),
)

ROUTES: Final = (*OPS, *CLIENT)
