"""Kafka's clients over TLS, and by the logins that are offered over it alone."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.abc import AbstractTokenProvider
from aiokafka.errors import KafkaError
from aiokafka.helpers import create_ssl_context

from tests.integration.kafka.conftest import Client, request_frame
from tests.integration.sockets import sockets_closed
from tidelog.admin import AdminClient
from tidelog.broker.kafka.apis import Key
from tidelog.testing import LocalCluster

pytestmark = [pytest.mark.process, pytest.mark.timeout(90)]
PASSWORD = "correct horse battery"
SETTINGS = {
    "kafka.security.protocol": "SASL_SSL",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
}


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(tls=True, kafka=True, settings=SETTINGS) as made:
        yield made


class Shown(AbstractTokenProvider):  # type: ignore[misc] # aiokafka has no types
    def __init__(self, token: str) -> None:
        self._token = token

    async def token(self) -> str:
        return self._token


async def deliver(cluster: LocalCluster, **login: Any) -> int:
    """The offset of a record that aiokafka has delivered."""
    assert cluster.certificates is not None
    producer = AIOKafkaProducer(
        bootstrap_servers=cluster.kafka_bootstrap,
        security_protocol="SASL_SSL",
        ssl_context=create_ssl_context(cafile=str(cluster.certificates.ca)),
        **login,
    )
    async with asyncio.timeout(30), sockets_closed():
        try:
            await producer.start()
            return int((await producer.send_and_wait("t", b"x")).offset)
        finally:
            await producer.stop()


async def test_every_login_over_tls(cluster: LocalCluster) -> None:
    async with AdminClient(cluster.bootstrap, **cluster.security) as admin:
        await admin.create_topic("t")
        await admin.create_user("alice", PASSWORD)
        token = (await admin.create_token("User:alice")).token
    offsets = []
    for mechanism in ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"):
        login = {"sasl_mechanism": mechanism, "sasl_plain_username": "alice"}
        offsets.append(await deliver(cluster, **login, sasl_plain_password=PASSWORD))
        with pytest.raises(KafkaError):
            await deliver(cluster, **login, sasl_plain_password="wrong")
    offsets.append(await deliver(cluster, sasl_mechanism="OAUTHBEARER", sasl_oauth_token_provider=Shown(token)))
    assert offsets == [0, 1, 2, 3]
    with pytest.raises(KafkaError):
        await deliver(cluster, sasl_mechanism="OAUTHBEARER", sasl_oauth_token_provider=Shown(token + "x"))


async def test_plain_text_at_an_encrypted_port_is_cut_off(cluster: LocalCluster) -> None:
    host, _, port = cluster.kafka_bootstrap.rpartition(":")
    client = await Client.open((host, int(port)))
    client.send(request_frame(Key.API_VERSIONS, 0, {}))
    assert await client.receive() == b""
    await client.close()


async def test_kafkas_protocol_at_the_peer_port_is_cut_off() -> None:
    async with LocalCluster(kafka=True) as cluster:
        peer = cluster.broker()._peer
        host, _, port = peer.rpartition(":")
        client = await Client.open((host, int(port)))
        client.send(request_frame(Key.API_VERSIONS, 3, {"client_software_name": "a", "client_software_version": "b"}))
        assert b"details" in await client.receive(), "it is told why, in the words of brokers"
        assert await client.receive() == b""
        await client.close()
