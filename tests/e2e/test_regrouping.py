"""A partition that nobody can lead any more goes on from what is left of it, by an operator's word: its in-sync
replicas are gone, or the votes of a majority.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.asking import JSON_RECORDS, Asked, ask, until
from tests.e2e.clusters import ISR, PAXOS, only, running
from tests.e2e.loading import create
from tests.e2e.test_accept_loss import Ended, controller
from tests.e2e.test_repair import log_file
from tidelog.testing import LocalCluster

pytestmark = [pytest.mark.process, pytest.mark.timeout(240)]

RECORDS = 12
_numbers = count()


@pytest.fixture(scope="module")
def cluster(protocol: str) -> Iterator[LocalCluster]:
    with running(protocol, settings={"log.scrub.period.ms": "3600000"}) as cluster:
        yield cluster


def command(cluster: LocalCluster, *words: str) -> Ended:
    """Runs a command that asks whichever broker is there."""
    bootstrap = ",".join(cluster.broker(node_id).url for node_id in cluster.node_ids)
    ran = subprocess.run(
        [sys.executable, "-m", "tidelog", "log", *words, "--json", "--bootstrap", bootstrap],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    return Ended(ran.returncode, json.loads(ran.stdout) if ran.stdout else None, ran.stderr)


def votes(cluster: LocalCluster, topic: str, *words: str) -> Ended:
    return command(cluster, "accept-loss", "--topic", topic, "--partition", "0", "--votes", *words)


def values(count: int, first: int = 0) -> list[str]:
    return [f"value-{i:04}" for i in range(first, first + count)]


def made(cluster: LocalCluster, replicas: list[int], **configs: str) -> str:
    topic = f"votes-{next(_numbers)}"
    asyncio.run(create(cluster, topic, {name.replace("_", "."): value for name, value in configs.items()}, replicas))
    return topic


def produce(cluster: LocalCluster, node_id: int, topic: str, wanted: list[str]) -> None:
    for value in wanted:
        until(partial(takes, cluster, node_id, topic, value), 60)


def read(cluster: LocalCluster, node_id: int, topic: str, replica: str = "&replica=local") -> list[str]:
    """The values that a broker shows of the whole partition."""
    shown: list[str] = []
    offset = 0
    while True:
        url = f"{cluster.broker(node_id).url}/topics/{topic}/partitions/0/records?offset={offset}{replica}"
        answer = ask(url, media=JSON_RECORDS)
        if answer.status != 200 or not answer.body:
            return shown
        shown += [record["value"] for record in answer.body]
        offset = answer.body[-1]["offset"] + 1


def takes(cluster: LocalCluster, node_id: int, topic: str, value: str) -> bool:
    return Asked(cluster, node_id).produce(topic, 0, value).status == 200


def shows(cluster: LocalCluster, node_id: int, topic: str, wanted: list[str]) -> bool:
    return read(cluster, node_id, topic) == wanted


def audit(cluster: LocalCluster, node_id: int, topic: str) -> list[dict[str, Any]]:
    url = f"{cluster.broker(node_id).url}/v3/clusters/{cluster.cluster_id}/topics/{topic}/partitions/0/losses"
    return [one for one in ask(url).body["data"] if one["given_up"] == "votes"]


def directory(cluster: LocalCluster, node_id: int, topic: str) -> Path:
    return log_file(cluster, node_id, topic).parent


def is_led(cluster: LocalCluster, node_id: int, topic: str) -> bool:
    (partition,) = ask(f"{cluster.broker(node_id).url}/topics/{topic}/partitions").body
    leader: int = partition["leader"]
    return leader >= 0


# -- in-sync replicas --------------------------------------------------------------------------------------------------


@pytest.mark.slow
@only(ISR)
def test_in_sync_replicas_that_are_gone_are_given_up(cluster: LocalCluster) -> None:
    topic = made(cluster, [1, 2, 3], min_insync_replicas="1")
    produce(cluster, 1, topic, values(5))
    until(lambda: all(read(cluster, node_id, topic) == values(5) for node_id in cluster.node_ids))
    assert votes(cluster, topic).status == 1, "it has a leader"
    cluster.stop(3)
    produce(cluster, 1, topic, values(3, 5))
    until(lambda: read(cluster, 2, topic) == values(8))
    cluster.stop(2)
    produce(cluster, 1, topic, values(4, 8))
    cluster.kill(1)
    cluster.restart(2, 3)
    until(lambda: not is_led(cluster, 2, topic), 60)

    refused = votes(cluster, topic, "--execute")
    assert (refused.status, "40919" in refused.error, "--even-though 1" in refused.error) == (1, True, True), refused
    assert "everything that was acknowledged" in refused.error or "what nobody else has" in refused.error
    dry = votes(cluster, topic, "--even-though", "1")
    assert (dry.status, dry.found["accepted"], dry.found["refusals"]) == (0, False, []), dry
    remains = dry.found["remains"]
    assert (remains["brokers"], remains["source"], remains["end_offset"]) == ([2, 3], 2, 8)
    assert [said["broker_id"] for said in remains["statements"]] == [1, 2, 3]
    assert remains["statements"][0]["status"] == "unreachable"
    assert not is_led(cluster, 2, topic), "a dry run changes nothing"

    with ThreadPoolExecutor(2) as pool:  # two operators at once
        both = list(pool.map(lambda _: votes(cluster, topic, "--even-though", "1", "--execute"), range(2)))
    assert any(ended.status == 0 and ended.found["accepted"] for ended in both), both
    assert all(ended.status == 0 or "40919" in ended.error for ended in both), both
    again = votes(cluster, topic, "--even-though", "1", "--execute")
    assert (again.status, again.found["accepted"], len(again.found["accepted_before"])) == (0, False, 1), again
    produce(cluster, 2, topic, ["after"])
    until(lambda: read(cluster, 3, topic) == [*values(8), "after"])
    cluster.restart(1)
    until(lambda: read(cluster, 1, topic) == [*values(8), "after"], 60)
    for node_id in cluster.node_ids:
        (one,) = audit(cluster, node_id, topic)
        assert (one["start_offset"], one["accepted_by"]) == (8, "ANONYMOUS")
    lost = controller(cluster)
    cluster.kill(lost)
    until(lambda: all(len(audit(cluster, node, topic)) == 1 for node in cluster.node_ids if node != lost))
    cluster.restart(lost)


@pytest.mark.slow
@only(ISR)
def test_an_unclean_election_leaves_the_same_record(cluster: LocalCluster) -> None:
    topic = made(cluster, [1, 2], min_insync_replicas="1")
    produce(cluster, 1, topic, values(2))
    cluster.stop(2)
    produce(cluster, 1, topic, values(2, 2))
    cluster.kill(1)
    cluster.restart(2)
    url = f"{cluster.broker(2).url}/v3/clusters/{cluster.cluster_id}/topics/-/partitions:elect"
    election = {"election_type": "unclean", "data": [{"topic_name": topic, "partition_id": 0}]}

    def elected() -> bool:
        ask(url, election)
        return Asked(cluster, 2).produce(topic, 0, "after").status == 200

    until(elected, 60)
    cluster.restart(1)
    (one,) = audit(cluster, 2, topic)
    assert (one["start_offset"], one["statements"], one["accepted_by"]) == (-1, [], "ANONYMOUS")


# -- votes -------------------------------------------------------------------------------------------------------------


def has_no_votes(cluster: LocalCluster, topic: str) -> bool:
    """True once a dry run says that the partition could go on."""
    return votes(cluster, topic).status == 0


@pytest.mark.slow
@only(PAXOS)
@pytest.mark.parametrize("lost", [(1, 2), (2, 3), (1, 2, 3)])
def test_a_majority_that_has_lost_its_votes_is_given_up(cluster: LocalCluster, lost: tuple[int, ...]) -> None:
    topic = made(cluster, [1, 2, 3])
    produce(cluster, 1, topic, values(RECORDS))
    until(lambda: all(read(cluster, node_id, topic) == values(RECORDS) for node_id in cluster.node_ids))
    assert votes(cluster, topic).status == 1, "it has a leader"
    journals = [directory(cluster, node_id, topic) / "journal" for node_id in lost]
    cluster.stop(*cluster.node_ids)
    for journal in journals:
        shutil.rmtree(journal)
    cluster.restart(*cluster.node_ids)
    until(partial(has_no_votes, cluster, topic), 60)
    dry = votes(cluster, topic)
    assert (dry.found["remains"]["brokers"], dry.found["remains"]["end_offset"]) == ([1, 2, 3], RECORDS), dry
    said = {one["broker_id"]: one["status"] for one in dry.found["remains"]["statements"]}
    assert [node for node in (1, 2, 3) if said[node].startswith("no vote")] == list(lost), said
    assert Asked(cluster, 1).produce(topic, 0, "no").status != 200, "a dry run changes nothing"

    done = votes(cluster, topic, "--execute")
    assert (done.status, done.found["accepted"]) == (0, True), done
    produce(cluster, 1, topic, ["after"])
    for node_id in cluster.node_ids:
        until(partial(shows, cluster, node_id, topic, [*values(RECORDS), "after"]), 60)
    again = votes(cluster, topic, "--execute")
    assert (again.status, again.found["accepted"], len(again.found["accepted_before"])) == (0, False, 1), again
    for node_id in cluster.node_ids:  # each one is a voter again: any two elect a leader
        cluster.kill(node_id)
        produce(cluster, node_id % 3 + 1, topic, [f"without {node_id}"])
        cluster.restart(node_id)
    wanted = [*values(RECORDS), "after", *(f"without {node_id}" for node_id in cluster.node_ids)]
    for node_id in cluster.node_ids:
        until(partial(shows, cluster, node_id, topic, wanted), 60)
    assert command(cluster, "verify", "--cluster", "--topic", topic).status == 0


@pytest.mark.slow
@only(PAXOS)
def test_voters_that_were_given_up_come_back_and_have_no_say(protocol: str) -> None:
    """Brokers 4 and 5 have acknowledged more than 3 ever heard of; they are given up, and come back, whole."""
    with running(protocol, 5, settings={"log.scrub.period.ms": "3600000"}) as cluster:
        topic = made(cluster, [4, 5, 3])
        produce(cluster, 4, topic, values(RECORDS))
        until(lambda: all(read(cluster, node_id, topic) == values(RECORDS) for node_id in (3, 4, 5)))
        cluster.stop(3)
        produce(cluster, 4, topic, values(4, RECORDS))
        until(lambda: read(cluster, 5, topic) == values(RECORDS + 4))
        cluster.stop(4, 5)
        cluster.restart(3)
        until(lambda: "--even-though" in votes(cluster, topic, "--execute").error, 60)
        refused = votes(cluster, topic, "--even-though", "4", "--execute")
        assert (refused.status, "--even-though 5" in refused.error) == (1, True), refused
        words = ("--even-though", "4", "--even-though", "5", "--execute")
        assert votes(cluster, topic, *words).found["accepted"]
        behind = [f"new-{i}" for i in range(6)]
        produce(cluster, 3, topic, behind[:5])
        cluster.restart(4, 5)
        for node_id in (3, 4, 5):
            until(partial(shows, cluster, node_id, topic, [*values(RECORDS), *behind[:5]]), 60)
        until(lambda: in_sync(cluster, topic) == [3, 4, 5], 60)
        cluster.kill(3)
        produce(cluster, 4, topic, behind[5:])
        cluster.restart(3)
        for node_id in (3, 4, 5):
            until(partial(shows, cluster, node_id, topic, [*values(RECORDS), *behind]), 60)
        assert command(cluster, "verify", "--cluster", "--topic", topic).status == 0


def in_sync(cluster: LocalCluster, topic: str) -> list[int]:
    (partition,) = ask(f"{cluster.broker(3).url}/topics/{topic}/partitions").body
    return sorted(replica["broker"] for replica in partition["replicas"] if replica["in_sync"])
