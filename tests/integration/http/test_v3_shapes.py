"""Answers of REST v3 as typed clients expect them, who take Confluent's document for the truth.

What a resource of each kind must have is written down here, as names and types. More is allowed, a missing field is
not, nor is null where the type has none. Links have to lead somewhere, but for those that `DEAD_ENDS` names.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias
from urllib.parse import urlsplit

import pytest
from msgspec import Struct

from tests.integration.http.conftest import Site, simulated
from tidelog.broker.http.configs_v3 import ClusterConfigV3
from tidelog.broker.http.reassignments_v3 import ReassignmentV3
from tidelog.broker.http.routes import V3

LINK = "link"
TEXT_OR_NULL = (str, type(None))
Shape: TypeAlias = Mapping[str, Any]

_CONFIG: Shape = {"cluster_id": str, "name": str, "value": TEXT_OR_NULL, "is_default": bool, "is_read_only": bool,
                  "is_sensitive": bool, "source": str, "synonyms": list}  # fmt: skip
_PARTITION: Shape = {"cluster_id": str, "topic_name": str, "partition_id": int}
_MEMBER: Shape = {"cluster_id": str, "consumer_group_id": str, "consumer_id": str}
SHAPES: Mapping[str, Shape] = {
    "KafkaCluster": {
        "cluster_id": str, "acls": LINK, "brokers": LINK, "broker_configs": LINK, "consumer_groups": LINK,
        "topics": LINK, "partition_reassignments": LINK, "controller": LINK,
    },
    "KafkaBroker": {
        "cluster_id": str, "broker_id": int, "host": str, "port": int, "rack": TEXT_OR_NULL, "configs": LINK,
        "partition_replicas": LINK,
    },
    "KafkaBrokerConfig": {**_CONFIG, "broker_id": int},
    "KafkaClusterConfig": {**_CONFIG, "config_type": str},
    "KafkaTopicConfig": {**_CONFIG, "topic_name": str},
    "KafkaTopic": {
        "cluster_id": str, "topic_name": str, "is_internal": bool, "replication_factor": int, "partitions_count": int,
        "partitions": LINK, "configs": LINK, "partition_reassignments": LINK,
    },
    "KafkaPartition": {**_PARTITION, "leader": LINK, "replicas": LINK, "reassignment": LINK},
    "KafkaPartitionOffset": {**_PARTITION, "earliest_offset": int, "latest_offset": int},
    "KafkaReplica": {**_PARTITION, "broker_id": int, "is_leader": bool, "is_in_sync": bool, "broker": LINK},
    "KafkaReassignment": {**_PARTITION, "adding_replicas": list, "removing_replicas": list, "replicas": LINK},
    "KafkaConsumerGroup": {
        "cluster_id": str, "consumer_group_id": str, "is_simple": bool, "partition_assignor": str, "state": str,
        "type": str, "is_mixed_consumer_group": bool, "coordinator": LINK, "consumers": LINK, "lag_summary": LINK,
    },
    "KafkaConsumer": {**_MEMBER, "instance_id": TEXT_OR_NULL, "client_id": str, "assignments": LINK},
    "KafkaConsumerAssignment": {**_MEMBER, **_PARTITION, "partition": LINK, "lag": LINK},
    "KafkaConsumerLag": {
        **_MEMBER, **_PARTITION, "current_offset": int, "log_end_offset": int, "lag": int,
        "instance_id": TEXT_OR_NULL, "client_id": str,
    },
    "KafkaConsumerGroupLagSummary": {
        "cluster_id": str, "consumer_group_id": str, "max_lag_consumer_id": str, "max_lag_instance_id": TEXT_OR_NULL,
        "max_lag_client_id": str, "max_lag_topic_name": str, "max_lag_partition_id": int, "max_lag": int,
        "total_lag": int, "max_lag_consumer": LINK, "max_lag_partition": LINK,
    },
}  # fmt: skip
OWN_KINDS = {"KafkaReplicaVerification", "KafkaBrokerVerification"}
DEAD_ENDS = ("/partitions/0/reassignment", "/partitions/1/reassignment")
"""A partition that does not move has no reassignment."""
GROUP = "watchers"
PLACES = {"topic": "t", "partition": "0", "broker_id": "1", "name": "compression.type", "group": GROUP, "consumer": "m"}


def resources(document: Any) -> Iterator[dict[str, Any]]:
    """Everything in a document that says of what kind it is; a list is checked on the way."""
    kind = document["kind"]
    if "data" not in document:
        yield document
        return
    assert isinstance(document["metadata"]["self"], str)
    assert document["metadata"]["next"] is None
    for one in document["data"]:
        assert f"{one['kind']}List" == kind
        yield from resources(one)


def check(resource: dict[str, Any]) -> None:
    for name, wanted in {"metadata": dict, **SHAPES[resource["kind"]]}.items():
        assert name in resource, (resource["kind"], name)
        value = resource[name]
        if wanted is LINK:
            assert isinstance(value, dict), (resource["kind"], name)
            assert list(value) == ["related"]
        else:
            assert isinstance(value, wanted), (resource["kind"], name, value)
            assert isinstance(value, bool) == (wanted is bool), (resource["kind"], name)
    assert isinstance(resource["metadata"]["self"], str)
    assert resource["metadata"]["resource_name"].startswith("crn:///kafka=")


def links(resource: dict[str, Any]) -> Iterator[str]:
    yield resource["metadata"]["self"]
    yield from (value["related"] for value in resource.values() if isinstance(value, dict) and "related" in value)


async def _prepare(site: Site) -> None:
    """A group with a member, which has an offset and is behind."""
    await site.produce(1, 2, 3)
    join = {"member_id": "m", "member_epoch": 0, "topics": ["t"], "owned": []}
    joined = (await site.post(f"/groups/{GROUP}/heartbeat", join)).json()
    owned = [{"topic": "t", "partitions": [0]}]
    epoch = joined["member_epoch"]
    await site.post(f"/groups/{GROUP}/heartbeat", {"member_id": "m", "member_epoch": epoch, "owned": owned})
    place = {"topic": "t", "partition": 0, "offset": 1}
    commit = {"member_id": "m", "member_epoch": epoch, "sequence": 1, "offsets": [place]}
    assert (await site.post(f"/groups/{GROUP}/offsets", commit)).status == 200


async def test_every_answer_fits_and_every_link_leads_somewhere(site: Site) -> None:
    await _prepare(site)
    seen: set[str] = set()
    followed: set[str] = set()
    for route in V3:
        if route.method != "GET" or route.path.endswith(("/{partition}/reassignment", "/acls:check")):
            continue
        reply = await site.get("/v3" + route.path.format(cluster_id=site.broker.cluster_id, **PLACES))
        assert reply.status == 200, (route.path, reply.body)
        for resource in resources(reply.json()):
            if resource["kind"] in OWN_KINDS:
                continue
            check(resource)
            seen.add(resource["kind"])
            followed |= {*links(resource)}
    assert seen == {*SHAPES} - {"KafkaReassignment", "KafkaClusterConfig"}
    for link in followed:
        if not link.endswith(DEAD_ENDS):
            assert (await site.get(urlsplit(link).path)).status == 200, link


@pytest.mark.parametrize(
    ("kind", "answer"), [("KafkaReassignment", ReassignmentV3), ("KafkaClusterConfig", ClusterConfigV3)]
)
def test_what_one_idle_broker_has_none_of_has_the_fields(kind: str, answer: type[Struct]) -> None:
    assert {"kind", "metadata", *SHAPES[kind]} <= {*answer.__struct_fields__}


async def test_created_and_changed_topics_are_topics(site: Site) -> None:
    asked = {"topic_name": "new", "partitions_count": 1}
    preview = await site.post(f"{site.v3}/topics", {**asked, "validate_only": True})
    made = await site.post(f"{site.v3}/topics", asked)
    grown = await site.ask("PATCH", f"{site.v3}/topics/new", b'{"partitions_count":2}')
    for reply, partitions in ((preview, 1), (made, 1), (grown, 2)):
        check(reply.json())
        assert reply.json()["assignments"] == [{"partition_id": n, "replicas": [1]} for n in range(partitions)]


async def test_a_group_whose_members_have_left_has_a_summary(site: Site) -> None:
    await _prepare(site)
    await site.post(f"/groups/{GROUP}/heartbeat", {"member_id": "m", "member_epoch": -1})
    summary = (await site.get(f"{site.v3}/consumer-groups/{GROUP}/lag-summary")).json()
    check(summary)
    assert summary["max_lag_consumer_id"] == ""
    assert summary["max_lag_consumer"]["related"].endswith(f"/consumer-groups/{GROUP}/consumers")


@pytest.mark.parametrize("count", [0, 1])
async def test_what_there_is_none_of_is_left_out_and_not_null(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    async with simulated() as site:
        if count == 0:
            monkeypatch.setattr(type(site.broker), "controller_node", property(lambda _: None))
        cluster = (await site.get(site.v3)).json()
        assert ("controller" in cluster) == bool(count)
        monkeypatch.undo()


async def test_settings_of_all_brokers_and_of_the_cluster(site: Site) -> None:
    own = (await site.get(f"{site.v3}/brokers/1/configs")).json()["data"]
    every = (await site.get(f"{site.v3}/brokers/-/configs")).json()
    assert (every["kind"], every["data"]) == ("KafkaBrokerConfigList", own)
    shared = (await site.get(f"{site.v3}/broker-configs")).json()
    assert (shared["kind"], shared["data"]) == ("KafkaClusterConfigList", [])
