"""REST v3: clusters, brokers, topics, settings, partitions, under both of its names."""

from __future__ import annotations

import json
import re

import pytest
import structlog

from tests.integration.http.conftest import Site
from tidelog.broker.http.routes import ROUTES


async def test_a_clock_that_is_off_is_shown(site: Site) -> None:
    time = site.broker.face.statistics.time
    cluster = {"clock_is_off": False}
    for _ in range(100):  # a heartbeat that is answered meanwhile says that all is well
        time.compared(time.monotonic_s(), -45_000)
        cluster = (await site.get(site.v3)).json()
        if cluster["clock_is_off"]:
            break
    assert (cluster["clock_offset_ms"], cluster["clock_is_off"]) == (-45_000, True)


async def test_the_cluster_and_its_brokers(site: Site) -> None:
    cluster_id = site.broker.cluster_id
    base = f"http://127.0.0.1:{site.address[1]}/v3/clusters"
    clusters = (await site.get("/v3/clusters")).json()
    assert clusters["kind"] == "KafkaClusterList"
    assert clusters["metadata"] == {"self": base, "next": None}
    (cluster,) = clusters["data"]
    assert cluster == (await site.get(site.v3)).json()
    assert cluster["cluster_id"] == cluster_id
    assert cluster["metadata"]["self"] == f"{base}/{cluster_id}"
    assert cluster["controller"] == {"related": f"{base}/{cluster_id}/brokers/1"}
    (broker,) = (await site.get(f"{site.v3}/brokers")).json()["data"]
    assert broker == (await site.get(f"{site.v3}/brokers/1")).json()
    assert (broker["broker_id"], broker["host"], broker["port"]) == (1, *site.address)
    assert (broker["is_controller"], broker["is_fenced"]) == (True, False)
    assert cluster["metadata_position"] == site.broker.image.position > broker["broker_epoch"]
    assert (cluster["generation"], cluster["recoveries"]) == (0, [])
    assert (cluster["clock_offset_ms"], cluster["clock_is_off"]) == (0, False)
    replicas = (await site.get(f"{site.v3}/brokers/1/partition-replicas")).json()["data"]
    assert [(replica["topic_name"], replica["is_leader"]) for replica in replicas] == [("t", True)]


async def test_the_only_broker_of_a_cluster_is_not_removed(site: Site) -> None:
    assert (await site.ask("DELETE", f"{site.v3}/brokers/1")).code == 40002
    assert (await site.ask("DELETE", f"{site.v3}/brokers/2")).code == 40400
    assert (await site.get(f"{site.v3}/brokers/1")).status == 200


async def test_links_lead_where_they_say_under_both_prefixes(site: Site) -> None:
    for prefix in ("/v3", "/kafka/v3"):
        cluster = (await site.get(f"{prefix}/clusters")).json()["data"][0]
        origin = f"http://127.0.0.1:{site.address[1]}"
        for link in (
            cluster["metadata"]["self"],
            *(cluster[name]["related"] for name in ("controller", "brokers", "topics")),
        ):
            assert link.startswith(f"{origin}{prefix}/clusters/")
            assert (await site.get(link.removeprefix(origin))).status == 200


async def test_links_are_made_from_the_registered_address_never_from_the_request(site: Site) -> None:
    """F117."""
    forged = "Host: evil\r\nX-Forwarded-Host: evil.example\r\nForwarded: host=evil.example"
    async with await site.wire() as wire:
        wire.write(f"GET /v3/clusters HTTP/1.1\r\n{forged}\r\n\r\n".encode())
        reply = await wire.read()
    assert reply.status == 200
    assert b"evil" not in reply.body


async def test_a_topics_life(site: Site) -> None:
    document = {
        "topic_name": "new",
        "partitions_count": 2,
        "replication_factor": 1,
        "configs": [{"name": "retention.ms", "value": "5000"}, {"name": "compression.type", "value": None}],
    }
    preview = await site.post(f"{site.v3}/topics", {**document, "validate_only": True})
    assert preview.status == 200
    assert preview.json()["assignments"] == [{"partition_id": 0, "replicas": [1]}, {"partition_id": 1, "replicas": [1]}]
    assert (await site.get(f"{site.v3}/topics/new")).code == 40401
    created = await site.post(f"{site.v3}/topics", document)
    assert created.status == 201
    assert created.headers["location"].endswith(f"{site.v3}/topics/new")
    topic = created.json()
    assert topic.keys() == preview.json().keys()
    assert (topic["partitions_count"], topic["replication_factor"], topic["is_internal"]) == (2, 1, False)
    assert topic["protocol"] == "isr"
    assert topic["topic_id"] == site.broker.topic("new").topic_id
    assert (await site.get(f"{site.v3}/topics/new")).json() == topic
    names = [entry["topic_name"] for entry in (await site.get(f"{site.v3}/topics")).json()["data"]]
    assert names == ["new", "t"]
    grown = await site.ask("PATCH", f"{site.v3}/topics/new", b'{"partitions_count": 3}')
    assert (grown.status, grown.json()["partitions_count"]) == (200, 3)
    assert (await site.ask("DELETE", f"{site.v3}/topics/new")).status == 204
    assert (await site.get(f"{site.v3}/topics/new")).code == 40401


