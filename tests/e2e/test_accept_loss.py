"""Every copy of a batch is destroyed on the disks of running brokers, and an operator gives it up: readers go on behind
it and are told so, whatever turns up later, and the cluster remembers who did it.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.e2e.asking import JSON_RECORDS, Asked, ask, controller_of, until
from tests.e2e.clusters import ISR, PAXOS, only, running
from tests.e2e.loading import create
from tests.e2e.relays import RelayedCluster
from tests.e2e.test_repair import LEADER, RECORDS, SETTINGS, VALUES, filled, is_marked, log_file, metric, read, rot
from tidelog.testing import LocalCluster

pytestmark = [pytest.mark.process, pytest.mark.timeout(180)]

LOST = 20


@pytest.fixture(scope="module")
def cluster(protocol: str) -> Iterator[LocalCluster]:
    with running(protocol, settings=SETTINGS) as cluster:
        yield cluster


class Ended(NamedTuple):
    """A command that has ended, and what it printed."""

    status: int
    found: Any
    error: str


def command(cluster: LocalCluster, *words: str, via: int | None = None) -> Ended:
    bootstrap = cluster.bootstrap if via is None else cluster.broker(via).url
    ran = subprocess.run(
        [sys.executable, "-m", "tidelog", "log", *words, "--json", "--bootstrap", bootstrap],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    return Ended(ran.returncode, json.loads(ran.stdout) if ran.stdout else None, ran.stderr)


def accept(cluster: LocalCluster, topic: str, *words: str, via: int | None = None) -> Ended:
    return command(cluster, "accept-loss", "--topic", topic, "--partition", "0", *words, via=via)


def shown(cluster: LocalCluster, node_id: int, topic: str, offset: int, replica: str = "") -> tuple[list[int], str]:
    """The offsets of the records that a read returns, and what it says of losses."""
    url = f"{cluster.broker(node_id).url}/topics/{topic}/partitions/0/records?offset={offset}{replica}"
    with urllib.request.urlopen(urllib.request.Request(url, headers={"Accept": JSON_RECORDS})) as answer:
        return [record["offset"] for record in json.load(answer)], answer.headers.get("Tidelog-Lost", "")


def destroy(cluster: LocalCluster, topic: str, value: str, *node_ids: int) -> None:
    """A record's bytes turn over wherever killed brokers keep them: in the logs, and in the journals beside them. The
    logs are known to be durable by then."""
    logs = [log_file(cluster, node_id, topic) for node_id in node_ids]
    until(lambda: all(is_marked(path) for path in logs))
    cluster.kill(*node_ids)
    files = [path for log in logs for path in log.parent.rglob("*") if path.is_file()]
    for path in files:
        if value.encode() in path.read_bytes():
            rot(path, value)
    assert not any(value.encode() in path.read_bytes() for path in files)


def losses(cluster: LocalCluster, node_id: int, topic: str) -> list[tuple[int, int, str]]:
    url = cluster.broker(node_id).url
    (described,) = ask(f"{url}/v3/clusters").body["data"]
    listed = ask(f"{url}/v3/clusters/{described['cluster_id']}/topics/{topic}/partitions/0/losses").body["data"]
    return [(one["start_offset"], one["end_offset"], one["accepted_by"]) for one in listed]


def knows(cluster: LocalCluster, node_id: int, topic: str) -> bool:
    return losses(cluster, node_id, topic) == [(LOST, LOST + 1, "ANONYMOUS")]


def passes(cluster: LocalCluster, node_id: int, topic: str, behind: list[int], replica: str = "") -> bool:
    return shown(cluster, node_id, topic, LOST, replica) == (behind, f"{LOST}-{LOST}")


def controller(cluster: LocalCluster) -> int:
    for node_id in cluster.node_ids:
        if metric(cluster, node_id, "tidelog_controller_active") == 1:
            return node_id
    raise AssertionError("no broker is the controller")


def in_sync(cluster: LocalCluster, topic: str) -> list[int]:
    (partition,) = ask(f"{cluster.broker(LEADER).url}/topics/{topic}/partitions").body
    return [replica["broker"] for replica in partition["replicas"] if replica["in_sync"]]


def is_damaged(cluster: LocalCluster, topic: str) -> bool:
    return read(cluster, LEADER, topic, LOST).code == 50303


@pytest.mark.slow
def test_what_is_destroyed_on_every_disk_is_given_up_by_command(cluster: LocalCluster) -> None:
    topic = filled(cluster)
    whole = log_file(cluster, 3, topic).read_bytes()
    destroy(cluster, topic, VALUES[LOST], *cluster.node_ids)
    cluster.restart(*cluster.node_ids)
    until(partial(is_damaged, cluster, topic))
    answer = ask(f"{cluster.broker(LEADER).url}/topics/{topic}/partitions/0/records?offset={LOST}")
    assert (answer.status, answer.code) == (503, 50303)
    assert f"offsets {LOST} to {LOST}" in answer.body["message"]

    dry = accept(cluster, topic)
    assert (dry.status, dry.found["accepted"]) == (0, False), dry
    (piece,) = dry.found["pieces"]
    assert (piece["start_offset"], piece["end_offset"], piece["kept_because"]) == (LOST, LOST + 1, None)
    assert [(said["broker_id"], said["status"]) for said in piece["statements"]] == [
        (node_id, "damaged") for node_id in cluster.node_ids
    ]
    assert piece["digest"] and piece["bytes"] > 0 and piece["max_timestamp"] > 0
    assert is_damaged(cluster, topic), "a dry run changes nothing"

    with ThreadPoolExecutor(2) as pool:  # two operators at once
        both = list(pool.map(lambda _: accept(cluster, topic, "--execute"), range(2)))
    assert [ended.status for ended in both] == [0, 0], both
    assert any(ended.found["accepted"] for ended in both), both
    behind = list(range(LOST + 1, RECORDS))
    for node_id in cluster.node_ids:
        until(partial(knows, cluster, node_id, topic))
        until(partial(passes, cluster, node_id, topic, behind))
        until(partial(passes, cluster, node_id, topic, behind, "&replica=local"))
    assert shown(cluster, LEADER, topic, 0)[0] == list(range(LOST)), "what lies before is read first"
    Asked(cluster, LEADER).append(topic, 0, "after")
    again = accept(cluster, topic, "--execute")
    assert (again.status, again.found["accepted"], again.found["pieces"]) == (0, False, [])
    assert [one["start_offset"] for one in again.found["accepted_before"]] == [LOST]

    lost = controller(cluster)
    cluster.kill(lost)
    others = [node_id for node_id in cluster.node_ids if node_id != lost]
    until(lambda: all(knows(cluster, node_id, topic) for node_id in others))
    cluster.restart(lost)
    until(lambda: knows(cluster, lost, topic))

    with log_file(cluster, 3, topic).open("r+b") as file:
        file.write(whole)
    behind.append(RECORDS)
    until(lambda: passes(cluster, 3, topic, behind, "&replica=local"))
    assert command(cluster, "verify", "--cluster", "--topic", topic).status == 0
    (loss,) = [one for one in command(cluster, "losses").found if one["topic_name"] == topic]
    assert loss["digests"] == [piece["digest"]]
    assert metric(cluster, LEADER, f'tidelog_accepted_losses{{given_up="records",topic="{topic}"}}') == 1
    assert all(metric(cluster, node_id, "tidelog_damaged_ranges") == 0 for node_id in cluster.node_ids)


@pytest.mark.slow
def test_a_replica_that_begins_anew_comes_past_what_was_given_up(cluster: LocalCluster, protocol: str) -> None:
    topic = filled(cluster)
    destroy(cluster, topic, VALUES[LOST], *cluster.node_ids)
    cluster.restart(*cluster.node_ids)
    until(partial(is_damaged, cluster, topic))
    assert accept(cluster, topic, "--execute").status == 0
    directory = log_file(cluster, 2, topic).parent
    cluster.kill(2)
    shutil.rmtree(directory)
    cluster.restart(2)
    behind = list(range(LOST + 1, RECORDS))
    until(lambda: has_come_back(cluster, topic, behind), 60)
    assert shown(cluster, 2, topic, 0, "&replica=local")[0] == list(range(LOST))
    if protocol == ISR:  # elsewhere it has to be taken in as a voter first, under another id
        until(lambda: in_sync(cluster, topic) == [1, 2, 3])
        cluster.kill(LEADER)
        until(lambda: Asked(cluster, 2).produce(topic, 0, "after").status == 200, 60)
        until(lambda: passes(cluster, 2, topic, [*behind, RECORDS]))
        cluster.restart(LEADER)


def has_come_back(cluster: LocalCluster, topic: str, behind: list[int]) -> bool:
    answer = read(cluster, 2, topic, LOST)
    return answer.status == 200 and [record["offset"] for record in answer.body] == behind


@pytest.mark.slow
def test_a_good_copy_that_comes_back_too_late_stays_out(cluster: LocalCluster) -> None:
    """Broker 3 has one, and is down: only the operator can say that nobody waits for it."""
    topic = filled(cluster)
    cluster.stop(3)
    until(lambda: in_sync(cluster, topic) == [1, 2])
    destroy(cluster, topic, VALUES[LOST], 1, 2)
    cluster.restart(1, 2)
    until(partial(is_damaged, cluster, topic), 60)
    refused = accept(cluster, topic, "--execute")
    assert refused.status == 1
    assert "--even-though 3" in refused.error and "40919" in refused.error, refused
    dry = accept(cluster, topic)
    assert dry.status == 1 and "--even-though 3" in dry.found["refusals"][0]
    assert is_damaged(cluster, topic)
    assert accept(cluster, topic, "--even-though", "3", "--execute").found["accepted"]
    cluster.restart(3)
    behind = list(range(LOST + 1, RECORDS))
    for node_id in cluster.node_ids:
        until(partial(passes, cluster, node_id, topic, behind, "&replica=local"))
    assert command(cluster, "verify", "--cluster", "--topic", topic).status == 0


@pytest.mark.slow
def test_what_is_not_lost_is_not_given_up(cluster: LocalCluster) -> None:
    topic = filled(cluster)
    for words, said in (
        ((), "nothing is known to be damaged in this partition"),
        (("--offsets", "3-7"), "nothing is known to be damaged in offsets 3-7"),
        (("--offsets", "3-999"), "41601"),
        (("--offsets", "7-3"), "--offsets"),
        (("--even-though", "9"), "broker 9 has no replica"),
        (("--votes",), "leads this partition"),
        (("--votes", "--even-though", "9"), "broker 9 has no replica"),
        (("--votes", "--offsets", "3-7"), "--votes is about a whole partition"),
        (("--topic", "nothing"), "40401"),
        (("--partition", "7"), "40402"),
    ):
        ended = accept(cluster, topic, *words, "--execute")
        assert ended.status != 0 and said in ended.error, (words, ended)
    assert losses(cluster, LEADER, topic) == []
    rot(log_file(cluster, 2, topic), VALUES[LOST])
    ended = accept(cluster, topic, "--offsets", str(LOST), "--execute")
    assert ended.status == 1
    assert "has a good copy" in ended.error or "nothing is known" in ended.error, "it may be repaired by then"
    until(lambda: read(cluster, 2, topic, LOST).status == 200)
    assert losses(cluster, 2, topic) == []


@pytest.mark.slow
@pytest.mark.timeout(300)
@only(ISR, PAXOS)
def test_a_controller_that_is_killed_between_decision_and_answer_has_decided_once(
    tmp_path: Path, protocol: str
) -> None:
    """The relay loses the controller's answers to the broker that was asked, from before the command to its end."""
    settings = {**SETTINGS, "commit.protocol": protocol}
    with RelayedCluster(3, settings=settings, data_dir=tmp_path) as cluster:
        topic = filled(cluster)
        destroy(cluster, topic, VALUES[LOST], *cluster.node_ids)
        cluster.restart(*cluster.node_ids)
        until(partial(is_damaged, cluster, topic), 60)
        until(lambda: accept(cluster, topic).status == 0, 60)
        lost = controller_of(cluster)
        asked, third = [node_id for node_id in cluster.node_ids if node_id != lost]
        cluster.relays.unanswered = {(asked, lost)}
        words = ("--even-though", str(lost), "--execute")
        with ThreadPoolExecutor(1) as pool:
            answer = pool.submit(accept, cluster, topic, *words, via=asked)
            until(partial(knows, cluster, third, topic), 60)
            assert not answer.done(), answer.result()
            cluster.kill(lost)
            ended = answer.result()
        assert (ended.status, ended.found["accepted"]) == (0, True), ended
        cluster.relays.unanswered = set()
        cluster.restart(lost)
        for node_id in cluster.node_ids:
            until(partial(knows, cluster, node_id, topic), 60)
            until(partial(passes, cluster, node_id, topic, list(range(LOST + 1, RECORDS)), "&replica=local"), 60)
        again = accept(cluster, topic, "--execute")
        assert (again.status, again.found["accepted"]) == (0, False), again


