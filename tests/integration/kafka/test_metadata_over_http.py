"""Where brokers listen for Kafka's protocol stands in the metadata that clients over HTTP ask for."""

from __future__ import annotations

import asyncio
import json
from urllib.request import urlopen

from tests.integration.kafka.conftest import KafkaSite


async def test_the_metadata_over_http_has_the_address_of_the_listener(site: KafkaSite) -> None:
    def ask() -> bytes:
        with urlopen(f"http://{site.http.advertised}/metadata?topics=", timeout=10) as answer:
            return bytes(answer.read())

    (broker,) = json.loads(await asyncio.to_thread(ask))["brokers"]
    assert broker["kafka"] == str(site.server.advertised)