async def test_a_topic_with_assignments(site: Site) -> None:
    document = {"topic_name": "placed", "replicas_assignments": {"0": [1], "1": [1]}}
    assert (await site.post(f"{site.v3}/topics", document)).json()["partitions_count"] == 2
    reply = await site.post(f"{site.v3}/topics", {**document, "topic_name": "p2", "partitions_count": 2})
    assert (reply.status, reply.code) == (400, 40002)


@pytest.mark.parametrize(
    "document",
    [
        {"topic_name": "t"},
        {"topic_name": "../t"},
        {"topic_name": "a" * 250},
        {"topic_name": "a\x00"},
        {"topic_name": "__mine"},
        {"topic_name": ""},
        {"topic_name": 5},
        {},
        {"topic_name": "n", "partitions_count": 0},
        {"topic_name": "n", "partitions_count": True},
        {"topic_name": "n", "partitions_count": 2**63},
        {"topic_name": "n", "replication_factor": 3},
        {"topic_name": "n", "replication_factor": 99},
        {"topic_name": "n", "replicas_assignments": {"0": [7]}},
        {"topic_name": "n", "replicas_assignments": {"1": [1]}},
        {"topic_name": "n", "replicas_assignments": {"x": [1]}},
        {"topic_name": "n", "configs": [{"name": "retention.mss", "value": "1"}]},
        {"topic_name": "n", "configs": [{"name": "retention.ms", "value": "soon"}]},
        {"topic_name": "n", "configs": [{"name": "retention.ms", "value": 5}]},
        {
            "topic_name": "n",
            "configs": [{"name": "retention.ms", "value": "1"}, {"name": "retention.ms", "value": "2"}],
        },
        *(
            {"topic_name": "n", "configs": [{"name": "min.insync.racks", "value": value}]}
            for value in ("0", "-1", "two", "1.5", "2147483648", "")
        ),
        *(
            {
                "topic_name": "n",
                "configs": [
                    {"name": "commit.protocol", "value": protocol},
                    {"name": "commit.order", "value": order},
                ],
            }
            for protocol, order in (("paxos", "keys"), ("paxos", ""), ("isr", "key"), ("isr", "total"))
        ),
        {"topic_name": "n", "configs": [{"name": "commit.order", "value": "key"}]},
        {"topic_name": "n", "partition_count": 3},
    ],
    ids=str,
)
async def test_bad_topics_are_refused(site: Site, document: dict[str, object]) -> None:
    reply = await site.post(f"{site.v3}/topics", document)
    assert (reply.status, reply.code) == (400, 40002)
    assert sorted(site.broker.image.topics) == ["t"]


async def test_racks_in_sync_are_a_topics_setting(site: Site) -> None:
    setting = f"{site.v3}/topics/t/configs/min.insync.racks"
    assert (await site.get(setting)).json()["value"] == "1"
    assert (await site.ask("PUT", setting, b'{"value":"2"}')).status == 204
    assert (await site.get(setting)).json()["value"] == "2"
    assert (await site.ask("PUT", setting, b'{"value":"0"}')).code == 40002
    assert (await site.get(setting)).json()["value"] == "2", "what is refused changes nothing"


async def test_an_order_of_commits_is_a_topics_setting(site: Site) -> None:
    configs = [{"name": "commit.protocol", "value": "paxos"}, {"name": "commit.order", "value": "key"}]
    assert (await site.post(f"{site.v3}/topics", {"topic_name": "u", "configs": configs})).status == 201
    setting = f"{site.v3}/topics/u/configs/commit.order"
    entry = (await site.get(setting)).json()
    assert (entry["value"], entry["source"], entry["is_read_only"]) == ("key", "DYNAMIC_TOPIC_CONFIG", True)
    assert [(synonym["name"], synonym["value"], synonym["source"]) for synonym in entry["synonyms"]] == [
        ("commit.order", "key", "DYNAMIC_TOPIC_CONFIG"),
        ("commit.order", "total", "DEFAULT_CONFIG"),
    ]
    for method, body in (("PUT", b'{"value":"none"}'), ("DELETE", None)):
        refused = await site.ask(method, setting, body)
        assert refused.code == 40002 and "commit.order is fixed when a topic is created" in refused.json()["message"]
    entry = (await site.get(setting.replace("/u/", "/t/"))).json()
    assert (entry["value"], entry["is_default"], entry["is_read_only"]) == ("total", True, True)