@pytest.mark.slow
@only(ISR)
def test_a_leader_that_never_had_it_gives_its_offsets_to_nobody(cluster: LocalCluster) -> None:
    """An unclean election makes broker 2 the leader, which was away when nearly all was written."""
    topic = "unclean"
    asyncio.run(create(cluster, topic, {"min.insync.replicas": "1"}, [1, 2]))
    for value in VALUES[:5]:
        Asked(cluster, 1).append(topic, 0, value)
    cluster.stop(2)
    for value in VALUES[5 : LOST + 1]:
        Asked(cluster, 1).append(topic, 0, value)
    rot(log_file(cluster, 1, topic), VALUES[LOST])
    until(partial(is_damaged, cluster, topic))
    assert accept(cluster, topic, "--even-though", "2", "--execute").found["accepted"]
    cluster.kill(1)
    cluster.restart(2)
    url = f"{cluster.broker(2).url}/v3/clusters/{cluster.cluster_id}/topics/-/partitions:elect"
    election = {"election_type": "unclean", "data": [{"topic_name": topic, "partition_id": 0}]}

    def elected() -> bool:
        """The election changes nothing while the controller has not noticed that broker 1 is dead."""
        ask(url, election)
        return Asked(cluster, 2).produce(topic, 0, "after").status == 200

    until(elected, 60)
    assert shown(cluster, 2, topic, 0)[0] == [0, 1, 2, 3, 4]
    assert shown(cluster, 2, topic, 5) == ([LOST + 1], f"{LOST}-{LOST}")
    cluster.restart(1)
    until(lambda: in_sync(cluster, topic) == [1, 2])
    until(lambda: shown(cluster, 1, topic, 5, "&replica=local") == ([LOST + 1], f"{LOST}-{LOST}"))
