"""The audit log of broker processes: changes, refused peers, rotation, and a file that cannot be had."""

from __future__ import annotations

import asyncio
import json
import socket
import stat
import struct
from pathlib import Path
from typing import Any

import pytest

from tests.integration.cli.conftest import Cli
from tidelog.admin import AdminClient
from tidelog.consumer import Consumer, TopicPartition
from tidelog.model.quotas import Entity
from tidelog.testing import BrokerFailed, LocalCluster

pytestmark = [pytest.mark.process, pytest.mark.e2e]


def lines_of(*paths: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for path in paths for line in path.read_bytes().splitlines()]


def test_changes_and_strangers_at_the_peer_port_are_on_record(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    settings = {
        "audit.log.file": str(path),
        "audit.log.bytes.max": "2000",
        "audit.log.files.max": "3",
        "audit.log.topic": "true",
    }

    async def change(bootstrap: str) -> tuple[str, int]:
        """Changes this and that; returns where brokers are expected."""
        async with AdminClient(bootstrap) as admin:
            for number in range(6):
                await admin.create_topic(f"t{number}")
            await admin.alter_quotas({Entity("alice"): {"request_rate": 5.0}})
            [voter] = (await admin.describe_cluster()).voters
        async with Consumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest") as consumer:
            consumer.assign([TopicPartition("__audit", 0)])
            read = [json.loads((await consumer.getone()).value or b"") for _ in range(7)]
            assert [shown(line) for line in read[:2]] == [("changed", "Create", f"t{number}") for number in range(2)]
        return voter.host, voter.port

    with (
        LocalCluster(1, settings=settings) as cluster,
        socket.create_connection(asyncio.run(change(cluster.bootstrap)), timeout=20) as stranger,
    ):
        stranger.sendall(struct.pack("!I", 40) + b"\x09" + bytes(39))  # a frame of another version
        while stranger.recv(4096):
            pass
    kept = sorted(tmp_path.glob("audit.log*"), key=lambda found: found.name, reverse=True)
    assert 1 < len(kept) <= 3
    assert {stat.S_IMODE(found.stat().st_mode) for found in kept} == {0o600}
    lines = lines_of(*kept)
    assert lines[-1]["operation"] == "ClusterAction" and lines[-1]["address"] == "127.0.0.1"
    assert shown(lines[-2]) == ("changed", "AlterConfigs", "user alice: {'request_rate': 5.0}")
    assert shown(lines[-3]) == ("changed", "Create", "t5")


def shown(line: dict[str, Any]) -> tuple[Any, ...]:
    return line["event"], line["operation"], line["subject"]


def test_a_broker_whose_audit_log_cannot_be_had_does_not_start(tmp_path: Path) -> None:
    cluster = LocalCluster(1, settings={"audit.log.file": str(tmp_path / "nowhere" / "audit.log")})
    with pytest.raises(BrokerFailed, match="nowhere"):
        cluster.start()


@pytest.mark.timeout(300)  # three processes, one after the other
def test_a_recovery_by_an_operator_is_on_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    path = tmp_path / "audit.log"
    settings = {"audit.log.file": str(path)}
    with LocalCluster(1, data_dir=tmp_path / "data", settings=settings, start_timeout_s=60) as cluster:
        broker = cluster.broker(1)
        cluster.stop(1)
        cli = Cli("", tmp_path, monkeypatch, capfdbinary)
        assert cli("cluster", "recover", "--data-dir", str(broker.data_dir), "--execute").status == 0
        for _ in range(2):  # told once
            cluster.restart(1)
    [line] = lines_of(path)
    assert line["subject"].startswith("metadata log begun anew by ")
