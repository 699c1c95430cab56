"""A client logs in alike whichever way records go: by SASL, or over HTTP where that cannot be."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest

from tidelog.admin import AdminClient
from tidelog.consumer import Consumer
from tidelog.producer import Producer
from tidelog.testing import LocalCluster

pytestmark = [pytest.mark.process]

SASL = {"kafka.security.protocol": "SASL_SSL", "sasl.enabled.mechanisms": "OAUTHBEARER,PLAIN"}


@pytest.fixture(scope="module")
def secured() -> Iterator[LocalCluster]:
    pytest.importorskip("cryptography")
    with LocalCluster(kafka=True, tls=True, login=True, settings=SASL) as cluster:
        yield cluster


@pytest.mark.parametrize("way", ["http", "kafka"])
async def test_a_token_is_shown_inside_tls(secured: LocalCluster, way: str) -> None:
    terms: dict[str, Any] = {"bootstrap_servers": secured.bootstrap, **secured.security}
    topic = f"token-{way}"
    async with AdminClient(secured.bootstrap, **secured.security) as admin:
        await admin.create_topic(topic, partitions=1)
    async with Producer(transport=way, **terms) as producer:
        assert (await producer.send_and_wait(topic, b"x" * 100_000)).offset == 0
    async with Consumer(topic, transport=way, auto_offset_reset="earliest", **terms) as consumer:
        assert (await consumer.getone()).value == b"x" * 100_000


async def test_a_listener_that_asks_for_a_login_has_records_of_nobody_by_http(
    caplog: pytest.LogCaptureFixture,
) -> None:
    settings = {"kafka.security.protocol": "SASL_PLAINTEXT", "sasl.enabled.mechanisms": "SCRAM-SHA-256"}
    with LocalCluster(kafka=True, settings=settings) as cluster, caplog.at_level(logging.WARNING):
        async with AdminClient(cluster.bootstrap) as admin:
            await admin.create_topic("t", partitions=1)
        async with Producer(cluster.bootstrap) as producer:
            assert (await producer.send_and_wait("t", b"x")).offset == 0
    assert "it asks for a login, and this client has none" in caplog.text
