"""The parts of the benchmark that can be wrong without anybody noticing: percentiles, rates, payloads, history."""

from __future__ import annotations

import json
import zlib
from pathlib import Path

import pytest

from tidelog.bench.costs import APPENDED, FETCHES, FRAMES, FSYNC_BYTES, FSYNCS, REPORTS, Cpu, Reading, costs
from tidelog.bench.growth import steps_of as steps_of_growth
from tidelog.bench.history import append_history
from tidelog.bench.log import LogOptions, LogRun
from tidelog.bench.log_replica import DISTINCT as PAYLOADS
from tidelog.bench.log_replica import Measured, make_payloads
from tidelog.bench.many_partitions import steps_of as steps_of_many
from tidelog.bench.many_partitions import writer_figures
from tidelog.bench.move import Sample, rates_of
from tidelog.bench.partition_options import PartitionsOptions, counts_of, pieces
from tidelog.bench.pause import BROKERS, Done, Pause, Whom, choose, figures
from tidelog.bench.payload import DISTINCT, make_values
from tidelog.bench.probe import Probe
from tidelog.bench.rebalance import Change, Changes
from tidelog.bench.rebalance import figures_of as rebalance_figures
from tidelog.bench.result import Result, ignore, percentiles_ms, rates
from tidelog.bench.scale import ScaleOptions, measure_scale
from tidelog.bench.secured import Level
from tidelog.bench.security import SIZES, Bursts, Figures
from tidelog.bench.security import figures_of as security_figures
from tidelog.bench.spread import fullness, requests_of
from tidelog.bench.spread import steps_of as steps_of_spread


def test_percentiles_are_of_the_nearest_rank() -> None:
    seconds = [number / 1000 for number in range(1000, 0, -1)]
    assert percentiles_ms(seconds, "x_") == pytest.approx({"x_p50_ms": 500, "x_p99_ms": 990, "x_p999_ms": 999})
    assert percentiles_ms([0.002]) == pytest.approx({"p50_ms": 2, "p99_ms": 2, "p999_ms": 2})
    assert percentiles_ms([0.001, 0.002, 0.003])["p50_ms"] == pytest.approx(2)
    assert percentiles_ms([]) == {}


def test_the_rate_of_a_move_is_that_of_all_of_it_and_of_windows_within() -> None:
    steady = [Sample(100 + second, 1e6 * second) for second in range(11)]
    assert rates_of(steady) == {
        "moved_mb": 10,
        "rate_mb_per_s": 1,
        "rate_window_min_mb_per_s": 1,
        "rate_window_max_mb_per_s": 1,
    }
    stalled = [*steady, Sample(115, 1e7)]
    assert rates_of(stalled)["rate_window_min_mb_per_s"] == 0
    assert rates_of(stalled)["rate_window_max_mb_per_s"] == 1
    assert "rate_window_min_mb_per_s" not in rates_of(steady[:3])
    assert rates_of(steady[:1]) == {}


def test_a_pause_counts_what_was_sent_in_it_and_a_stall_that_outlasts_it() -> None:
    steady = [(second / 10, second / 10 + 0.01) for second in range(100)]
    stalled = [(sent_s, 7.0 if 4.0 <= sent_s < 6.9 else done_s) for sent_s, done_s in steady]
    found = figures(
        {"isr": {0: Done(stalled)}, "paxos": {0: Done(steady)}},
        Done(steady),
        [Pause((0.0, 4.0), (4.0, 5.0), 0, shrunk_s) for shrunk_s in (2.9, 3.1, None)],
    )
    assert found["isr_shrunk_after_ms"] == pytest.approx(3_000)
    assert found["isr_records_acknowledged"] == found["paxos_records_acknowledged"] == 100
    assert [found["isr_calm_ack_p99_ms"], found["paxos_paused_ack_p99_ms"]] == pytest.approx([10, 10])
    assert found["isr_paused_ack_p99_ms"] == pytest.approx(3_000)
    assert found["isr_calm_stall_worst_ms"] == pytest.approx(100), "what the pause begins is the pause's"
    assert found["isr_paused_stall_worst_ms"] == pytest.approx(1000 * (6.91 - 3.91), rel=0.05)
    assert found["paxos_paused_stall_worst_ms"] == found["commit_paused_stall_p50_ms"] == pytest.approx(100)


