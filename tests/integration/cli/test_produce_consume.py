from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from urllib.request import Request, urlopen

import pytest

from tests.integration.cli.conftest import COMMAND, TIMEOUT_S, Cli, environment
from tidelog.testing import LocalCluster

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def kafka_cluster() -> Iterator[LocalCluster]:
    with LocalCluster(kafka=True) as cluster:
        yield cluster


READ_ALL = ("--from-beginning", "--until-end")


def test_a_file_comes_back_byte_for_byte(cli: Cli, topic: str, tmp_path: Path) -> None:
    rows = [b"row %d \xff\r" % number for number in range(20_000)]
    (tmp_path / "rows").write_bytes(b"\n".join(rows))
    said = cli.succeed("produce", topic, "rows", "--partition", "1", "--compression", "zstd").decode()
    assert said.startswith(f"{topic}: 20,000 records, ")
    assert said.endswith("; offsets 1: 0-19999\n")
    assert cli.succeed("consume", topic, "--partition", "1", *READ_ALL).splitlines() == b"\n".join(rows).splitlines()


def test_keys_go_through_pipes_and_keep_their_partition(cli: Cli, topic: str) -> None:
    lines = b"".join(b"k%d\tvalue:%d\n" % (number % 7, number) for number in range(700))
    cli.succeed("produce", topic, "--key-separator", "\\t", stdin=lines)
    printed = cli.succeed("consume", topic, *READ_ALL, "--json")
    partitions: dict[str, set[int]] = {}
    values: dict[str, list[str]] = {}
    for line in printed.splitlines():
        record = json.loads(line)
        partitions.setdefault(record["key"], set()).add(record["partition"])
        values.setdefault(record["key"], []).append(record["value"])
    assert all(len(numbers) == 1 for numbers in partitions.values())
    assert values == {f"k{key}": [f"value:{number}" for number in range(key, 700, 7)] for key in range(7)}
    again = cli.succeed("consume", topic, *READ_ALL, "--key-separator", "\t")
    assert sorted(again.splitlines()) == sorted(lines.splitlines())


@pytest.mark.parametrize("transport", ["auto", "http", "kafka"])
def test_records_go_the_way_that_is_asked_for(
    cli: Cli, kafka_cluster: LocalCluster, tmp_path: Path, transport: str
) -> None:
    to = ("--bootstrap", kafka_cluster.bootstrap, "--transport", transport)
    cli.succeed("topic", "create", f"way-{transport}", "--bootstrap", kafka_cluster.bootstrap)
    before = framed(kafka_cluster)
    cli.succeed("produce", f"way-{transport}", *to, stdin=b"one\ntwo\n")
    assert cli.succeed("consume", f"way-{transport}", *READ_ALL, *to) == b"one\ntwo\n"
    assert (framed(kafka_cluster) > before) == (transport != "http")


def framed(cluster: LocalCluster) -> int:
    """Returns how many records requests of Kafka's protocol there were."""
    with urlopen(f"{cluster.bootstrap}/metrics", timeout=TIMEOUT_S) as answer:
        lines = answer.read().decode().splitlines()
    calls = [line for line in lines if re.match(r'tidelog_kafka_requests_total\{.*"(Produce|Fetch)"', line)]
    return sum(int(float(line.rpartition(" ")[2])) for line in calls)


def test_a_broker_without_the_listener_takes_no_frames(cli: Cli, topic: str) -> None:
    for command in ("produce", "consume"):
        words = cli.fail(command, topic, "--transport", "kafka", *READ_ALL[: command == "consume"], stdin=b"one\n")
        assert "Kafka's protocol" in words[0]
    assert "'carrier-pigeon'" in "".join(cli.fail("produce", topic, "--transport", "carrier-pigeon", status=2))


def test_the_summary_as_json(cli: Cli, topic: str) -> None:
    said = json.loads(cli.succeed("produce", topic, "--partition", "0", "--json", stdin=b"one\ntwo\n"))
    assert {**said, "seconds": 0} == {
        "topic_name": topic,
        "records": 2,
        "bytes": 6,
        "seconds": 0,
        "partitions": [{"partition_id": 0, "records": 2, "first_offset": 0, "last_offset": 1}],
    }


@pytest.mark.parametrize("acks", ["0", "1"])
def test_with_fewer_acks_records_arrive_as_well(cli: Cli, topic: str, acks: str) -> None:
    cli.succeed("produce", topic, "--acks", acks, "--partition", "0", stdin=b"one\ntwo\n")
    assert cli.succeed("consume", topic, "--partition", "0", "--from-beginning", "--max-records", "2") == b"one\ntwo\n"


def test_where_to_begin_and_when_to_stop(cli: Cli, topic: str) -> None:
    cli.succeed("produce", topic, "--partition", "0", stdin=b"0\n1\n2\n3\n4\n")
    read = ("consume", topic, "--partition", "0")
    assert cli.succeed(*read, "--offset", "3", "--until-end") == b"3\n4\n"
    assert cli.succeed(*read, "--offset", "-2", "--until-end") == b"3\n4\n"
    assert cli.succeed(*read, "--offset", "-99", "--max-records", "2") == b"0\n1\n"
    assert cli.succeed(*read, "--until-end") == b""
    assert cli.succeed(*read, "--offset", "5", "--timeout-ms", "200") == b""
    assert "41601" in cli.fail(*read, "--offset", "6")[0]


