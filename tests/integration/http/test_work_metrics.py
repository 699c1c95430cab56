"""A broker shows what its work and its clock are like."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.integration.http.conftest import AS_JSON, Site


def value(site: Site, name: str, **labels: str) -> float:
    found = site.server.context.metrics_page.registry.get_sample_value(f"tidelog_{name}", labels)
    assert found is not None
    return found


async def test_work_and_clock_are_shown(site: Site) -> None:
    before = value(site, "fsync_round_seconds_count")
    slices = value(site, "large_slices_total")
    assert (await site.produce(*range(9_000))).status == 200
    assert value(site, "fsync_round_seconds_count") > before
    assert value(site, "fsync_round_seconds_bucket", le="+Inf") == value(site, "fsync_round_seconds_count")
    assert value(site, "large_slices_total") > slices
    assert value(site, "partitions_open") == 1
    assert (value(site, "large_jobs"), value(site, "large_jobs_waiting")) == (0, 0)
    assert (value(site, "clock_offset_seconds"), value(site, "clock_is_off")) == (0, 0)


async def test_partitions_are_shown_while_they_are_opened(site: Site) -> None:
    making = asyncio.create_task(site.topic("many", 200))
    seen = 0.0
    while not making.done():
        seen = max(seen, value(site, "partitions_opening"))
        await asyncio.sleep(0)
    await making
    assert seen > 0
    assert value(site, "partitions_opening") == 0


async def test_the_loops_busy_share_is_measured(site: Site) -> None:
    await site.until(lambda: value(site, "loop_busy_share") > 0)
    assert value(site, "loop_busy_share") <= 1


async def test_what_a_topic_takes_in_and_gives_out_is_counted(site: Site) -> None:
    def totals(topic: str) -> list[float]:
        names = ("in_bytes", "in_records", "out_bytes", "out_records")
        return [value(site, f"topic_{name}_total", topic=topic) for name in names]

    await site.topic("u")
    assert totals("(others)") == [0, 0, 0, 0]
    for _ in range(2):
        assert (await site.produce(1, 2, 3, topic="u")).status == 200
    size = value(site, "topic_in_bytes_total", topic="u")
    assert size == site.broker.stats.appended_bytes
    assert totals("u") == [size, 6, 0, 0]
    assert (await site.get("/topics/u/partitions/0/batches?offset=1")).status == 200
    assert totals("u") == [size, 6, size, 5]
    await site.get("/topics/u/partitions/0/batches?offset=6")
    assert totals("u") == [size, 6, size, 5]
    await site.broker.admin.delete_topic("u")
    assert (
        site.server.context.metrics_page.registry.get_sample_value("tidelog_topic_in_bytes_total", {"topic": "u"})
        is None
    )


async def test_the_stages_of_produces_and_fetches_are_counted(site: Site) -> None:
    def counts(request: str, *stages: str) -> list[float]:
        return [value(site, "stage_seconds_count", request=request, stage=stage) for stage in stages]

    produce, fetch = ("turn", "queue", "append", "replicate"), ("turn", "wait", "read", "send")
    flushes = value(site, "stage_seconds_count", request="produce", stage="flush")
    assert [*counts("produce", *produce), *counts("fetch", *fetch)] == [0] * 8
    for _ in range(3):
        assert (await site.produce(*range(100))).status == 200
    assert counts("produce", *produce) == [3, 3, 3, 3]  # requests, not records
    assert value(site, "stage_seconds_count", request="produce", stage="flush") >= flushes + 3
    assert (await site.produce(1, query="?acks=1")).status == 200
    assert counts("produce", *produce) == [4, 4, 4, 3]
    await site.topic("p", commit_protocol="paxos")
    assert (await site.produce(1, topic="p")).status == 200
    assert counts("produce", *produce) == [5, 5, 5, 4]
    url = "/topics/t/partitions/0/batches?offset"
    assert (await site.get(f"{url}=0")).status == 200
    assert counts("fetch", *fetch) == [1, 0, 1, 0]
    assert (await site.get(f"{url}=301&wait_ms=1")).status == 200
    assert counts("fetch", *fetch) == [2, 1, 3, 0]
    assert (await site.produce("x" * 200_000)).status == 200
    assert (await site.get(f"{url}=301")).status == 200
    assert (await site.get("/topics/t/partitions/0/records?offset=301", AS_JSON)).status == 200
    assert counts("fetch", *fetch) == [4, 1, 5, 2]
    assert (await site.get(f"{url}=0&to=301")).status == 200
    assert counts("fetch", *fetch) == [5, 1, 6, 3]


async def test_every_metric_of_this_page_is_in_the_documentation(site: Site) -> None:
    page = (Path(__file__).parents[3] / "docs/http-api.md").read_text()
    names = (
        "fsync_round_seconds",
        "partitions_open",
        "partitions_opening",
        "stage_seconds",
        "loop_busy_share",
        "large_jobs",
        "large_slices_total",
        "clock_offset_seconds",
    )
    text = (await site.get("/metrics")).body.decode()
    for name in names:
        assert f"tidelog_{name}" in text
        assert f"`{name}`" in page