@pytest.mark.parametrize("controller", BROKERS)
def test_who_sleeps_has_the_role_that_is_meant_and_no_other(controller: int) -> None:
    sleeper, leader = choose(Whom.FOLLOWER, controller, None)
    assert len({sleeper, leader, controller}) == 3
    sleeper, leader = choose(Whom.LEADER, controller, None)
    assert sleeper == leader != controller
    sleeper, leader = choose(Whom.CONTROLLER, controller, None)
    assert sleeper == controller != leader
    for coordinator in BROKERS:
        sleeper, leader = choose(Whom.COORDINATOR, controller, coordinator)
        assert sleeper == coordinator != leader


async def test_a_large_cluster_is_computed() -> None:
    figures = (await measure_scale(ScaleOptions(brokers=6, partitions=250), ignore)).figures
    assert figures["partitions"] == 300, "topics are whole"
    assert figures["fenced_replicas"] == 150, "each broker has its share of three replicas"
    assert 0 < figures["fenced_leaderships"] < figures["fenced_replicas"]
    assert figures["fence_record_bytes"] > 10 * figures["fenced_replicas"]
    assert figures["create_bytes_per_topic"] > 100 and figures["snapshot_mb"] > 0


def test_a_probe_counts_what_was_under_way() -> None:
    probe = Probe()
    for line in (b"1.0 0.5 200\n", b"2.0 0.5 200\n", b"3.0 0.5 503\n"):
        probe.add(line)
    assert probe.between(1.4, 2.0) == [0.5]
    assert probe.between(2.2, 3.1) == [0.5, 0.5]
    assert probe.between(1.6, 1.9) == []
    assert (probe.refused_between(1.0, 3.0), probe.refused_between(1.0, 3.1)) == (0, 1)


def test_rebalances_show_their_median_and_their_worst() -> None:
    changes, probe = Changes(calm=(0, 1)), Probe()
    probe.add(b"0.5 0.001 200")
    probe.add(b"10 0.009 200")
    changes.join_all = [Change(9, 9.5, 40, 40, 12)]
    changes.join_one = [Change(10, 11, 5, 5, 7), Change(20, 23, 9, 5, 9), Change(30, 31, 5, 5, 7)]
    changes.leave_one = [Change(40, 41, 6, 6, 6)]
    found = rebalance_figures(changes, probe)
    assert (found["join_one_stable_median_s"], found["join_one_stable_worst_s"]) == (1, 3)
    assert (found["join_one_reassigned_worst"], found["join_one_reassigned_least"]) == (9, 5)
    assert found["join_one_heartbeats_median"] == 7
    assert (found["calm_healthz_worst_ms"], found["join_one_healthz_worst_ms"]) == (1, 9)
    assert "leave_one_healthz_worst_ms" not in found, "nothing was asked meanwhile"


def test_many_partitions_are_in_topics_of_a_size() -> None:
    assert list(pieces("many", 25, 10)) == [("many-0", 10), ("many-1", 10), ("many-2", 5)]
    assert list(pieces("many", 10, 10)) == [("many-0", 10)]
    assert list(pieces("many", 0, 10)) == []


def test_sizes_of_a_cluster_are_visited_in_ascending_order() -> None:
    assert counts_of("1,1000,100,100") == [1, 100, 1000]
    assert counts_of("") == []
    for wrong in ("0,5", "-1", "many", "1,,2", "1;2"):
        with pytest.raises(ValueError, match=r"invalid literal|a cluster of"):
            counts_of(wrong)


