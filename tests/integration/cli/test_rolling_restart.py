"""`tidelog cluster restart` with brokers that are restarted, one after the other; and `tidelog cluster wait`."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.cli.conftest import Cli
from tidelog.testing import LocalCluster

pytestmark = [pytest.mark.process, pytest.mark.e2e]


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    """Each test leaves it whole."""
    with LocalCluster(brokers=3, settings={"broker.heartbeat.interval.ms": "200"}) as cluster:
        yield cluster


@pytest.fixture
def cli(
    cluster: LocalCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> Cli:
    return Cli(cluster.bootstrap, tmp_path, monkeypatch, capfdbinary)


class Supervisor(threading.Thread):
    """Restarts the broker for which a file named by its id turns up, and removes that then."""

    COMMAND = "touch {node}; while test -e {node}; do sleep 0.05; done"

    def __init__(self, cluster: LocalCluster, directory: Path) -> None:
        super().__init__(daemon=True)
        self.restarted: list[int] = []
        self._cluster, self._directory = cluster, directory
        self._is_over = threading.Event()

    def run(self) -> None:
        while not self._is_over.wait(0.05):
            for node_id in self._cluster.node_ids:
                asked = self._directory / str(node_id)
                if asked.exists():
                    self._cluster.broker(node_id).stop()
                    self._cluster.restart(node_id)
                    self.restarted.append(node_id)
                    asked.unlink()

    def end(self) -> None:
        self._is_over.set()
        self.join()


def test_all_brokers_are_restarted_and_the_controller_is_the_last(
    cli: Cli, cluster: LocalCluster, tmp_path: Path
) -> None:
    cli.succeed("topic", "create", "t", "--partitions", "3", "--replication-factor", "3")
    described = json.loads(cli.succeed("cluster", "describe", "--json"))
    supervisor = Supervisor(cluster, tmp_path)
    supervisor.start()
    shown = cli.succeed("cluster", "restart", "--rolling", "--command", supervisor.COMMAND)
    supervisor.end()
    assert sorted(supervisor.restarted) == cluster.node_ids
    assert supervisor.restarted[-1] == described["controller_id"]
    assert [line for line in shown.decode().splitlines() if line.endswith("is back")] == [
        f"broker {node_id}: is back" for node_id in supervisor.restarted
    ]
    epochs = {broker["broker_id"]: broker["broker_epoch"] for broker in described["brokers"]}
    after = json.loads(cli.succeed("cluster", "describe", "--json"))["brokers"]
    assert all(broker["broker_epoch"] > epochs[broker["broker_id"]] for broker in after)


def test_it_is_shown_first_what_would_be_run(cli: Cli) -> None:
    words = ["cluster", "restart", "--rolling", "--dry-run", "--command", "systemctl restart tidelog@{node} # {host}"]
    planned = json.loads(cli.succeed(*words, "--json"))
    assert planned["outcome"] == "planned"
    lines = {step["broker_id"]: step["command"] for step in planned["brokers"]}
    assert lines == {node_id: f"systemctl restart tidelog@{node_id} # 127.0.0.1" for node_id in (1, 2, 3)}


def test_it_stops_at_the_first_thing_that_goes_wrong(cli: Cli) -> None:
    failed = cli("cluster", "restart", "--rolling", "--command", "exit 3")
    assert failed.status == 1 and failed.err.endswith("the command ended with status 3: exit 3\n")
    assert failed.out.count(b"\n") == 1, "one broker, no more"
    idle = cli("cluster", "restart", "--rolling", "--command", "true", "--wait", "1")
    assert idle.status == 1 and "has not been started again" in idle.err


def test_what_makes_no_sense_is_refused(cli: Cli) -> None:
    (reason,) = cli.fail("cluster", "restart", "--command", "true", status=2)
    assert "say --rolling" in reason
    (reason,) = cli.fail("cluster", "restart", "--rolling", "--command", "restart {broker}", status=2)
    assert "{node}, {host} and {rack}" in reason


# -- waiting for a cluster -------------------------------------------------------------------------------------------


def test_wait_says_what_is_missing(cli: Cli, cluster: LocalCluster) -> None:
    assert cli.succeed("cluster", "wait").decode() == f"cluster {cluster.cluster_id} is whole: 3 brokers\n"
    (reason,) = cli.fail("cluster", "wait", "--brokers", "4", "--wait", "1")
    assert "3 of 4 brokers have joined" in reason


def test_wait_outlasts_a_start(cli: Cli, cluster: LocalCluster) -> None:
    cluster.kill(*cluster.node_ids)
    reason, *_ = cli.fail("cluster", "wait", "--wait", "1")
    assert "no broker answers" in reason
    start = threading.Thread(target=cluster.restart, args=cluster.node_ids)
    start.start()
    assert json.loads(cli.succeed("cluster", "wait", "--brokers", "3", "--json"))["brokers"] == cluster.node_ids
    start.join()
