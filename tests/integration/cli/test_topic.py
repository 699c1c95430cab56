from __future__ import annotations

import json

import pytest

from tests.integration.cli.conftest import Cli
from tidelog.cli import connection

pytestmark = pytest.mark.process


def test_from_creation_to_deletion(cli: Cli) -> None:
    said = cli.succeed("topic", "create", "life", "--partitions", "2", "--config", "retention.ms=1000")
    assert said == b"created topic life: 2 partitions, 1 replica\n"
    cli.succeed(
        "topic", "alter", "life", "--partitions", "3", "--config", "segment.ms=5", "--delete-config", "retention.ms"
    )
    described = json.loads(cli.succeed("topic", "describe", "life", "--json"))
    assert (described["topic_name"], described["partitions_count"]) == ("life", 3)
    assert described["assignments"][2] == {"partition_id": 2, "replicas": [1]}
    assert described["partitions"][2] == {
        "partition_id": 2,
        "leader": 1,
        "leader_epoch": 0,
        "replicas": [1],
        "isr": [1],
        "elr": [],
        "voters": [],
        "earliest_offset": 0,
        "latest_offset": 0,
    }
    configs = {config["name"]: config for config in described["configs"]}
    assert (configs["segment.ms"]["value"], configs["segment.ms"]["source"]) == ("5", "DYNAMIC_TOPIC_CONFIG")
    assert configs["retention.ms"]["is_default"]
    assert cli.succeed("topic", "delete", "life") == b"deleted topic life\n"
    assert "40401" in cli.fail("topic", "describe", "life")[0]


def test_list_and_describe_are_tables_that_tools_can_cut(cli: Cli, topic: str) -> None:
    lines = [line.split() for line in cli.succeed("topic", "list").decode().splitlines()]
    assert lines[0] == ["TOPIC", "PARTITIONS", "REPLICAS", "PROTOCOL"]
    assert [topic, "2", "1", "isr"] in lines
    described = cli.succeed("topic", "describe", topic).decode().splitlines()
    assert described[0].startswith(f"topic {topic}: 2 partitions, 1 replica, protocol isr, id ")
    assert described[2].split() == ["PARTITION", "LEADER", "EPOCH", "REPLICAS", "ISR", "ELR", "EARLIEST", "LATEST"]
    assert described[4].split() == ["1", "1", "0", "1", "1", "-", "0", "0"]


def test_an_order_of_commits_is_chosen_shown_and_kept(cli: Cli) -> None:
    cli.succeed("topic", "create", "clicks", "--protocol", "paxos", "--config", "commit.order=key")
    described = cli.succeed("topic", "describe", "clicks").decode().splitlines()
    assert ["commit.order", "key", "DYNAMIC_TOPIC_CONFIG"] in [line.split() for line in described]
    refused = cli.fail("topic", "alter", "clicks", "--config", "commit.order=total")
    assert refused[0] == "error: commit.order is fixed when a topic is created (40002)"
    cli.succeed("topic", "alter", "clicks", "--config", "commit.hole.span=16")
    configs = {
        config["name"]: config for config in json.loads(cli.succeed("topic", "describe", "clicks", "--json"))["configs"]
    }
    assert (configs["commit.hole.span"]["value"], configs["commit.order"]["value"]) == ("16", "key")
    refused = cli.fail("topic", "alter", "clicks", "--config", "commit.hole.span=many")
    assert refused[0].endswith("commit.hole.span = 'many': must be a whole number from 1 to 4096 (40002)")


def test_validate_only_shows_the_placement_and_creates_nothing(cli: Cli) -> None:
    shown = json.loads(cli.succeed("topic", "create", "maybe", "--partitions", "2", "--validate-only", "--json"))
    assert shown["assignments"] == [{"partition_id": 0, "replicas": [1]}, {"partition_id": 1, "replicas": [1]}]
    assert "maybe" not in cli.succeed("topic", "list").decode()


def test_list_as_json_is_one_array_of_objects(cli: Cli, topic: str) -> None:
    topics = json.loads(cli.succeed("topic", "list", "--json"))
    found = next(shown for shown in topics if shown["topic_name"] == topic)
    assert (found["partitions_count"], found["replication_factor"], found["is_internal"]) == (2, 1, False)


def test_what_is_there_or_gone_already_is_no_error_if_so_asked(cli: Cli, topic: str) -> None:
    again = cli.succeed("topic", "create", topic, "--partitions", "5", "--if-not-exists").decode()
    assert again == f"topic {topic} exists already: 2 partitions, 1 replica\n"
    shown = json.loads(cli.succeed("topic", "create", topic, "--if-not-exists", "--json"))
    assert shown["topic_id"] == json.loads(cli.succeed("topic", "describe", topic, "--json"))["topic_id"]
    assert cli.succeed("topic", "delete", topic, "--if-exists").decode() == f"deleted topic {topic}\n"
    assert cli.succeed("topic", "delete", topic, "--if-exists").decode() == f"there is no topic {topic}\n"
    made = cli.succeed("topic", "create", topic, "--partitions", "3", "--if-not-exists").decode()
    assert made == f"created topic {topic}: 3 partitions, 1 replica\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["create", "{topic}"], "exists already (40002)"),
        (["create", "c", "--config", "retention.mss=1"], "did you mean retention.ms?"),
        (["create", "c", "--protocol", "paxos", "--config", "commit.order=keys"], "must be 'total', 'key' or 'none'"),
        (["create", "c", "--config", "commit.order=key"], "create a topic with commit.protocol=paxos (40002)"),
        (["alter", "{topic}", "--partitions", "1"], "(40002)"),
        (["delete", "no-such-topic"], "error: there is no topic 'no-such-topic' (40401)"),
    ],
)
def test_what_a_broker_refuses_is_one_line_with_its_code(cli: Cli, topic: str, words: list[str], said: str) -> None:
    assert said in cli.fail("topic", *(word.format(topic=topic) for word in words))[0]


def test_a_bad_setting_leaves_the_topic_as_it_was(cli: Cli, topic: str) -> None:
    cli.fail("topic", "alter", topic, "--partitions", "5", "--config", "retention.ms=soon")
    assert json.loads(cli.succeed("topic", "describe", topic, "--json"))["partitions_count"] == 2


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["alter", "t"], "nothing to change"),
        (["alter", "t", "--config", "a=1", "--delete-config", "a"], "both set and deleted"),
        (["create", "t", "--protocol", "isr", "--config", "commit.protocol=paxos"], "different things"),
    ],
)
def test_what_makes_no_sense_is_a_usage_error(cli: Cli, words: list[str], said: str) -> None:
    assert said in cli.fail("topic", *words, status=2)[0]


def test_where_no_broker_is_the_error_says_how_to_get_one(
    cli: Cli, silent: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "CONNECT_S", 0.3)
    error, hint = cli.fail("topic", "list", "--bootstrap", silent)
    assert error == f"error: no broker answers at {silent} (50380)"
    assert "tidelog start" in hint
