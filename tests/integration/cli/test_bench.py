from __future__ import annotations

import json
import signal
import time
from pathlib import Path

import pytest

from tests.integration.cli.conftest import TIMEOUT_S, Cli
from tidelog.testing import LocalCluster

pytestmark = pytest.mark.process

SMALL = {
    "produce": ("--records", "2000"),
    "consume": ("--records", "2000"),
    "latency": ("--records", "20"),
    "raw": ("--requests", "5", "--batch-bytes", "2000"),
}

CLOSED = ("--security", "tls+token")


@pytest.mark.parametrize("workload", SMALL)
def test_a_workload_on_a_running_broker(cli: Cli, cluster: LocalCluster, workload: str) -> None:
    measured = json.loads(cli.succeed("bench", workload, *SMALL[workload], "--bootstrap", cluster.bootstrap, "--json"))
    assert measured["workload"] == workload
    assert measured["parameters"]["bootstrap"] == cluster.bootstrap
    assert measured["figures"]["records_per_s"] > 0


def test_batches_are_read_if_that_is_asked_for(cli: Cli, cluster: LocalCluster) -> None:
    words = (*SMALL["consume"], "--batches", "--bootstrap", cluster.bootstrap, "--json")
    assert json.loads(cli.succeed("bench", "consume", *words))["parameters"]["batches"] is True


def test_results_are_kept_as_lines(cli: Cli, cluster: LocalCluster, tmp_path: Path) -> None:
    for _ in range(2):
        printed = cli.succeed(
            "bench", "latency", *SMALL["latency"], "--bootstrap", cluster.bootstrap, "--history", "history.ndjson"
        )
        assert printed.split()[0] == b"LATENCY"
    lines = (tmp_path / "history.ndjson").read_text().splitlines()
    assert [json.loads(line)["workload"] for line in lines] == ["latency", "latency"]


def test_a_workload_on_brokers_that_ask_who_is_calling(cli: Cli, tmp_path: Path) -> None:
    with LocalCluster(tls=True, login=True, data_dir=tmp_path / "cluster") as closed:
        file = tmp_path / "client.properties"
        lines = {"ssl.ca.location": closed.security["ssl_ca_location"], "token.file": closed.security["token_file"]}
        file.write_text("".join(f"{name}={value}\n" for name, value in lines.items()))
        words = ("--bootstrap", closed.bootstrap, "--command-config", str(file), "--json")
        for workload, small in SMALL.items():
            measured = json.loads(cli.succeed("bench", workload, *small, *words))
            assert measured["figures"]["records_per_s"] > 0
            assert str(tmp_path) not in json.dumps(measured)


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_the_brokers_of_a_run(cli: Cli, number: int, status: int) -> None:
    with cli.begin("bench", "latency", "--records", "100000000") as measuring:
        try:
            threads = Path(f"/proc/{measuring.pid}/task")
            deadline_s = time.monotonic() + TIMEOUT_S
            while not (brokers := [pid for file in threads.glob("*/children") for pid in file.read_text().split()]):
                assert time.monotonic() < deadline_s, "no broker was started"
                time.sleep(0.02)  # nothing tells of children of another process
            measuring.send_signal(number)
            measuring.communicate(timeout=TIMEOUT_S)
            assert measuring.returncode == status
        finally:
            measuring.kill()
    assert [broker for broker in brokers if Path(f"/proc/{broker}").exists()] == []


@pytest.mark.slow
def test_what_security_costs(cli: Cli) -> None:
    small = ("--rounds", "1", "--requests", "6", "--records", "10", "--connections", "40")
    figures = json.loads(cli.succeed("bench", "security", *small, "--json"))["figures"]
    assert min(figures[f"{level}_1000b_mb_per_s"] for level in ("plain", "tls", "token")) > 0
    assert figures["mtls_connections_per_core_s"] > 0 and figures["token_us"] > 0
    assert figures["acl_check_us"] < figures["acl_definition_us"]


@pytest.mark.slow
def test_how_soon_what_is_revoked_ends(cli: Cli) -> None:
    figures = json.loads(cli.succeed("bench", "revocation", "--times", "2", "--at-once", "2", "--json"))["figures"]
    for kind in ("token", "user", "acl"):
        assert 0 < figures[f"{kind}_p50_ms"] <= figures[f"{kind}_worst_ms"]


@pytest.mark.slow
def test_what_guesses_tell(cli: Cli) -> None:
    """F104, F105, F123."""
    small = ("--logins", "3", "--topics", "5", "--reads", "20", "--guessers", "2")
    figures = json.loads(cli.succeed("bench", "guesses", *small, "--json"))["figures"]
    assert figures["users_apart_ms"] >= 0 <= figures["topics_apart_ms"]
    assert figures["read_alone_p50_ms"] > 0 < figures["read_beside_guesses_p50_ms"]


