"""Prints the page of all metrics, `docs/metrics.md`, from a broker: `python -m tools.metrics_reference`.

Families are declared beside what they count, so a broker is asked for them. It has a topic, a group and a listener for
Kafka's clients, because some families have no labels before there is something to count.
"""

from __future__ import annotations

import asyncio
import urllib.request
from typing import Final

from prometheus_client.parser import text_string_to_metric_families

from tidelog.admin import AdminClient
from tidelog.consumer import Consumer
from tidelog.producer import Producer
from tidelog.testing import LocalCluster

HEAD: Final = """\
# Metrics

Generated from a broker's `/metrics` by `make docs`; do not edit. Each broker shows its own in Prometheus' format, at
`http://127.0.0.1:8082/metrics` or on the listener for operators ([settings](config.md), `http.ops.listener`). A
partition's are shown by the broker that leads it, so a sum over all brokers counts each partition once. A counter
counts from the broker's start.

| metric | type | labels | meaning |
|---|---|---|---|
"""
HIDDEN: Final = ("python_", "process_")


async def exposition() -> str:
    """Returns what a broker shows after it was used."""
    async with LocalCluster(kafka=True) as cluster:
        async with AdminClient(cluster.bootstrap) as admin, Producer(cluster.bootstrap) as producer:
            await admin.create_topic("flights")
            await producer.send_and_wait("flights", b"EWR to IAH")
            group = Consumer(
                "flights", bootstrap_servers=cluster.bootstrap, group_id="billing", auto_offset_reset="earliest"
            )
            async with group as consumer:
                await anext(aiter(consumer))
                await consumer.commit()
        return await asyncio.to_thread(_scraped, f"{cluster.bootstrap}/metrics")


def _scraped(url: str) -> str:
    with urllib.request.urlopen(url, timeout=10) as answer:  # noqa: S310 - the URL of a broker that was started here
        text: str = answer.read().decode()
    return text


def page(text: str) -> str:
    """Returns the page of the metrics in an exposition."""
    rows = {}
    for family in text_string_to_metric_families(text):
        if not family.name.startswith(HIDDEN):
            ending = "_total" if family.type == "counter" else ""
            labels = sorted({label for sample in family.samples for label in sample.labels if label != "le"})
            names = ", ".join(f"`{label}`" for label in labels)
            rows[family.name] = f"| `{family.name}{ending}` | {family.type} | {names} | {family.documentation} |\n"
    return HEAD + "".join(rows[name] for name in sorted(rows))


if __name__ == "__main__":
    print(page(asyncio.run(exposition())), end="")
