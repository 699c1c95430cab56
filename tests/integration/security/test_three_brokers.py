"""Three real brokers with access control: what one is told holds on all, commands log in, and no secret leaks."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import aiohttp
import pytest

from tests.integration.cli.conftest import Cli
from tidelog.admin import AclDescription, AdminClient
from tidelog.consumer import Consumer, TopicPartition
from tidelog.log import Reader, Writer
from tidelog.model.errors import NotAuthenticated, NotAuthorized
from tidelog.producer import Producer
from tidelog.testing import LocalCluster

pytestmark = [pytest.mark.process, pytest.mark.e2e]

ROOT = "bootstrap." + "5ec2e7" * 8
PASSWORD = "correct-horse-battery-staple"
SETTINGS = {
    "http.authentication": "token,basic",
    "authorizer.enabled": "true",
    "super.users": "User:root",
    "log.level": "debug",
}
ENDED_S = 10.0
JSON = {"Content-Type": "application/json"}


class Secured:
    """The cluster, and the files of those who use it."""

    def __init__(self, cluster: LocalCluster, directory: Path) -> None:
        self.cluster = cluster
        self.directory = directory
        self.root_file = str(directory / "root.token")

    def file(self, name: str, secret: str) -> str:
        path = self.directory / name
        path.write_text(f"{secret}\n")
        path.chmod(0o600)
        return str(path)

    async def create_topic(self) -> None:
        async with self.admin() as admin:
            await admin.create_topic("orders", partitions=3, replication_factor=3)

    def admin(self) -> AdminClient:
        return AdminClient(self.cluster.bootstrap, token_file=self.root_file)


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    directory = tmp_path_factory.mktemp("secured")
    root_file = directory / "root.token"
    root_file.write_text(f"{ROOT}\n")
    root_file.chmod(0o600)
    settings = {**SETTINGS, "http.bootstrap.token.file": str(root_file)}
    with LocalCluster(3, settings=settings, data_dir=directory / "data") as cluster:
        made = Secured(cluster, directory)
        asyncio.run(made.create_topic())
        yield made


@pytest.fixture
def cli(
    secured: Secured, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> Cli:
    """Commands of the first administrator."""
    monkeypatch.setenv("TIDELOG_TOKEN_FILE", secured.root_file)
    return Cli(secured.cluster.bootstrap, tmp_path, monkeypatch, capfdbinary)


def test_commands_manage_users_tokens_and_acls(secured: Secured, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    said = cli.succeed("user", "add", "carol", "--password-file", "-", stdin=f"{PASSWORD}\n".encode())
    assert said == b"made user carol\n"
    assert [user["user_name"] for user in json.loads(cli.succeed("user", "list", "--json"))] == ["carol"]
    cli.succeed("user", "passwd", "carol", "--password-file", secured.file("new", PASSWORD + "2"))
    cli.succeed("acl", "add", "--principal", "User:carol", "--operation", "read", "--topic", "ord", "--prefix")
    assert b"User:carol" in cli.succeed("acl", "list", "--topic", "orders")
    question = ("acl", "check", "--principal", "User:carol", "--operation", "read", "--topic")
    assert cli.succeed(*question, "orders") == b"User:carol may READ TOPIC orders\n"
    assert cli(*question, "payments")[:2] == (1, b"User:carol may not READ TOPIC payments\n")
    removed = cli.succeed("acl", "remove", "--principal", "User:carol", "--topic", "ord", "--prefix")
    assert removed.endswith(b"removed 1 ACL\n")
    file = str(secured.directory / "carol.token")
    assert cli.succeed("token", "add", "User:carol", "--days", "1", "--to", file).endswith(f"is in {file}\n".encode())
    assert Path(file).stat().st_mode & 0o777 == 0o600
    [token] = [one for one in json.loads(cli.succeed("token", "list", "--json")) if one["principal"] == "User:carol"]
    assert "token" not in token
    with monkeypatch.context() as patch:
        patch.setenv("TIDELOG_TOKEN_FILE", file)
        assert "40301" in cli.fail("acl", "list")[0]
        assert "does not exist" in cli.fail("topic", "describe", "orders")[0]
    cli.succeed("token", "revoke", token["token_id"])
    cli.succeed("user", "remove", "carol")
    with monkeypatch.context() as patch:
        patch.setenv("TIDELOG_TOKEN_FILE", file)
        assert "40101" in cli.fail("topic", "list")[0]
        os.chmod(file, 0o644)
        assert "chmod 600" in cli.fail("topic", "list")[0]


async def test_clients_log_in(secured: Secured) -> None:
    async with secured.admin() as admin:
        await admin.create_user("dave", PASSWORD)
        await admin.create_acls([acl("dave", "WRITE"), acl("dave", "READ")])
    servers = secured.cluster.bootstrap
    login = {"sasl_mechanism": "PLAIN", "sasl_username": "dave", "sasl_password": PASSWORD}
    async with Producer(servers, **login) as producer:  # type: ignore[arg-type]  # three strings
        await producer.send_and_wait("orders", b"value", partition=0)
    reader = Consumer("orders", bootstrap_servers=servers, auto_offset_reset="earliest", **login)  # type: ignore[arg-type]  # as above
    async with reader as consumer:
        assert (await asyncio.wait_for(anext(aiter(consumer)), 20)).value == b"value"
    assert PASSWORD not in repr(vars(producer._session)) and PASSWORD not in repr(producer)
    with pytest.raises(NotAuthenticated):
        async with AdminClient(servers):
            pass
    async with AdminClient(servers, sasl_username="dave", sasl_password=PASSWORD) as limited:
        with pytest.raises(NotAuthorized):
            await limited.delete_topic("orders")


def acl(name: str, operation: str) -> AclDescription:
    return AclDescription(
        resource_type="TOPIC",
        resource_name="orders",
        pattern_type="LITERAL",
        principal=f"User:{name}",
        operation=operation,
        permission="ALLOW",
    )


async def test_what_is_revoked_ends_on_every_broker(secured: Secured) -> None:
    """A read that waits, and a stream, at each broker, though one alone is told. F106."""
    async with secured.admin() as admin, aiohttp.ClientSession() as session:
        await admin.create_acls([acl("erin", "READ"), acl("erin", "WRITE")])
        made = await admin.create_token("User:erin")
        headers = {"Authorization": f"Bearer {made.token}"}
        urls = [secured.cluster.broker(node).url for node in secured.cluster.node_ids]
        for url in urls:
            await until_known(session, url, headers)
        reads = [asyncio.create_task(read(session, url, headers)) for url in urls]
        streams = [asyncio.create_task(stream(session, url, secured.cluster.cluster_id, headers)) for url in urls]
        await until_begun(secured, len(streams))
        assert not any(task.done() for task in (*reads, *streams))
        await admin.revoke_token(made.token_id)
        async with asyncio.timeout(ENDED_S):
            assert await asyncio.gather(*reads) == [401] * 3
            assert await asyncio.gather(*streams) == ["cut"] * 3


async def until_known(session: aiohttp.ClientSession, url: str, headers: dict[str, str]) -> None:
    """Brokers apply metadata one after the other."""
    async with asyncio.timeout(ENDED_S):
        while True:
            async with session.get(f"{url}/topics/orders", headers=headers) as response:
                if response.status == 200:
                    return
            await asyncio.sleep(0.02)


async def until_begun(secured: Secured, streams: int) -> None:
    """The record of each stream is there."""
    partition = TopicPartition("orders", 2)
    async with Consumer(bootstrap_servers=secured.cluster.bootstrap, token_file=secured.root_file) as consumer:
        async with asyncio.timeout(ENDED_S):
            while (await consumer.end_offsets([partition]))[partition] < streams:
                await asyncio.sleep(0.02)


async def read(session: aiohttp.ClientSession, url: str, headers: dict[str, str]) -> int:
    target = f"{url}/topics/orders/partitions/1/records?offset=0&timeout=30000"
    async with session.get(target, headers=headers) as response:
        return response.status


async def stream(session: aiohttp.ClientSession, url: str, cluster_id: str, headers: dict[str, str]) -> str:
    async def records() -> AsyncIterator[bytes]:
        yield b'{"partition_id":2,"value":{"type":"JSON","data":1}}'
        await asyncio.sleep(60)

    target = f"{url}/v3/clusters/{cluster_id}/topics/orders/records"
    try:
        async with session.post(target, data=records(), headers={**headers, **JSON}) as response:
            await response.read()
            return "ended"
    except aiohttp.ClientError:
        return "cut"


async def test_a_log_is_written_and_read_by_who_shows_a_token(secured: Secured) -> None:
    servers = secured.cluster.bootstrap
    async with secured.admin() as admin:
        await admin.create_topic("journal", partitions=1, configs={"retention.ms": "-1"})
    with pytest.raises(NotAuthenticated):
        async with Writer(servers, "journal"):
            pass
    async with Writer(servers, "journal", token_file=secured.root_file) as writer:
        position = await writer.append(b"entry")
        async with Reader(servers, "journal", token_file=secured.root_file) as reader:
            assert [entry.data async for entry in reader.read(position, writer.ending)] == [b"entry"]