@pytest.mark.e2e
def test_consume_follows_and_ends_with_its_reader(cli: Cli, topic: str) -> None:
    """As with `| head -1`: nothing more has to be written for the command to notice."""
    with cli.begin("consume", topic, "--from-beginning") as consuming:
        assert consuming.stdout is not None
        cli.succeed("produce", topic, stdin=b"hello\n")
        assert consuming.stdout.readline() == b"hello\n"
        consuming.stdout.close()
        assert consuming.wait(TIMEOUT_S) == 0
        assert consuming.stderr is not None
        assert consuming.stderr.read() == b""


@pytest.mark.e2e
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_consume_without_a_word(cli: Cli, topic: str, number: int) -> None:
    cli.succeed("produce", topic, stdin=b"hello\n")
    with cli.begin("consume", topic, "--from-beginning") as consuming:
        assert consuming.stdout is not None
        consuming.stdout.readline()
        consuming.send_signal(number)
        assert consuming.communicate(timeout=TIMEOUT_S) == (b"", b"")
        assert consuming.returncode == 0


@pytest.mark.e2e
def test_a_member_of_a_group_that_sigterm_ends_leaves(cli: Cli, topic: str) -> None:
    cli.succeed("produce", topic, stdin=b"hello\n")
    group = f"of-{topic}"
    with cli.begin("consume", topic, "--from-beginning", "--group", group, "--max-records", "2") as consuming:
        assert consuming.stdout is not None
        assert consuming.stdout.readline() == b"hello\n"
        consuming.send_signal(signal.SIGTERM)
        assert consuming.communicate(timeout=TIMEOUT_S) == (b"", b"")
        assert consuming.returncode == 143
    cli.succeed("group", "delete", group)  # it is refused as long as there are members


@pytest.mark.e2e
@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_produce_after_delivering_what_was_read(cli: Cli, topic: str, number: int, status: int) -> None:
    with cli.begin("consume", topic, "--from-beginning") as consuming, cli.begin("produce", topic) as producing:
        assert producing.stdin is not None
        assert producing.stdout is not None
        assert producing.stderr is not None
        assert consuming.stdout is not None
        producing.stdin.write(b"one\nnot a whole li")
        producing.stdin.flush()
        assert consuming.stdout.readline() == b"one\n"
        producing.send_signal(number)  # its standard input stays open
        assert producing.stdout.read().startswith(f"{topic}: 1 record, ".encode())
        assert (producing.wait(TIMEOUT_S), producing.stderr.read()) == (status, b"")
        consuming.kill()


def test_an_error_in_mid_file_says_how_many_were_acknowledged(cli: Cli, topic: str) -> None:
    error, note = cli.fail("produce", topic, "--key-separator", ":", "--partition", "0", stdin=b"a:1\nb:2\nc\nd:4\n")
    assert error == "error: line 3 has no key: the separator ':' is not in it (40002)"
    assert note == "2 records acknowledged, 0 surely not appended, 0 unknown; offsets 0: 0-1"


def test_a_group_goes_on_where_it_was(cli: Cli, topic: str) -> None:
    cli.succeed("produce", topic, "--partition", "0", stdin=b"a\nb\nc\n")
    asked = ["consume", topic, "--group", f"of-{topic}", "--from-beginning"]
    assert cli.succeed(*asked, "--max-records", "2") == b"a\nb\n"
    assert cli.succeed(*asked, "--max-records", "1", "--timeout-ms", "5000") == b"c\n"
    told = json.loads(cli.succeed("group", "describe", f"of-{topic}", "--json"))["lags"][0]
    assert (told["partition_id"], told["current_offset"], told["lag"]) == (0, 3, 0)
    cli.succeed("group", "delete", f"of-{topic}")


@pytest.mark.parametrize("order", ["key", "none"])
def test_a_group_by_key_prints_each_record_once(cli: Cli, topic: str, order: str) -> None:
    name = f"{topic}-{order}"
    cli.succeed("topic", "create", name, "--protocol", "paxos", "--config", f"commit.order={order}")
    lines = b"".join(b"k%d:%d\n" % (number % 7, number) for number in range(300))
    cli.succeed("produce", name, "--key-separator", ":", stdin=lines)
    asked = ["consume", name, "--group", f"of-{name}", "--from-beginning", "--order", order, "--key-separator", ":"]
    printed = cli.succeed(*asked, "--max-records", "100")
    assert printed.count(b"\n") == 100
    printed += cli.succeed(*asked, "--timeout-ms", "1000")
    assert sorted(printed.splitlines()) == sorted(lines.splitlines())
    if order == "key":
        for key in range(7):
            values = [int(line.partition(b":")[2]) for line in printed.splitlines() if line.startswith(b"k%d:" % key)]
            assert values == sorted(values)
    cli.succeed("group", "delete", f"of-{name}")


