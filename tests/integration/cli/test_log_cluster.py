"""`tidelog log verify --cluster` of a partition whose only replica has lost everything."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from tests.integration.cli.conftest import Cli
from tidelog.admin import AdminClient
from tidelog.testing import LocalCluster

pytestmark = [pytest.mark.process, pytest.mark.e2e]


def test_a_partition_without_a_leader_is_not_called_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    """The partition's new replica is empty, and there is no other replica to differ from."""

    async def create() -> None:
        async with AdminClient(cluster.bootstrap) as admin:
            await admin.create_topic("kept", replicas_assignments={0: [1]})
            await admin.create_topic("lost", replicas_assignments={0: [2]})

    with LocalCluster(brokers=3, settings={"broker.heartbeat.interval.ms": "200"}) as cluster:
        cli = Cli(cluster.bootstrap, tmp_path, monkeypatch, capfdbinary)
        asyncio.run(create())
        assert cli("produce", "lost", stdin=b"EWR to IAH\n").status == 0
        cluster.kill(2)
        cluster.wipe(2)
        cluster.restart(2)
        assert cli.succeed("log", "verify", "--cluster", "--topic", "kept").endswith(
            b"1 replica, all whole and equal\n"
        )
        ran = cli("log", "verify", "--cluster", "--topic", "lost")
        assert (ran.status, b"lost-0: no broker leads it" in ran.out) == (1, True)
        (document,) = json.loads(cli("log", "verify", "--cluster", "--topic", "lost", "--json").out)
        assert (document["is_whole"], document["has_leader"]) == (False, False)