async def test_a_hole_span_is_altered_within_its_bounds(site: Site) -> None:
    await site.topic("u", commit_protocol="paxos", commit_order="none")
    setting = f"{site.v3}/topics/u/configs/commit.hole.span"
    assert (await site.get(setting)).json()["value"] == "256"
    assert (await site.ask("PUT", setting, b'{"value":"4096"}')).status == 204
    for value in ("0", "-1", "5000", "many"):
        refused = await site.ask("PUT", setting, b'{"value":"%s"}' % value.encode())
        assert (refused.status, refused.code) == (400, 40002)
        assert refused.json()["message"].endswith("must be a whole number from 1 to 4096")
    entry = (await site.get(setting)).json()
    assert (entry["value"], entry["source"], entry["is_read_only"]) == ("4096", "DYNAMIC_TOPIC_CONFIG", False)
    assert (await site.ask("DELETE", setting)).status == 204
    assert (await site.get(setting)).json()["is_default"]
    refused = await site.ask("PUT", setting.replace("/u/", "/t/"), b'{"value":"16"}')
    assert refused.code == 40002
    assert "only topics with commit.protocol=paxos have it" in refused.json()["message"]


async def test_topics_grow_only(site: Site) -> None:
    for body in (b'{"partitions_count": 1}', b'{"partitions_count": 0}', b"{}", b'{"partitions_count": 99999}'):
        assert (await site.ask("PATCH", f"{site.v3}/topics/t", body)).code == 40002
    assert (await site.ask("PATCH", f"{site.v3}/topics/none", b'{"partitions_count": 2}')).code == 40401


async def test_a_topics_settings(site: Site) -> None:
    configs = f"{site.v3}/topics/t/configs"
    listed = (await site.get(configs)).json()
    assert listed["kind"] == "KafkaTopicConfigList"
    assert {entry["name"] for entry in listed["data"]} >= {"retention.ms", "max.message.bytes", "commit.protocol"}
    assert all(entry["is_default"] for entry in listed["data"])
    assert (await site.ask("PUT", f"{configs}/retention.ms", b'{"value":"77"}')).status == 204
    entry = (await site.get(f"{configs}/retention.ms")).json()
    assert (entry["value"], entry["is_default"], entry["source"]) == ("77", False, "DYNAMIC_TOPIC_CONFIG")
    assert [synonym["value"] for synonym in entry["synonyms"]] == ["77", "604800000"]
    changes = [
        {"name": "retention.ms", "operation": "DELETE"},
        {"name": "segment.ms", "value": "9", "operation": "SET"},
    ]
    assert (await site.post(f"{configs}:alter", {"data": changes, "validate_only": True})).status == 204
    assert (await site.get(f"{configs}/retention.ms")).json()["value"] == "77"
    assert (await site.post(f"{configs}:alter", {"data": changes})).status == 204
    assert (await site.get(f"{configs}/retention.ms")).json()["value"] == "604800000"
    assert (await site.get(f"{configs}/segment.ms")).json()["value"] == "9"
    assert (await site.ask("DELETE", f"{configs}/segment.ms")).status == 204
    assert (await site.get(f"{configs}/segment.ms")).json()["is_default"]
    everything = (await site.get(f"{site.v3}/topics/-/configs")).json()["data"]
    assert {entry["topic_name"] for entry in everything} == {"t"}


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("PUT", "/topics/t/configs/retention.mss", b'{"value":"1"}'),
        ("PUT", "/topics/t/configs/retention.ms", b'{"value":"soon"}'),
        ("PUT", "/topics/t/configs/retention.ms", b"{}"),
        ("PUT", "/topics/t/configs/commit.protocol", b'{"value":"isr"}'),
        ("DELETE", "/topics/t/configs/nothing", None),
        ("POST", "/topics/t/configs:alter", b'{"data":[{"name":"retention.ms","operation":"APPEND"}]}'),
        ("POST", "/topics/t/configs:alter", b'{"data":[{"name":"retention.ms","operation":"DELETE","value":"1"}]}'),
        ("POST", "/topics/t/configs:alter", b'{"data":[{"name":"segment.ms"},{"name":"segment.ms"}]}'),
    ],
)
async def test_bad_settings_are_refused(site: Site, method: str, path: str, body: bytes | None) -> None:
    reply = await site.ask(method, site.v3 + path, body)
    assert (reply.status, reply.code) == (400, 40002)
    assert site.broker.topic("t").configs == {}