def test_a_part_that_is_not_wanted_has_no_steps() -> None:
    nothing = PartitionsOptions(partitions=0, spread=0, latency_at="")
    everything = PartitionsOptions(
        partitions=25, topic_partitions=10, spread=1, records=20_001, latency_at="1,2", brokers=5
    )
    parts = (steps_of_many, steps_of_spread, steps_of_growth)
    assert [steps_of(nothing) for steps_of in parts] == [0, 0, 0]
    assert [steps_of(everything) for steps_of in parts] == [3 + 6, 3, 2]
    assert (nothing.replicas, everything.replicas) == (1, 3)


def test_a_writer_beside_new_partitions_is_told_of_apart() -> None:
    writer = Probe()
    for line in (b"1.0 0.002 200", b"2.0 0.004 200", b"2.9 0.2 200", b"3.0 0.3 503", b"9.0 7.0 200"):
        writer.add(line)
    found = writer_figures(writer, (0.0, 2.5), (2.5, 5.0))
    assert [found["writer_calm_worst_ms"], found["writer_worst_ms"]] == pytest.approx([4, 300])
    assert [found["writer_calm_p50_ms"], found["writer_p50_ms"]] == pytest.approx([2, 200])
    assert found["writer_refused"] == 1
    assert "writer_p50_ms" not in writer_figures(writer, (0.0, 2.5), (4.0, 5.0)), "nothing was written meanwhile"


def test_how_full_batches_and_requests_were() -> None:
    batches, topic = 'route="/batches",status="200"}', 'route="/topics/{topic}/partitions/{partition}/batches"'
    counters = {
        f'tidelog_http_requests_total{{method="POST",{batches}': 7.0,
        f'tidelog_http_requests_total{{method="POST",{topic},status="200"}}': 1.0,
        f'tidelog_http_requests_total{{method="GET",{topic},status="200"}}': 100.0,
        f'tidelog_http_request_seconds_sum{{method="POST",{batches}': 100.0,
        'tidelog_http_requests_total{method="POST",route="/offsets",status="200"}': 100.0,
    }
    assert requests_of(counters) == 8
    assert fullness(1000, 40, 8) == {
        "batches": 40, "requests": 8, "records_per_batch": 25, "batches_per_request": 5
    }  # fmt: skip
    assert fullness(1000, 0, 0) == {"batches": 0, "requests": 0}


def test_rates_are_per_second() -> None:
    assert rates(1000, 100_000, 0.5) == {"records_per_s": 2000, "mb_per_s": 0.2, "duration_s": 0.5}


def test_costs_are_per_second_per_batch_and_per_byte_of_values() -> None:
    before = Reading(10.0, Cpu(1, 0), (Cpu(5, 1), Cpu(2, 1)), {FSYNCS: 100, FSYNC_BYTES: 1000, APPENDED: 3})
    counters = {FSYNCS: 140, FSYNC_BYTES: 41_000, APPENDED: 13, FETCHES: 20, REPORTS: 5, FRAMES: 5}
    after = Reading(12.0, Cpu(1.25, 0.25), (Cpu(6, 1.5), Cpu(2.25, 1.25)), counters)
    assert costs(before, after, 500_000_000) == {
        "fsyncs_per_s": 20,
        "bytes_per_fsync": 1000,
        "fsyncs_per_batch": 4,
        "messages_per_batch": 5,
        "client_cpu_s_per_gb": 1.0,
        "broker_cpu_s_per_gb": 4.0,
        "brokers_user_ms_per_mb": 2.5,
        "brokers_system_ms_per_mb": 1.5,
        "client_user_s": 0.25,
        "client_system_s": 0.25,
        "broker_1_user_s": 1,
        "broker_1_system_s": 0.5,
        "broker_2_user_s": 0.25,
        "broker_2_system_s": 0.25,
    }


def test_what_is_not_known_is_left_out() -> None:
    reading = Reading(0.0, Cpu(0, 0), (), {})
    later = Reading(1.0, Cpu(0, 0), (), {"process_cpu_seconds_total": 1})
    assert costs(reading, later, 1000) == {"client_cpu_s_per_gb": 0}
    known = Reading(0.0, Cpu(0, 0), (), {"process_cpu_seconds_total": 0.5})
    assert costs(known, later, 500_000_000)["broker_cpu_s_per_gb"] == 1


