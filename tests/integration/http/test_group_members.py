"""The group protocol over HTTP: what a member says and hears, how a wait ends, what is refused."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from tests.integration.http.conftest import STOP_S, Site
from tests.integration.http.wire import TIMEOUT_S, Reply
from tidelog.broker.http import group_members
from tidelog.model.errors import CoordinatorLost
from tidelog.model.groups import CommitOffsets, CommittedOffset, DescribeGroup, FetchOffsets, GroupRequest, Heartbeat
from tidelog.sim.kit.disk import SimDisk
from tidelog.sim.kit.environment import SimRunner


@pytest.fixture
async def groups() -> AsyncIterator[Site]:
    """A broker that keeps all groups in one partition, with topic `t` of two."""
    site = Site(SimDisk(), SimRunner(random.Random(0), mean_s=0.0002), lingering_s=0.05)
    await site.start()
    await site.topic(partitions=2)
    yield site
    await site.stop()


async def beat(site: Site, member: str, epoch: int, **more: object) -> Reply:
    return await site.post("/groups/g/heartbeat", {"member_id": member, "member_epoch": epoch, **more})


async def joined(site: Site, member: str = "m") -> dict[str, Any]:
    answer: dict[str, Any] = (await beat(site, member, 0, topics=["t"], owned=[])).json()
    return answer


def of_t(*partitions: int) -> list[dict[str, object]]:
    return [{"topic": "t", "partitions": list(partitions)}]


async def test_a_members_life(groups: Site) -> None:
    answer = await joined(groups)
    epoch = answer["member_epoch"]
    assert (answer["assignment"], answer["coordinator"], answer["session_timeout_ms"]) == (of_t(0, 1), 1, 45_000)
    assert (await beat(groups, "m", epoch, owned=of_t(0, 1))).json()["assignment"] is None

    who = {"member_id": "m", "member_epoch": epoch}
    partitions = [
        {"topic": "t", "partition": 1, "offset": 7, "metadata": "x"},
        {"topic": "none", "partition": 0, "offset": 1},
    ]
    verdicts = (await groups.post("/groups/g/offsets", {**who, "sequence": 1, "offsets": partitions})).json()[
        "verdicts"
    ]
    assert [verdict["code"] for verdict in verdicts] == [0, 40401]
    partition = {"topic": "t", "partition": 1, "offset": 7, "leader_epoch": -1, "metadata": "x"}
    assert (await groups.post("/groups/g/offsets:fetch", {})).json()["offsets"] == [partition]
    found = (await groups.post("/groups/g/offsets:fetch", {**who, "partitions": of_t(1, 0)})).json()["offsets"]
    assert [entry["offset"] for entry in found] == [-1, 7]

    stranger = await groups.post("/groups/g/offsets", {"offsets": partitions[:1]})
    assert (stranger.status, stranger.code) == (409, 40913)
    assert (await beat(groups, "m", -1)).status == 200
    assert (await beat(groups, "m", epoch)).code == 40406
    assert (await groups.post("/groups/g/offsets", {"offsets": partitions[:1]})).json()["verdicts"][0]["code"] == 0


async def test_a_member_is_known_by_where_it_asks_from(groups: Site) -> None:
    await joined(groups)
    deadline_s = asyncio.get_running_loop().time() + TIMEOUT_S
    described = await groups.broker.groups.ask(DescribeGroup(group="g"), deadline_s=deadline_s)
    assert [(member.member_id, member.client_host) for member in described.members] == [("m", "127.0.0.1")]


async def test_a_wait_ends_with_news(groups: Site) -> None:
    epoch = (await joined(groups))["member_epoch"]
    poll = asyncio.create_task(beat(groups, "m", epoch, owned=of_t(0, 1), wait_ms=30_000))
    await groups.until(lambda: groups.gauge("tidelog_http_waiting_requests") == 1)
    await joined(groups, "n")
    told = (await poll).json()
    assert (told["member_epoch"], told["assignment"]) == (epoch + 1, of_t(0))


async def test_a_wait_ends_with_the_listener(groups: Site) -> None:
    epoch = (await joined(groups))["member_epoch"]
    poll = asyncio.create_task(beat(groups, "m", epoch, owned=of_t(0, 1), wait_ms=30_000))
    await groups.until(lambda: groups.gauge("tidelog_http_waiting_requests") == 1)
    await groups.server.stop(STOP_S)
    assert (await poll).code == CoordinatorLost.code


BEAT = {"member_id": "m", "member_epoch": 0}
PLACE = {"topic": "t", "partition": 0, "offset": 1}


NONSENSE: list[tuple[str, object, int]] = [
    ("g/heartbeat", {**BEAT, "group": "h"}, 40002),
    ("g/heartbeat", {**BEAT, "member_epoch": -3}, 40002),
    ("g/heartbeat", {**BEAT, "wait_ms": -1}, 40002),
    ("g/heartbeat", {**BEAT, "member_id": ""}, 40002),
    ("g/heartbeat", {**BEAT, "topics": ["/"]}, 40002),
    ("g/heartbeat", {**BEAT, "topics": ["t"], "owned": [{"topic": "t", "partitions": [-1]}]}, 40002),
    ("g/heartbeat", {**BEAT, "topics": ["t"], "owned": of_t(*range(10_001))}, 42206),
    ("g/heartbeat", {**BEAT, "pattern": "("}, 40002),
    ("g/heartbeat", {**BEAT, "topics": ["t"], "assignor": "unfair"}, 42211),
    ("g/heartbeat", {**BEAT, "topics": ["t"], "session_timeout_ms": 1}, 40002),
    ("g%2Fh/heartbeat", BEAT, 40002),
    ("g/offsets", {"offsets": [{**PLACE, "offset": -1}]}, 40002),
    ("g/offsets", {"offsets": [PLACE] * 10_001}, 42206),
    ("g/offsets", {"offsets": [PLACE], "sequence": 2**63}, 40002),
    ("g/offsets:fetch", {"partitions": [{"topic": "t"}]}, 40002),
    ("g/offsets:fetch", [], 40002),
    ("g/offsets:fetch?timeout_ms=x", {}, 40002),
]


async def test_what_makes_no_sense_is_refused(groups: Site) -> None:
    for target, document, code in NONSENSE:
        reply = await groups.post(f"/groups/{target}", document)
        assert (reply.status, reply.code) == (code // 100, code), (target, document)


@pytest.mark.parametrize(
    ("asked", "request_type", "left_out"),
    [
        (group_members.HeartbeatAsked, Heartbeat, {"client_host"}),
        (group_members.CommitAsked, CommitOffsets, set()),
        (group_members.OffsetsAsked, FetchOffsets, set()),
        (group_members.OffsetAsked, CommittedOffset, set()),
    ],
)
def test_bodies_are_the_requests_without_the_group(
    asked: type[msgspec.Struct], request_type: type[msgspec.Struct], left_out: set[str]
) -> None:
    ours, theirs = ({field.name for field in msgspec.structs.fields(kind)} for kind in (asked, request_type))
    if issubclass(request_type, GroupRequest):
        left_out = left_out | {"group"}
    assert ours == theirs - left_out
