"""What the code of other proxies gets wrong, each trap under its name."""

from __future__ import annotations

import asyncio

import pytest

from tests.integration.http.conftest import Site
from tests.integration.rest_consumers.conftest import Client, named


async def test_a_commit_takes_the_last_processed_offset_and_shows_the_next(site: Site, client: Client) -> None:
    await client.create()
    await client.subscribe()
    await site.produce(*range(10))
    assert await client.values() == [*range(10)]
    await client.commit(*named(0, offset=4))
    assert await client.committed() == {0: 5}
    await client.commit(*named(0, next_offset=4))
    assert await client.committed() == {0: 4}
    await client.commit()
    assert await client.committed() == {0: 10}
    await client.commit(*named(0, offset=6))
    await client.delete()
    await client.create()
    await client.subscribe()
    assert await client.values() == [7, 8, 9]


@pytest.mark.parametrize("site", [{"rest.commit.semantics": "next"}], indirect=True)
async def test_or_the_next_one_if_the_broker_is_set_so(site: Site, client: Client) -> None:
    await client.create()
    await client.subscribe()
    await site.produce(*range(10))
    assert len(await client.values()) == 10
    await client.commit(*named(0, offset=4))
    assert await client.committed() == {0: 4}
    await client.commit(*named(0, next_offset=5))
    assert await client.committed() == {0: 5}
    await client.commit()
    assert await client.committed() == {0: 10}


async def test_only_a_commit_that_says_so_is_not_waited_for(site: Site, client: Client) -> None:
    await client.create()
    await client.subscribe()
    await site.produce(*range(10))
    await client.read()
    for query in ("", "?async=false"):
        await client.commit(query=query)
        assert await client.committed() == {0: 10}
        await client.commit(*named(0, offset=0))
        assert await client.committed() == {0: 1}
    await client.commit(*named(0, offset=7), query="?async=true")
    async with asyncio.timeout(10):
        while await client.committed() != {0: 8}:
            await asyncio.sleep(0.001)


async def test_a_read_returns_as_soon_as_there_is_a_record(site: Site, client: Client) -> None:
    """Not after the whole time that it may wait: that is longer than a test may take."""
    await client.create(consumer_request_timeout_ms=30_000)
    await client.subscribe()
    await site.produce("a")
    assert await client.values() == ["a"]
    waiting = asyncio.ensure_future(client.values())
    await site.until(lambda: site.broker.purgatory.waiting > 0)
    await site.produce("b")
    assert await waiting == ["b"]


async def test_the_first_read_waits_for_its_partitions(site: Site, client: Client) -> None:
    """The topic comes to be while it waits; so does its assignment."""
    await client.create(consumer_request_timeout_ms=30_000)
    await client.subscribe("later")
    waiting = asyncio.ensure_future(client.values())
    assert await client.assigned() == []
    await site.topic("later")
    await site.produce("a", topic="later")
    assert await waiting == ["a"]


@pytest.mark.parametrize(("flag", "value"), [("auto.commit.enable", "true"), ("enable.auto.commit", True)])
async def test_both_spellings_of_the_flag_are_known(client: Client, site: Site, flag: str, value: object) -> None:
    await client.create(**{flag: value})
    await client.subscribe()
    await site.produce("a", "b")
    assert await client.values() == ["a", "b"]
    assert await client.committed() == {0: 0}
    assert await client.values("?timeout=0") == []
    assert await client.committed() == {0: 2}


async def test_a_record_that_is_larger_than_a_page_is_returned_all_the_same(site: Site, client: Client) -> None:
    await client.create()
    await client.subscribe()
    await site.produce("a" * 1_000, "b" * 1_000)
    for expected in ("a", "b"):
        (value,) = await client.values("?max_bytes=10")
        assert value == expected * 1_000
    assert await client.values("?max_bytes=10&timeout=0") == []
