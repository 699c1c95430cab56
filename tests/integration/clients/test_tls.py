"""Clusters whose brokers and clients speak TLS: clients, commands, deaths, joins, and certificates that change."""

from __future__ import annotations

import asyncio
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.cli.conftest import Cli
from tidelog.admin import AdminClient
from tidelog.consumer import Consumer
from tidelog.model.errors import TidelogError
from tidelog.producer import Producer
from tidelog.spark.cluster import find_cluster
from tidelog.testing import LocalCluster
from tidelog.testing.certificates import ClusterCertificates
from tidelog.transport.errors import ConnectFailed
from tidelog.transport.security import Security

pytestmark = [pytest.mark.process, pytest.mark.e2e]
PATIENCE_S = 30.0


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with LocalCluster(brokers=3, tls=True, data_dir=tmp_path_factory.mktemp("cluster")) as running:
        yield running


def made_for(cluster: LocalCluster) -> ClusterCertificates:
    assert cluster.certificates is not None
    return cluster.certificates


def asked(cluster: LocalCluster, path: str, node_id: int = 1) -> str:
    context = ssl.create_default_context(cafile=made_for(cluster).ca)
    with urllib.request.urlopen(cluster.broker(node_id).url + path, context=context, timeout=PATIENCE_S) as answer:
        return str(answer.read().decode())


def metric(cluster: LocalCluster, name: str, node_id: int = 1) -> float:
    lines = asked(cluster, "/metrics", node_id).splitlines()
    return float(next((line.split()[-1] for line in lines if line.startswith(name + " ")), 0))


async def until_metric(cluster: LocalCluster, name: str, at_least: float, node_id: int = 1) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while await asyncio.to_thread(metric, cluster, name, node_id) < at_least:
            await asyncio.sleep(0.1)


async def test_records_go_in_and_come_out_and_a_broker_may_die_meanwhile(cluster: LocalCluster) -> None:
    assert cluster.bootstrap.startswith("https://")
    async with AdminClient(cluster.bootstrap, **cluster.security) as admin:
        await admin.create_topic("life", partitions=3, replication_factor=3)
        assert all(broker.address.startswith("https://") for broker in await admin.list_brokers())
    async with Producer(cluster.bootstrap, **cluster.security) as producer:
        for number in range(100):
            await producer.send("life", b"%d" % number)
        await producer.flush()
        await asyncio.to_thread(cluster.kill, 2)
        for number in range(100, 200):
            await producer.send("life", b"%d" % number)
        await producer.flush()
        await asyncio.to_thread(cluster.restart, 2)
    seen = set()
    async with (
        asyncio.timeout(PATIENCE_S),
        Consumer(
            "life", bootstrap_servers=cluster.bootstrap, auto_offset_reset="earliest", **cluster.security
        ) as consumer,
    ):
        async for record in consumer:
            seen.add(int(record.value or b""))
            if len(seen) == 200:
                break


