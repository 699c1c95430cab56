"""`tidelog group` against a real broker, and a group without members, which `reset` makes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any
from urllib.request import Request, urlopen

import pytest

from tests.integration.cli.conftest import Cli
from tidelog.testing import LocalCluster

pytestmark = pytest.mark.process


@pytest.fixture
def group(cli: Cli, topic: str) -> Iterator[str]:
    """At the end of both partitions of the topic; partition 0 has three records."""
    cli.succeed("produce", topic, "--partition", "0", stdin=b"a\nb\nc\n")
    name = f"of-{topic}"
    cli.succeed("group", "reset", name, "--to-latest", "--topic", topic, "--execute")
    yield name
    cli("group", "delete", name)


def test_a_group_is_listed_and_described(cli: Cli, topic: str, group: str) -> None:
    cli.succeed("produce", topic, "--partition", "0", stdin=b"d\n")
    for command in (["group", "list"], ["admin", "show groups"]):
        lines = cli.succeed(*command).decode().splitlines()
        assert lines[0].split() == ["GROUP", "TYPE", "STATE", "MEMBERS", "ASSIGNOR", "COORDINATOR"]
        assert [group, "consumer", "empty", "0", "-", "1"] in [line.split() for line in lines]
        (listed,) = [one for one in json.loads(cli.succeed(*command, "--json")) if one["consumer_group_id"] == group]
        assert (listed["state"], listed["is_simple"]) == ("EMPTY", True)
    assert cli.succeed("group", "describe", group).decode().splitlines() == [
        f"group {group}: empty, 0 members, 1 behind, simple, coordinator 1",
        "",
        f"{'TOPIC':{len(topic)}}  PARTITION  OFFSET  END  LAG  MEMBER",
        f"{topic}          0       3    4    1  -",
        f"{topic}          1       0    0    0  -",
    ]
    document = json.loads(cli.succeed("group", "describe", group, "--json"))
    assert (document["members_count"], document["consumers"]) == (0, [])
    assert [lag["lag"] for lag in document["lags"]] == [1, 0]


def test_a_reset_is_shown_and_done_only_when_told(cli: Cli, topic: str, group: str) -> None:
    asked = ["group", "reset", group, "--shift-by", "-2", "--topic", f"{topic}:0"]
    planned = cli.succeed(*asked).decode().splitlines()
    assert planned[1].split() == [topic, "0", "3", "1"]
    assert planned[-1] == "nothing was changed; --execute does it"
    assert json.loads(cli.succeed(*asked, "--dry-run", "--json"))[0]["new_offset"] == 1
    done = cli.succeed(*asked, "--execute").decode().splitlines()
    assert (done[1], done[-1]) == (planned[1], f"reset 1 offset of group {group}")
    again = json.loads(cli.succeed("group", "reset", group, "--to-earliest", "--all-topics", "--json"))
    assert [(one["current_offset"], one["new_offset"]) for one in again] == [(1, 0), (0, 0)]


def beat(cluster: LocalCluster, group: str, **said: Any) -> dict[str, Any]:
    """A member's heartbeat, as a client in any language would send it."""
    body = json.dumps({"member_id": "m1", "client_id": "reader", **said}).encode()
    headers = {"Content-Type": "application/json"}
    with urlopen(Request(f"{cluster.bootstrap}/groups/{group}/heartbeat", body, headers), timeout=30) as answer:
        return dict(json.load(answer))


@pytest.fixture
def member(cluster: LocalCluster, group: str, topic: str) -> Iterator[dict[str, Any]]:
    """Who has both partitions."""
    joined = beat(cluster, group, member_epoch=0, topics=[topic], owned=[])
    yield beat(cluster, group, member_epoch=joined["member_epoch"], owned=joined["assignment"])
    beat(cluster, group, member_epoch=-1)


@pytest.mark.usefixtures("member")
def test_a_group_with_members_is_described_and_not_reset(cli: Cli, topic: str, group: str) -> None:
    lines = cli.succeed("group", "describe", group).decode().splitlines()
    assert lines[0].startswith(f"group {group}: stable, 1 member, 0 behind, assignor uniform, epoch ")
    assert lines[2].split() == ["MEMBER", "INSTANCE", "CLIENT", "HOST", "EPOCH", "PARTITIONS"]
    member_id, _, client, host, _, partitions = lines[3].split()
    assert (member_id, client, host, partitions) == ("m1", "reader", "127.0.0.1", f"{topic}:0-1")
    assert [line.split()[-1] for line in lines[6:]] == ["m1", "m1"]
    for execute in ("--dry-run", "--execute"):
        (error,) = cli.fail("group", "reset", group, "--to-earliest", "--all-topics", execute)
        assert "has 1 member, who would go on where they are; stop its consumers first" in error
    assert "40913" in cli.fail("group", "delete", group)[0]


def test_a_group_is_deleted_once(cli: Cli, group: str) -> None:
    assert cli.succeed("group", "delete", group).decode() == f"deleted group {group}\n"
    error, hint = cli.fail("group", "delete", group)
    assert "40405" in error
    assert hint == "hint: `tidelog group list` shows the groups there are"
    assert "40405" in cli.fail("group", "describe", group)[0]


def test_what_is_typed_wrong_is_not_tried(cli: Cli) -> None:
    assert "say where to, once" in cli.fail("group", "reset", "g", "--all-topics", status=2)[0]
    assert "say of which topics" in cli.fail("group", "reset", "g", "--to-latest", status=2)[0]
    assert "40002" in cli.fail("group", "delete", "x" * 256)[0]
    assert "40405" in cli.fail("group", "delete", "no group: / of this name")[0]