async def test_a_brokers_settings_are_shown(site: Site) -> None:
    configs = (await site.get(f"{site.v3}/brokers/1/configs")).json()["data"]
    assert all(entry["broker_id"] == 1 for entry in configs)
    assert [entry["name"] for entry in configs if not entry["is_read_only"]] == ["log.level"]
    entry = (await site.get(f"{site.v3}/brokers/1/configs/num.partitions")).json()
    assert (entry["kind"], entry["value"]) == ("KafkaBrokerConfig", "1")
    assert (await site.get(f"{site.v3}/brokers/1/configs/nothing")).code == 40400
    assert (await site.get(f"{site.v3}/brokers/2/configs")).code == 40400


async def test_partitions_offsets_and_replicas(site: Site) -> None:
    await site.produce(1, 2)
    base = f"{site.v3}/topics/t/partitions"
    (partition,) = (await site.get(base)).json()["data"]
    assert partition == (await site.get(f"{base}/0")).json()
    assert (partition["partition_id"], partition["leader_epoch"]) == (0, 0)
    assert partition["leader"]["related"].endswith("/topics/t/partitions/0/replicas/1")
    offset = (await site.get(f"{base}/0/offset?offset_type=earliest_and_latest")).json()
    assert (offset["earliest_offset"], offset["latest_offset"]) == (0, 2)
    (replica,) = (await site.get(f"{base}/0/replicas")).json()["data"]
    assert replica == (await site.get(f"{base}/0/replicas/1")).json()
    assert (replica["broker_id"], replica["is_leader"], replica["is_in_sync"]) == (1, True, True)
    assert (await site.get(f"{base}/0/replicas/2")).code == 40400
    assert (await site.get(f"{base}/1")).code == 40402
    assert (await site.get(f"{base}/0/offset?offset_type=max")).code == 40002


async def test_producer_ids_are_never_given_twice(site: Site) -> None:
    first = await site.ask("POST", f"{site.v3}/producer-ids")
    assert first.status == 201
    assert first.json()["producer_epoch"] == 0
    seen = {first.json()["producer_id"]}
    await site.restart()
    for _ in range(3):
        seen.add((await site.ask("POST", f"{site.v3}/producer-ids", b"{}")).json()["producer_id"])
    assert len(seen) == 4
    assert all(producer_id < 2**62 for producer_id in seen)


async def test_no_route_serves_another_cluster(site: Site) -> None:
    for route in ROUTES:
        if "{cluster_id}" in route.path:
            path = re.sub(r"\{cluster_id\}", "other", route.template)
            reply = await site.ask(route.method, re.sub(r"\{\w+\}", "0", path), None if route.is_read else b"{}")
            assert (reply.status, reply.code) == (404, 40400), path
            assert f"this broker belongs to cluster {site.broker.cluster_id}, not to 'other'" in reply.message


async def test_the_level_of_a_brokers_log_is_the_one_setting_that_changes_while_it_runs(site: Site) -> None:
    configs = f"{site.v3}/brokers/1/configs"

    async def put(name: str, value: str | None) -> int:
        body = json.dumps({"value": value}).encode()
        return (await site.ask("PUT", f"{configs}/{name}", body, {"Content-Type": "application/json"})).status

    async def shown() -> tuple[str, str]:
        config = (await site.get(f"{configs}/log.level")).json()
        return config["value"], config["source"]

    before = structlog.get_config()
    try:
        assert await put("log.level", "warning") == 204
        assert await shown() == ("warning", "DYNAMIC_BROKER_CONFIG")
        assert structlog.get_config()["wrapper_class"] is structlog.make_filtering_bound_logger("warning")
        for name, value in (("log.level", "loud"), ("log.format", "json")):
            assert await put(name, value) == 400
        assert await put("log.levels", "debug") == 404
        assert await shown() == ("warning", "DYNAMIC_BROKER_CONFIG")
        assert (await site.ask("DELETE", f"{configs}/log.level")).status == 204
        assert await shown() == ("info", "DEFAULT_CONFIG")
        assert await put("log.level", "error") == await put("log.level", None) == 204
        assert await shown() == ("info", "DEFAULT_CONFIG")
    finally:
        structlog.configure(**before)