@pytest.mark.slow
def test_a_broker_joins_under_load(cli: Cli) -> None:
    options = ["--brokers", "1", "--partitions", "4", "--data-mb", "1", "--throttle", "0", "--calm", "0.5", *CLOSED]
    measured = json.loads(cli.succeed("bench", "move", *options, "--json"))
    figures = measured["figures"]
    assert figures["replicas_reassigned"] == figures["replicas_reassigned_least"] == 2
    assert figures["records_read"] == figures["records_acknowledged"] > 1_000
    assert figures["records_different"] == 0


@pytest.mark.slow
def test_failovers_under_load(cli: Cli) -> None:
    measured = json.loads(cli.succeed("bench", "failover", "--kills", "1", "--brokers", "3", "--json"))
    figures = measured["figures"]
    assert figures["failovers"] == 1
    assert figures["records_acknowledged"] == figures["records_read"] > 0
    stalls = [figures[f"produce_stall_{name}_ms"] for name in ("median", "p99", "worst")]
    assert stalls[0] > 0 and stalls == sorted(stalls)


@pytest.mark.slow
def test_a_broker_that_is_paused_under_load(cli: Cli) -> None:
    """A follower that stalls leaves the in-sync set while its broker's session lasts."""
    measured = json.loads(cli.succeed("bench", "pause", "--pauses", "1", "--paused", "4", "--calm", "1", "--json"))
    figures = measured["figures"]
    assert figures["isr_records_acknowledged"] > 0 and figures["paxos_records_acknowledged"] > 0
    assert "isr_shrunk_after_ms" in figures


@pytest.mark.slow
@pytest.mark.parametrize("protocol", ["isr", "paxos"])
def test_damaged_batches_are_repaired_under_load(cli: Cli, protocol: str) -> None:
    words = ("--data-mb", "8", "--damaged", "50", "--calm", "1", "--protocol", protocol)
    figures = json.loads(cli.succeed("bench", "repair", *words, "--json"))["figures"]
    assert figures["repaired"] >= 50 and figures["replicas_whole"] == 3
    assert figures["batches"] > 50 and figures["log_mb"] > 8 and figures["repair_s"] > 0
    assert figures["calm_ack_p50_ms"] > 0


@pytest.mark.slow
def test_members_join_and_leave_a_group(cli: Cli) -> None:
    options = ["--members", "6", "--partitions", "40", "--rounds", "2", *CLOSED]
    figures = json.loads(cli.succeed("bench", "rebalance", *options, "--json"))["figures"]
    assert figures["join_all_reassigned_worst"] == 40
    assert figures["join_one_reassigned_worst"] == figures["join_one_reassigned_least"] == 5
    assert figures["leave_one_reassigned_worst"] == figures["leave_one_reassigned_least"] in (5, 6)
    assert figures["join_all_heartbeats_median"] >= 6
    assert figures["leave_one_heartbeats_median"] >= 1
    assert 0 < figures["calm_healthz_median_ms"] <= figures["calm_healthz_worst_ms"]


@pytest.mark.slow
@pytest.mark.parametrize("brokers", [1, 3])
def test_many_partitions(cli: Cli, brokers: int) -> None:
    made = ("--brokers", str(brokers), "--partitions", "30", "--topic-partitions", "12", "--idle", "0.1")
    closed = CLOSED if brokers == 1 else ()
    more = ("--spread", "10", "--records", "5000", "--latency-at", "1,20", "--latency-records", "20")
    figures = json.loads(cli.succeed("bench", "partitions", *made, *more, *closed, "--json"))["figures"]
    assert figures["topics"] == 3 and figures["partitions_read"] == 30
    assert 0 < figures["created_s"] <= figures["open_s"]
    assert 0 < figures["restart_ready_s"] <= figures["restart_first_read_s"] <= figures["restart_all_read_s"]
    assert figures["writer_worst_ms"] > 0 and figures["writer_refused"] == 0
    assert figures["spread_batches"] >= 10 and figures["spread_requests"] >= 1
    assert figures["at_1_ack_p50_ms"] > 0 and figures["at_20_ack_p50_ms"] > 0


def test_sizes_of_a_cluster_that_are_none(cli: Cli) -> None:
    error = cli.fail("bench", "partitions", "--latency-at", "1,many", status=2)[-1]
    assert "'1,many' is not numbers with commas between" in error


@pytest.mark.slow
def test_rest_consumers_that_nobody_asks(cli: Cli) -> None:
    options = ["--instances", "30", "--groups", "4", "--rounds", "2", "--records", "50", *CLOSED]
    figures = json.loads(cli.succeed("bench", "idle-consumers", *options, "--json"))["figures"]
    assert min(figures[f"{name}_per_s"] for name in ("created", "deleted")) > 0
    assert figures["brokers_before_mb"] > 0
    assert 0 < figures["with_ack_p50_ms"] <= figures["with_ack_p99_ms"]


def test_a_broker_that_is_not_there(cli: Cli) -> None:
    (error,) = cli.fail("bench", "latency", "--bootstrap", "nobody://here")
    assert error.startswith("error: bootstrap address 'nobody://here'")
