"""`tidelog admin`: statements that change a cluster, from the command line, from a file, from a terminal."""

from __future__ import annotations

import json
import os
import pty
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.cli.conftest import COMMAND, TIMEOUT_S, Cli, environment
from tidelog.testing import LocalCluster

pytestmark = pytest.mark.process


def test_a_topics_life_in_statements(cli: Cli, topic_names: Iterator[str]) -> None:
    name = next(topic_names)
    assert (
        cli.succeed("admin", f"create topic {name} with 100 partitions").decode()
        == f"created topic {name}: 100 partitions, 1 replica\n"
    )
    shown = cli.succeed("admin", "show topics").decode()
    assert [name, "100", "1", "isr"] in [line.split() for line in shown.splitlines()]
    assert name in [topic["topic_name"] for topic in json.loads(cli.succeed("admin", "show topics", "--json"))]
    assert cli.succeed("admin", f"drop topic {name}").decode() == f"dropped topic {name}\n"
    assert name not in cli.succeed("admin", "show topics").decode().split()


def test_replicas_and_protocol_are_passed_on(cli: Cli, topic_names: Iterator[str]) -> None:
    name = next(topic_names)
    created = json.loads(
        cli.succeed("admin", f"create topic {name} with 2 partitions and 1 replica using isr", "--json")
    )
    assert (created["topic_name"], created["partitions_count"]) == (name, 2)
    assert json.loads(cli.succeed("topic", "describe", name, "--json"))["protocol"] == "isr"
    [line] = cli.fail("admin", f"create topic {next(topic_names)} with 2 partitions and 2 replicas")
    assert "replication factor 2 needs as many brokers" in line


def test_brokers_are_shown(cli: Cli, cluster: LocalCluster) -> None:
    assert cluster.bootstrap in cli.succeed("admin", "show brokers").decode()
    assert json.loads(cli.succeed("admin", "show brokers", "--json"))[0]["broker_id"] == 1


def test_a_cluster_that_is_as_it_should_be(cli: Cli, cluster: LocalCluster) -> None:
    created = cli.succeed("admin", "create cluster with brokers broker-1").decode()
    assert created == f"cluster {cluster.cluster_id} consists of broker-1\n"
    assert json.loads(cli.succeed("admin", "create cluster with brokers broker-1", "--json"))["controller_id"] == 1


def test_brokers_that_are_missing_are_waited_for_and_it_is_said_how_to_start_them(
    cli: Cli, cluster: LocalCluster
) -> None:
    for statement in ("create cluster with brokers broker-1, broker-2", "alter cluster add brokers broker-2"):
        lines = cli.fail("admin", statement, "--wait", "0")
        assert lines[0].startswith(
            f"waiting for broker-2; start it with: tidelog start --node-id 2 --join {cluster.bootstrap} "
        )
        assert lines[1] == "error: broker-2 did not come within 0 s (--wait)"


def test_where_nobody_answers_it_is_said_how_a_cluster_is_founded(cli: Cli) -> None:
    lines = cli.fail("admin", "create cluster with brokers broker-0, broker-1", "--bootstrap", "http://127.0.0.1:1")
    assert lines[0].startswith("error: ")
    assert lines[1].startswith("to found a cluster, start each of broker-0, broker-1 with: tidelog start ")
    assert lines[1].endswith("--set cluster.voters=0@HOST:PEERPORT,1@HOST:PEERPORT")


def test_adding_brokers_that_are_there_says_what_that_means(cli: Cli) -> None:
    added = cli.succeed("admin", "alter cluster add brokers broker-1").decode()
    assert "there was nothing to reassign" in added


def test_a_cluster_with_other_brokers_than_those_named(cli: Cli) -> None:
    [line] = cli.fail("admin", "create cluster with brokers broker-5")
    assert line.startswith("error: the cluster has broker-1 as well;")


def test_removing(cli: Cli) -> None:
    [line] = cli.fail("admin", "alter cluster remove brokers broker-1, broker-7")
    assert line == "error: the cluster has no broker-7; it has broker-1 (40400)"
    [line] = cli.fail("admin", "alter cluster remove brokers broker-1")
    assert "the only one of its cluster" in line


def test_a_statement_that_is_none_is_pointed_at(cli: Cli) -> None:
    assert cli.fail("admin", "create tpoic t", status=2) == [
        "error: 'tpoic' is not expected here; expected cluster or topic",
        "  create tpoic t",
        "         ^^^^^",
    ]


def test_statements_from_a_file_up_to_the_first_that_fails(cli: Cli, topic_names: Iterator[str]) -> None:
    first, second = next(topic_names), next(topic_names)
    script = f"# two topics\ncreate topic {first} with 1 partition;\n\ncreate {second}\nshow topics\n"
    ran = cli("admin", stdin=script.encode())
    assert ran.status == 2
    assert ran.out.decode() == f"created topic {first}: 1 partition, 1 replica\n"
    assert ran.err.startswith(f"error: '{second}' is not expected here;")


@pytest.mark.e2e
def test_a_conversation(cluster: LocalCluster, tmp_path: Path, topic_names: Iterator[str]) -> None:
    name = next(topic_names)
    typed = [f"create topic {name} wi\t3 par\t", "create nonsense", f"drop topic no-{name}", "help", "show topics"]
    shown = converse(cluster.bootstrap, tmp_path, "".join(f"{line}\n" for line in typed) + "\x04")
    assert f"created topic {name}: 3 partitions, 1 replica" in shown
    assert "'nonsense' is not expected here; expected cluster or topic" in shown
    assert "(40401)" in shown
    assert "alter cluster add|remove brokers broker-3, ..." in shown
    history = (tmp_path / "tidelog" / "admin_history").read_text()
    assert f"create topic {name} with 3 partition" in history.splitlines()


def converse(bootstrap: str, state: Path, typed: str) -> str:
    """Returns what a terminal shows when this is typed into `tidelog admin`; it must end well."""
    ours, theirs = pty.openpty()
    variables = environment(TIDELOG_BOOTSTRAP=bootstrap, XDG_STATE_HOME=str(state), TERM="dumb")
    process = subprocess.Popen([*COMMAND, "admin"], stdin=theirs, stdout=theirs, stderr=theirs, env=variables)
    os.close(theirs)
    shown = b""
    with process:
        shown += read_until(ours, b"tidelog> ")
        os.write(ours, typed.encode())
        shown += read_until(ours, None)
        assert process.wait(TIMEOUT_S) == 0
    os.close(ours)
    return shown.decode()


def read_until(terminal: int, wanted: bytes | None) -> bytes:
    """Returns what the terminal shows, up to `wanted` or to the end."""
    shown = b""
    while wanted is None or wanted not in shown:
        try:
            piece = os.read(terminal, 4096)
        except OSError:  # the other end is closed
            break
        if not piece:
            break
        shown += piece
    return shown
