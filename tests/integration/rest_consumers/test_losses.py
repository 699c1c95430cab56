"""Instances that come to records which are lost, and whose loss was accepted."""

from __future__ import annotations

import pytest

from tests.accepted_losses import accept_loss
from tests.integration.http.conftest import Site
from tests.integration.rest_consumers.conftest import Client, named


@pytest.fixture
async def reader(site: Site, client: Client) -> Client:
    """Of a partition whose records 2 and 3 are lost, of 0 to 5."""
    for number in range(6):
        await site.produce(number)
    await accept_loss(site.broker, "t", 2, 4)
    return client


async def test_a_read_ends_before_a_loss_and_the_next_one_fails(reader: Client) -> None:
    await reader.create()
    await reader.assign(0)
    assert await reader.values() == [0, 1]
    for _ in range(2):
        refused = await reader.send("GET", "records")
        assert (refused.status, refused.code) == (410, 41001)
        assert "t-0: the records at offsets 2-3 are lost" in refused.json()["message"]
        assert "POST .../positions and offset 4" in refused.json()["message"]
    await reader.done("POST", "positions", {"offsets": named(0, offset=4)})
    assert await reader.values() == [4, 5]


async def test_an_instance_that_skips_says_what_it_has_skipped(site: Site, reader: Client) -> None:
    await reader.create(on_loss="skip", auto_commit_enable=True)
    await reader.assign(0)
    first, second, third = [await reader.send("GET", "records?timeout=0") for _ in range(3)]
    assert [[record["value"] for record in page.json()] for page in (first, second, third)] == [[0, 1], [4, 5], []]
    assert [page.headers.get("tidelog-lost") for page in (first, second, third)] == [None, "t-0:2-3", None]
    assert await reader.committed() == {0: 6}


async def test_a_loss_at_the_end_is_told_without_records(site: Site, client: Client) -> None:
    await site.produce(0, 1)
    await accept_loss(site.broker, "t", 0, 2)
    await client.create(on_loss="skip", fetch_min_bytes=1_000)
    await client.assign(0)
    page = await client.send("GET", "records?timeout=20000")
    assert (page.json(), page.headers["tidelog-lost"]) == ([], "t-0:0-1")
    await client.commit()
    assert await client.committed() == {0: 2}


async def test_other_partitions_are_read_all_the_same(site: Site, client: Client) -> None:
    await site.topic("u", 1)
    for topic in ("t", "u"):
        await site.produce(*range(3), topic=topic)
    await accept_loss(site.broker, "t", 0, 3)
    await client.create()
    await client.done("POST", "assignments", {"partitions": [{"topic": topic, "partition": 0} for topic in ("t", "u")]})
    pages = [await client.send("GET", "records?timeout=0") for _ in range(3)]
    assert sorted(page.status for page in pages) == [200, 410, 410]
    assert [[record["value"] for record in page.json()] for page in pages if page.status == 200] == [[0, 1, 2]]


async def test_a_setting_that_is_none(client: Client) -> None:
    refused = await client.send("POST", client.group, {"name": "i", "on.loss": "ignore"})
    assert (refused.code, refused.json()["message"]) == (42204, "on.loss must be one of fail, skip, not 'ignore'")


async def test_an_instance_keeps_its_setting_when_its_broker_starts_anew(site: Site, reader: Client) -> None:
    await reader.create(on_loss="skip")
    await reader.assign(0)
    await site.restart()
    assert await reader.values() == [0, 1]
    assert await reader.values() == [4, 5]
