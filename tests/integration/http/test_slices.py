"""A request that opens or builds much is served beside the others, not before them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.integration.http.conftest import Site
from tidelog.broker.routing import json_records
from tidelog.model.batch_header import Compression
from tidelog.model.record_slices import record_slices

RAW = {"Content-Type": "application/vnd.tidelog.batches"}


async def test_other_requests_are_served_between_the_slices_of_a_read(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[str] = []

    def noted(*args: Any, **options: Any) -> Any:
        for part in record_slices(*args, **options):
            events.append("slice")
            yield part

    monkeypatch.setattr(json_records, "record_slices", noted)
    batch = site.batch(*[b"x"] * 50_000, compression=Compression.ZSTD)
    assert (await site.ask("POST", "/topics/t/partitions/0/batches", batch, RAW)).status == 200
    reading = asyncio.ensure_future(site.get("/topics/t/partitions/0/records?offset=0&max_bytes=8000000"))
    async with await site.wire() as other:
        while not reading.done():
            assert (await other.request("GET", "/healthz")).status == 200
            events.append("health")
    assert len((await reading).json()) == 50_000
    first, last = events.index("slice"), len(events) - events[::-1].index("slice")
    assert "health" in events[first:last]
    assert events.count("slice") == 50