def test_a_record_that_is_too_large_is_named(cli: Cli, topic: str) -> None:
    lines = cli.fail("produce", topic, "--partition", "0", stdin=b"small\n" + b"x" * 2_000_000 + b"\nnever\n")
    assert lines[0].startswith("error: line 2: ")
    assert "(41301)" in lines[0]
    assert lines[1].startswith("1 record acknowledged, ")


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (["consume", "no-such-topic"], 1, "(40401)"),
        (["consume", "{topic}", "--partition", "9"], 1, "(40402)"),
        (["consume", "no-such-topic", "--group", "g"], 1, "(40401)"),
        (["consume", "{topic}", "--group", "g", "--partition", "0"], 2, "leave out --partition"),
        (["consume", "{topic}", "--group", "g", "--until-end"], 2, "`tidelog group reset` puts a group elsewhere"),
        (["consume", "{topic}", "--order", "key"], 2, "--order key is for consumers in a group, so give --group"),
        (["consume", "{topic}", "--offset", "3", "--from-beginning"], 2, "keep one"),
        (["consume", "{topic}", "--offset", "first"], 2, "give a number"),
        (["consume", "{topic}", "--offset", "9999999999999999999"], 2, "beyond what an offset can be"),
        (["produce", "no-such-topic"], 1, "(40401)"),
        (["produce", "{topic}", "no-such-file"], 1, "cannot read no-such-file: No such file or directory"),
        (["produce", "{topic}", "."], 1, "cannot read .: it is a directory"),
        (["produce", "{topic}", "--key-separator", ""], 2, "--key-separator is empty"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_line(
    cli: Cli, topic: str, words: list[str], status: int, said: str
) -> None:
    assert said in cli.fail(*(word.format(topic=topic) for word in words), status=status)[0]


@pytest.mark.e2e
def test_a_broker_that_dies_leaves_an_error_with_the_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    with LocalCluster() as cluster:
        cli = Cli(cluster.bootstrap, tmp_path, monkeypatch, capfdbinary)
        cli.succeed("topic", "create", "t")
        with (
            cli.begin("consume", "t", "--from-beginning") as consuming,
            cli.begin("produce", "t", "--timeout-ms", "1500") as producing,
        ):
            assert producing.stdin is not None
            assert consuming.stdout is not None
            producing.stdin.write(b"before\n")
            producing.stdin.flush()
            assert consuming.stdout.readline() == b"before\n"
            cluster.kill()
            out, err = producing.communicate(b"after\n", timeout=TIMEOUT_S)
            assert (producing.returncode, out) == (1, b"")
            lines = err.decode().splitlines()
            assert any(line.startswith("error: ") for line in lines)
            (counts,) = re.findall(r"(\d) records? acknowledged, (\d) surely not appended, (\d) unknown", err.decode())
            assert sum(map(int, counts)) == 2  # a record can be read before its producer has heard of it
            assert "Traceback" not in err.decode()
            cluster.restart()
            cli.succeed("produce", "t", stdin=b"afterwards\n")
            assert consuming.stdout.readline() == b"afterwards\n"
            consuming.send_signal(signal.SIGINT)
            _, err = consuming.communicate(timeout=TIMEOUT_S)
            assert err.decode().startswith("notice: ")
            assert "Traceback" not in err.decode()


@pytest.mark.e2e
def test_colours_and_hints_are_for_terminals_only(cli: Cli, topic: str, cluster: LocalCluster) -> None:
    command = [*COMMAND, "topic", "describe", topic]
    terminal, its_side = pty.openpty()
    subprocess.run(
        command, stdout=its_side, check=True, timeout=TIMEOUT_S,
        env=environment(TIDELOG_BOOTSTRAP=cluster.bootstrap, TERM="xterm"),
    )  # fmt: skip
    os.close(its_side)
    assert b"\x1b[1m" in os.read(terminal, 65536)
    os.close(terminal)
    assert b"\x1b" not in cli.succeed("topic", "describe", topic)


def test_a_key_is_the_one_that_http_clients_write_as_text(cli: Cli, topic: str, cluster: LocalCluster) -> None:
    keys = [f"key-{number}" for number in range(40)]
    lines = "".join(f"{key}\tcli\n" for key in keys).encode()
    cli.succeed("produce", topic, "--key-separator", "\\t", stdin=lines)
    body = json.dumps({"records": [{"key": key, "value": "http"} for key in keys]}).encode()
    headers = {"Content-Type": "application/vnd.kafka.text.v2+json"}
    url = cluster.bootstrap.partition(",")[0]
    with urlopen(Request(f"{url}/topics/{topic}", body, headers), timeout=TIMEOUT_S) as reply:
        assert len(json.load(reply)["offsets"]) == len(keys)
    records = [json.loads(line) for line in cli.succeed("consume", topic, *READ_ALL, "--json").splitlines()]
    placed = {(record["key"], record["value"]): record["partition"] for record in records}
    assert len(placed) == 2 * len(keys)
    assert all(placed[key, "cli"] == placed[key, "http"] for key in keys)
    assert set(placed.values()) == {0, 1}
