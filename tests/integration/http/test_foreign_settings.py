"""What clients of other proxies send beside what is meant is taken, and what is misspelt still is not."""

from __future__ import annotations

import json

import pytest

from tests.integration.http.conftest import BINARY_V2, JSON_V2, Site

IGNORED_SETTINGS = [
    {"topic.metadata.refresh.interval.ms": "1000"},
    {"topic.metadata.refresh.interval.ms": 1000},
    {"isolation.level": "read_committed"},
    {"client.id": {"any": ["thing"]}},
]


@pytest.mark.parametrize("settings", IGNORED_SETTINGS, ids=json.dumps)
async def test_settings_of_consumers_that_mean_nothing(site: Site, settings: dict[str, object]) -> None:
    assert (await site.post("/consumers/g", {"name": "i", "format": "json", **settings})).status == 200


@pytest.mark.parametrize(
    "settings", [{"isolation-level": "x"}, {"requestwaitms": 1}, {"responseMinBytes": -2}, {"requestWaitMs": "soon"}]
)
async def test_what_is_misspelt_or_out_of_bounds(site: Site, settings: dict[str, object]) -> None:
    reply = await site.post("/consumers/g", {"name": "i", **settings})
    is_known = next(iter(settings)).startswith(("response", "requestW"))
    assert reply.code == (42204 if is_known else 40002)


async def test_other_names_of_settings_count(site: Site) -> None:
    """A read waits for as many bytes as were asked for, and no longer than was said."""
    asked = {"name": "i", "auto.offset.reset": "earliest", "responseMinBytes": 1_000_000, "requestWaitMs": 1}
    assert (await site.post("/consumers/g", asked)).status == 200
    instance = "/consumers/g/instances/i"
    assert (await site.post(f"{instance}/assignments", {"partitions": [{"topic": "t", "partition": 0}]})).status == 204
    assert (await site.get(f"{instance}/records")).json() == []
    sought = {"topic": "t", "partition": 0, "timestamp": "2013-01-01T00:00:00Z", "metadata": "m"}
    assert (await site.post(f"{instance}/positions", {"timestamps": [sought]})).status == 204


async def test_schemas_mean_nothing_for_formats_without(site: Site) -> None:
    schemas = {"key_schema": '{"type":"int"}', "value_schema": None, "key_schema_id": 1, "value_schema_id": None}
    for headers, value in ((JSON_V2, 1), (BINARY_V2, "MQ==")):
        assert (await site.post("/topics/t", {**schemas, "records": [{"value": value}]}, headers)).status == 200
    data = {"type": "JSON", "data": 1, "subject": "s", "subject_name_strategy": "TOPIC_NAME", "schema_id": 1}
    data |= {"schema_version": 1, "schema": "{}"}
    assert (await site.post(f"{site.v3}/topics/t/records", {"value": data})).json()["error_code"] == 200
    reply = await site.post(f"{site.v3}/topics/t/records:batch", {"entries": [{"id": "1", "value": data}]})
    assert len(reply.json()["successes"]) == 1
    assert site.values() == [b"1"] * 4


async def test_an_operation_that_is_null_is_set(site: Site) -> None:
    change = {"name": "retention.ms", "value": "5", "operation": None}
    assert (await site.post(f"{site.v3}/topics/t/configs:alter", {"data": [change]})).status == 204
    assert (await site.get(f"{site.v3}/topics/t/configs/retention.ms")).json()["value"] == "5"