def test_commands_take_kafkas_names_from_a_file_or_the_command_line(
    cluster: LocalCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    tidelog = Cli("", tmp_path, monkeypatch, capfdbinary)
    file = tmp_path / "client.properties"
    file.write_text(f"# how to connect\nsecurity.protocol=SSL\nssl.ca.location = {made_for(cluster).ca}\n")
    address = cluster.broker(1).url.removeprefix("https://")
    listed = tidelog("broker", "list", "--bootstrap", address, "--command-config", str(file))
    assert b"https://" in listed.out, listed.err
    ca = f"ssl.ca.location={made_for(cluster).ca}"
    listed = tidelog("broker", "list", "--bootstrap", f"https://{address}", "--command-property", ca)
    assert listed.status == 0, listed.err
    unknown = tidelog("broker", "list", "--bootstrap", f"https://{address}", "--command-property", "ssl.what=1")
    assert (unknown.status, "ssl.ca.location" in unknown.err) == (2, True)


async def refusal(bootstrap: str, **options: Any) -> str:
    """Returns what a client is told that finds no broker. A slow machine may get no answer in its second; then it tries
    again."""
    while True:
        with pytest.raises(TidelogError) as told:
            async with AdminClient(bootstrap, request_timeout_ms=1000, **options):
                pass
        if "no answer within" not in told.value.message:
            return told.value.message


async def test_who_does_not_trust_the_ca_or_speaks_plain_text_is_told_what_to_set(cluster: LocalCluster) -> None:
    assert "ssl.ca.location" in await refusal(cluster.bootstrap)
    assert "security.protocol=SSL" in await refusal(cluster.bootstrap.replace("https://", "http://"))
    with LocalCluster() as other:
        async with AdminClient(other.bootstrap, security_protocol=None) as admin:
            await admin.list_brokers()
        encrypted = other.bootstrap.replace("http://", "https://")
        assert "set security.protocol to PLAINTEXT" in await refusal(encrypted)


def test_sparks_client_reads_over_tls(cluster: LocalCluster) -> None:
    addresses = tuple(cluster.bootstrap.split(","))
    found = find_cluster(addresses, timeout_s=PATIENCE_S, security=Security("SSL", str(made_for(cluster).ca)))
    assert all(broker.address.startswith("https://") for broker in found.metadata([]).brokers)
    found.close()
    with pytest.raises(ConnectFailed, match=r"ssl\.ca\.location"):
        find_cluster(addresses, timeout_s=1.0)


def test_links_and_addresses_say_https(cluster: LocalCluster) -> None:
    assert '"related":"https://' in asked(cluster, "/v3/clusters").replace(" ", "")
    request = urllib.request.Request(
        cluster.broker(1).url + "/consumers/links",
        b"{}",
        {"Content-Type": "application/vnd.kafka.v2+json", "Accept": "application/vnd.kafka.v2+json"},
    )
    context = ssl.create_default_context(cafile=made_for(cluster).ca)
    with urllib.request.urlopen(request, context=context, timeout=PATIENCE_S) as answer:
        assert b'"base_uri":"https://' in answer.read().replace(b" ", b"")


def test_tls_1_2_is_refused_where_it_is_not_asked_for(cluster: LocalCluster) -> None:
    context = ssl.create_default_context(cafile=made_for(cluster).ca)
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    with pytest.raises(urllib.error.URLError, match=r"(?i)version"):
        urllib.request.urlopen(cluster.broker(1).url + "/healthz", context=context, timeout=PATIENCE_S)


def test_a_broker_joins_over_https(cluster: LocalCluster) -> None:
    node_id = cluster.add()
    assert f'"node_id":{node_id}' in asked(cluster, "/metadata", node_id).replace(" ", "")


# -- certificates that change ----------------------------------------------------------------------------------------


RELOADED = 'tidelog_tls_reloads_total{outcome="done"}'
REFUSED = 'tidelog_tls_reloads_total{outcome="refused"}'


async def test_a_bad_file_is_refused_and_the_old_one_stays(cluster: LocalCluster) -> None:
    file = made_for(cluster).directory / "broker-1.pem"
    good = file.read_bytes()
    before, refused = metric(cluster, RELOADED), metric(cluster, REFUSED)
    file.write_bytes(good[: len(good) // 2])
    await until_metric(cluster, REFUSED, refused + 1)
    assert "the old ones stay in force" in cluster.broker(1).output
    file.write_bytes(good)
    await until_metric(cluster, RELOADED, before + 1)


# -- certificates of clients -----------------------------------------------------------------------------------------


async def test_a_listener_may_ask_its_clients_for_certificates(tmp_path: Path) -> None:
    settings = {"ssl.client.auth": "required"}
    with LocalCluster(tls=True, settings=settings, data_dir=tmp_path) as cluster:
        made = made_for(cluster)
        assert "only clients with a certificate" in await refusal(cluster.bootstrap, **cluster.security)
        mine = {**cluster.security, "ssl_keystore_location": str(made.client("alice"))}
        async with AdminClient(cluster.bootstrap, **mine) as admin:
            assert len(await admin.list_brokers()) == 1
        foreign = {**cluster.security, "ssl_keystore_location": str(ClusterCertificates(tmp_path / "o").client())}
        assert "does not know the CA" in await refusal(cluster.bootstrap, **foreign)
