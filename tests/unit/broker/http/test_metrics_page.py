"""The page of metrics: what it says of partitions, how it is made in slices, and by how many it is made at a time."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families

from tidelog.broker.http.metrics_page import SLICE_PARTITIONS, MetricsPage, partition_text
from tidelog.broker.runtime.heavy_work import HeavyWork
from tidelog.model.steps import drive
from tidelog.sim.kit.loop import run


def led(number: int, **changes: Any) -> Any:
    values = {
        "topic": "t",
        "partition": number,
        "log_start_offset": 1,
        "high_watermark": 20,
        "log_end_offset": 300,
        "leader_epoch": 4,
        "in_sync": (1, 2, 3),
        "replica_lags": {2: 0, 3: 7},
        "is_writable": True,
    }
    return SimpleNamespace(**{**values, **changes})


def face_of(*partitions: Any) -> Any:
    statistics = SimpleNamespace(led=dict(enumerate(partitions)))
    return SimpleNamespace(statistics=statistics, readiness=SimpleNamespace(is_ready=True), work=HeavyWork())


def samples(text: bytes, name: str) -> dict[tuple[str, ...], float]:
    """The samples of one family, by the values of their labels."""
    (found,) = (one for one in text_string_to_metric_families(text.decode()) if one.name == name)
    assert found.documentation and found.type == "gauge"
    return {tuple(sample.labels.values()): sample.value for sample in found.samples}


def test_each_partition_tells_its_extent_its_replicas_and_its_epoch() -> None:
    text = drive(partition_text(face_of(led(0), led(1, high_watermark=21))))
    assert samples(text, "tidelog_partition_high_watermark") == {("0", "t"): 20, ("1", "t"): 21}
    assert samples(text, "tidelog_partition_log_start_offset")["0", "t"] == 1
    assert samples(text, "tidelog_partition_log_end_offset")["0", "t"] == 300
    assert samples(text, "tidelog_partition_leader_epoch")["0", "t"] == 4
    assert samples(text, "tidelog_partition_in_sync_replicas")["0", "t"] == 3
    assert samples(text, "tidelog_replica_lag_records")["0", "3", "t"] == 7


def test_partitions_that_lack_replicas_are_counted() -> None:
    text = drive(partition_text(face_of(led(0), led(1, in_sync=(1, 2)), led(2, in_sync=(1,), is_writable=False))))
    assert samples(text, "tidelog_under_replicated_partitions") == {(): 2}
    assert samples(text, "tidelog_under_min_isr_partitions") == {(): 1}


def test_many_partitions_are_written_in_slices() -> None:
    slices = sum(1 for _ in partition_text(face_of(*map(led, range(10 * SLICE_PARTITIONS)))))
    assert slices >= 10


def test_a_page_of_few_partitions_takes_no_turns() -> None:
    assert not list(partition_text(face_of(*map(led, range(SLICE_PARTITIONS)))))


def test_who_asks_while_a_page_is_made_gets_that_page() -> None:
    async def main() -> None:
        page = MetricsPage(CollectorRegistry(), face_of(*map(led, range(3 * SLICE_PARTITIONS))))
        first, second = await asyncio.gather(page.text(), page.text())
        assert first is second
        assert await page.text() is not first

    run(main)


def test_a_client_that_goes_away_does_not_take_the_page_from_others() -> None:
    async def main() -> None:
        page = MetricsPage(CollectorRegistry(), face_of(*map(led, range(3 * SLICE_PARTITIONS))))
        leaving, waiting = asyncio.ensure_future(page.text()), asyncio.ensure_future(page.text())
        await asyncio.sleep(0)
        leaving.cancel()
        assert samples(await waiting, "tidelog_partition_leader_epoch")

    run(main)