@pytest.mark.parametrize("size", [0, 1, 100, 1000])
def test_values_have_their_size_and_are_the_same_every_time(size: int) -> None:
    for kind in ("random", "json"):
        values = make_values(kind, size)
        assert len(values) == DISTINCT
        assert {len(value) for value in values} == {size}
        assert values == make_values(kind, size)


def test_json_compresses_and_random_does_not() -> None:
    random, json_like = (b"".join(make_values(kind, 1000)) for kind in ("random", "json"))
    assert len(zlib.compress(random)) > 0.99 * len(random)
    assert 2 < len(json_like) / len(zlib.compress(json_like)) < 8


def test_history_is_one_json_line_per_run(tmp_path: Path) -> None:
    path = tmp_path / "bench" / "history.ndjson"
    result = Result("produce", {"records": 10, "topic": None}, {"mb_per_s": 123.456789, "p99_ms": 0.00012345678})
    append_history(result, path)
    append_history(result, path)
    first, second = map(json.loads, path.read_text().splitlines())
    assert first["figures"] == {"mb_per_s": 123.46, "p99_ms": 0.00012346}
    assert first["parameters"] == {"records": 10, "topic": None}
    assert {"date", "commit", "machine", "python", "version"} <= first.keys()
    assert second["workload"] == "produce"


def test_figures_are_shown_to_people_with_sensible_digits() -> None:
    result = Result("x", {}, {"records_per_s": 1_234_567.8, "p99_ms": 0.012345, "zero": 0.0})
    assert result.lines() == [("records per s", "1,234,568"), ("p99 ms", "0.0123"), ("zero", "0")]


def test_a_log_run_s_figures() -> None:
    measured = Measured([0.001, 0.003], fsync_seconds=0.003, elapsed_s=0.004, started_s=1e9)
    result = LogRun((10, 10), measured).result(LogOptions(replicas=5, kind="one"))
    assert result.parameters == {"bytes": 10, "appends": 2, "replicas": 5, "kind": "one"}
    assert result.figures["appends_per_s"] == pytest.approx(500)
    assert result.figures["mean_ms"] == pytest.approx(2)
    assert result.figures["p99_ms"] == pytest.approx(3)
    assert result.figures["fsync_share"] == pytest.approx(0.75)
    assert LogRun((10, 11), measured).result(LogOptions()).parameters["bytes"] is None


def test_what_a_log_is_measured_with() -> None:
    assert make_payloads("zero", 3) == [b"\0\0\0"] and make_payloads("one", 2) == [b"\xff\xff"]
    random = make_payloads("random", 20)
    assert len(set(random)) == PAYLOADS and {len(payload) for payload in random} == {20}


def test_what_security_costs_is_told_of_the_bursts_of_one_round() -> None:
    """The machine was three times as slow in the second round, for all: the ratios do not notice."""

    def bursts(mb_per_s: list[float], ack_ms: list[float]) -> Bursts:
        posted: list[Figures] = [
            {"mb_per_s": one, "broker_cpu_s_per_gb": 4.0, "client_cpu_s_per_gb": 2.0} for one in mb_per_s
        ]
        single: list[Figures] = [{"ack_p50_ms": one, "ack_p99_ms": 2 * one} for one in ack_ms]
        return Bursts(dict.fromkeys(SIZES, posted), single)

    found = security_figures(
        {
            Level.PLAIN: bursts([90, 30, 90], [1, 3, 1]),
            Level.TLS: bursts([72, 24, 72], [1, 3, 1]),
            Level.LOGIN: bursts([45, 15, 45], [2, 6, 2]),
        }
    )
    assert found["plain_100b_mb_per_s"] == 90
    assert found["tls_1000b_mb_lost_percent"] == pytest.approx(20)
    assert found["token_100b_mb_lost_percent"] == pytest.approx(50)
    assert (found["plain_single_p99_ms"], found["token_single_p50_ratio"]) == (2, 2)
