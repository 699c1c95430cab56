"""The cluster that tests use: what it starts, breaks and cleans up, and what it says when that fails."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from tidelog.testing import BrokerFailed, LocalCluster

pytestmark = [pytest.mark.process, pytest.mark.e2e, pytest.mark.usefixtures("executed")]


def ask(cluster: LocalCluster, timeout_s: float = 5.0) -> int:
    with urllib.request.urlopen(f"{cluster.bootstrap}/readyz", timeout=timeout_s) as answer:
        status: int = answer.status
        return status


def test_a_broker_is_broken_and_comes_back_at_its_old_place() -> None:
    with LocalCluster(settings={"broker.rack": "r1"}) as cluster:
        broker = cluster.broker()
        address, identity, directory = cluster.bootstrap, cluster.cluster_id, broker.data_dir
        assert ask(cluster) == 200
        assert "--set broker.rack=r1" in " ".join(broker.command)
        first = broker.pid
        cluster.pause()
        with pytest.raises(TimeoutError):
            ask(cluster, timeout_s=0.05)
        cluster.resume()
        assert ask(cluster) == 200
        cluster.kill()
        assert not broker.is_running
        with pytest.raises(BrokerFailed, match="not running"):
            _ = broker.pid
        cluster.restart()
        assert broker.pid != first
        assert (cluster.bootstrap, cluster.cluster_id) == (address, identity)
        cluster.pause()  # and it is stopped all the same
    assert not broker.is_running
    assert not directory.exists()


async def test_in_async_code_it_does_not_block(tmp_path: Path) -> None:
    async with LocalCluster(data_dir=tmp_path) as cluster:
        assert await asyncio.to_thread(ask, cluster) == 200
        cluster.stop()
    assert (tmp_path / "broker-1" / "data").is_dir(), "a directory of the caller's is kept"


def test_a_broker_that_does_not_start_shows_why_and_leaves_nothing_behind() -> None:
    cluster = LocalCluster(settings={"log.retention.msec": "1"})
    with pytest.raises(BrokerFailed, match=r"died at start, exit status [1-9]\d*\n(?s:.*)log\.retention\.ms"):
        cluster.start()
    assert not cluster.broker().is_running


def test_a_broker_that_takes_too_long_is_killed() -> None:
    cluster = LocalCluster(start_timeout_s=0.01)
    with pytest.raises(BrokerFailed, match="not ready in time"):
        cluster.start()
    assert not cluster.broker().is_running


def test_settings_of_the_environment_do_not_leak_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDELOG_HTTP_LISTENER", "127.0.0.1:1")
    monkeypatch.setenv("TIDELOG_NO_SUCH_SETTING", "1")
    with LocalCluster() as cluster:
        assert ask(cluster) == 200


@pytest.mark.parametrize("brokers", [0, 10])
def test_a_cluster_has_at_least_one_broker_and_at_most_nine(brokers: int) -> None:
    with pytest.raises(ValueError, match="1 to 9 are possible"):
        LocalCluster(brokers=brokers)


def test_several_brokers_know_each_other_before_they_start(tmp_path: Path) -> None:
    cluster = LocalCluster(brokers=3, data_dir=tmp_path, settings={"num.partitions": "2"})
    commands = [cluster.broker(node_id).command for node_id in cluster.node_ids]
    voters = {word for command in commands for word in command if word.startswith("cluster.voters=")}
    peers = [command[command.index("--peer") + 1] for command in commands]
    assert voters == {"cluster.voters=" + ",".join(f"{node_id}@{peer}" for node_id, peer in enumerate(peers, start=1))}
    assert len({command[command.index("--http") + 1] for command in commands} | {*peers}) == 6
    cluster.close()


def test_the_plugin_gives_a_running_cluster(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(
        "def test_it(tidelog_cluster):\n    assert tidelog_cluster.broker().is_running\n"
    )
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tidelog.testing.pytest_plugin", "-p", "no:cacheprovider"]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
    ran = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout
    assert "1 passed" in ran.stdout
