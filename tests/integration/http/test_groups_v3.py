"""REST v3: consumer groups, their members, their lags; resetting and deleting them; what `/metrics` shows of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import pytest

from tests.integration.http.conftest import Site, simulated
from tidelog.broker.http.group_metrics import GroupMetrics
from tidelog.model.classic_groups import JoinGroup, MemberAssignment, Protocol, SyncGroup
from tidelog.model.errors import CoordinatorNotAvailable
from tidelog.model.groups import (
    LEAVE,
    CommitOffsets,
    CommittedOffset,
    FetchOffsets,
    Heartbeat,
    HeartbeatAnswer,
    TopicPartitions,
)

GROUP = "readers"
HELD = TopicPartitions("flights", (0, 1, 2))


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    """With `flights`, of three partitions of which 0 has four records."""
    async with simulated(settings={"group.initial.rebalance.delay.ms": 0}) as made:
        await made.topic("flights", 3)
        records = {"records": [{"value": number, "partition": 0, "timestamp": 1000 + number} for number in range(4)]}
        reply = await made.post("/topics/flights", records, {"Content-Type": "application/vnd.kafka.json.v2+json"})
        assert reply.status == 200, reply.json()
        yield made


def deadline_s() -> float:
    return asyncio.get_running_loop().time() + 10


async def beat(site: Site, epoch: int, owned: tuple[TopicPartitions, ...], member: str = "m1") -> HeartbeatAnswer:
    joining: dict[str, Any] = {"topics": ("flights",), "client_id": "c", "client_host": "h"} if epoch == 0 else {}
    request = Heartbeat(group=GROUP, member_id=member, member_epoch=epoch, owned=owned, **joining)
    return await site.broker.groups.ask(request, deadline_s=deadline_s())


async def commit(site: Site, *partitions: tuple[int, int], epoch: int = -1) -> None:
    offsets = tuple(CommittedOffset("flights", partition, offset) for partition, offset in partitions)
    member = "m1" if epoch > 0 else ""
    request = CommitOffsets(group=GROUP, member_id=member, member_epoch=epoch, offsets=offsets)
    answer = await site.broker.groups.ask(request, deadline_s=deadline_s())
    assert [verdict.code for verdict in answer.verdicts] == [0] * len(partitions)


async def joined(site: Site) -> int:
    """One member that has all three partitions, and has read one record of the first. Its epoch."""
    answer = await beat(site, 0, ())
    if answer.assignment == ():
        answer = await beat(site, answer.member_epoch, ())
    assert answer.assignment == (HELD,)
    await beat(site, answer.member_epoch, (HELD,))
    await commit(site, (0, 1), (1, 0), epoch=answer.member_epoch)
    return answer.member_epoch


async def test_a_group_its_members_and_what_they_have(site: Site) -> None:
    base = f"{site.v3}/consumer-groups"
    assert (await site.get(base)).json()["data"] == []
    assert (await site.get(f"{base}/{GROUP}")).code == 40405
    epoch = await joined(site)

    group = (await site.get(f"{base}/{GROUP}")).json()
    assert (await site.get(base)).json()["data"] == [group]
    links = {name: group.pop(name)["related"] for name in ("coordinator", "consumers", "lag_summary")}
    metadata = group.pop("metadata")
    assert metadata["self"].endswith(f"{base}/{GROUP}")
    assert metadata["resource_name"] == f"crn:///kafka={site.broker.cluster_id}/consumer-group={GROUP}"
    assert group == {
        "kind": "KafkaConsumerGroup",
        "cluster_id": site.broker.cluster_id,
        "consumer_group_id": GROUP,
        "is_simple": False,
        "partition_assignor": "uniform",
        "state": "STABLE",
        "type": "CONSUMER",
        "is_mixed_consumer_group": False,
        "members_count": 1,
        "group_epoch": epoch,
        "protocol_type": "",
        "coordinator_id": 1,
    }

    (member,) = (await site.get(links["consumers"])).json()["data"]
    assert member == (await site.get(member["metadata"]["self"])).json()
    assert (member["consumer_id"], member["client_id"], member["client_host"]) == ("m1", "c", "h")
    assert (member["instance_id"], member["member_epoch"], member["topics"]) == (None, epoch, ["flights"])
    assert member["owned"] == member["target"] == [{"topic_name": "flights", "partition_ids": [0, 1, 2]}]

    assignments = (await site.get(member["assignments"]["related"])).json()["data"]
    assert [(one["topic_name"], one["partition_id"]) for one in assignments] == [("flights", p) for p in range(3)]
    assert assignments[1] == (await site.get(assignments[1]["metadata"]["self"])).json()
    for link in (*links.values(), assignments[1]["partition"]["related"], assignments[1]["lag"]["related"]):
        assert (await site.get(link)).status == 200

    assert (await site.get(f"{base}/{GROUP}/consumers/other")).code == 40400
    assert (await site.get(f"{base}/{GROUP}/consumers/m1/assignments/flights/partitions/3")).code == 40400
    assert (await site.get(f"{base}/no:%20%2Fgroup")).code == 40405
    assert (await site.get(f"{base}/{'x' * 256}")).code == 40002


def classic(member_id: str = "") -> JoinGroup:
    return JoinGroup(
        group="old / group",
        member_id=member_id,
        instance_id="i",
        client_id="c:1",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        protocol_type="consumer",
        protocols=(Protocol("range", b"\0\0\0\0\0\1\0\7flights\0\0\0\0"),),
    )


async def test_a_classic_group_is_shown_with_the_others(site: Site) -> None:
    groups = site.broker.groups.classic
    for attempt in range(50):
        with suppress(CoordinatorNotAvailable):  # just after the first one the topic of groups is new
            answer = await groups.join(classic(), deadline_s())
            break
        await asyncio.sleep(0.05 * (attempt + 1))
    assignment = b"\0\0\0\0\0\1\0\7flights\0\0\0\2\0\0\0\0\0\0\0\2\xff\xff\xff\xff"
    path = f"{site.v3}/consumer-groups/old%20%2F%20group"
    assert (await site.get(path)).json()["state"] == "COMPLETING_REBALANCE"
    given = (MemberAssignment(answer.member_id, assignment),)
    syncing = SyncGroup(group="old / group", member_id=answer.member_id, generation=1, assignments=given)
    await groups.sync(syncing, deadline_s())

    group = (await site.get(path)).json()
    assert (group["type"], group["protocol_type"], group["state"]) == ("CLASSIC", "consumer", "STABLE")
    assert (group["partition_assignor"], group["group_epoch"], group["members_count"]) == ("range", 1, 1)
    member = (await site.get(group["consumers"]["related"])).json()["data"][0]
    assert (member["instance_id"], member["topics"], member["member_epoch"]) == ("i", ["flights"], 1)
    assert member["owned"] == [{"topic_name": "flights", "partition_ids": [0, 2]}]
    assert (await site.get(member["metadata"]["self"])).json() == member
    shown = (await site.get("/metrics")).body.decode()
    assert 'tidelog_groups{state="stable",type="classic"} 1.0' in shown
    assert 'tidelog_group_members{group="old / group"} 1.0' in shown


async def test_how_far_a_group_is_behind(site: Site) -> None:
    await joined(site)
    base = f"{site.v3}/consumer-groups/{GROUP}"
    lags = (await site.get(f"{base}/lags")).json()["data"]
    assert lags[0] == (await site.get(f"{base}/lags/flights/partitions/0")).json()
    assert lags[0] | {"metadata": None} == {
        "kind": "KafkaConsumerLag",
        "metadata": None,
        "cluster_id": site.broker.cluster_id,
        "consumer_group_id": GROUP,
        "topic_name": "flights",
        "partition_id": 0,
        "current_offset": 1,
        "log_end_offset": 4,
        "lag": 3,
        "consumer_id": "m1",
        "instance_id": None,
        "client_id": "c",
    }
    assert [(lag["partition_id"], lag["lag"]) for lag in lags] == [(0, 3), (1, 0)]
    assert (await site.get(f"{base}/lags/flights/partitions/2")).code == 40400

    summary = (await site.get(f"{base}/lag-summary")).json()
    assert (summary["max_lag"], summary["total_lag"]) == (3, 3)
    assert (summary["max_lag_topic_name"], summary["max_lag_partition_id"]) == ("flights", 0)
    assert summary["max_lag_consumer_id"] == "m1"
    assert (await site.get(summary["max_lag_consumer"]["related"])).status == 200
    assert (await site.get(summary["max_lag_partition"]["related"])).status == 200


async def test_a_group_of_a_topic_that_is_gone_is_behind_nowhere(site: Site) -> None:
    await commit(site, (0, 1))
    await site.ask("DELETE", f"{site.v3}/topics/flights")
    assert (await site.get(f"{site.v3}/consumer-groups/{GROUP}/lags")).json()["data"] == []
    assert (await site.get(f"{site.v3}/consumer-groups/{GROUP}/lag-summary")).code == 40400


# -- resetting -------------------------------------------------------------------------------------------------------


async def reset(site: Site, **asked: Any) -> list[tuple[int, int | None, int]]:
    """(partition, before, after)"""
    reply = await site.post(f"{site.v3}/consumer-groups/{GROUP}/offsets:reset", asked)
    assert reply.status == 200, reply.body
    return [(one["partition_id"], one["current_offset"], one["new_offset"]) for one in reply.json()["data"]]


async def partitions(site: Site) -> list[tuple[int, int]]:
    answer = await site.broker.groups.ask(FetchOffsets(group=GROUP), deadline_s=deadline_s())
    return sorted((partition.partition, partition.offset) for partition in answer.offsets)


async def test_where_a_group_can_be_put(site: Site) -> None:
    flights = [{"topic_name": "flights"}]
    assert await reset(site, to="earliest", topics=flights) == [(0, None, 0), (1, None, 0), (2, None, 0)]
    assert await partitions(site) == [(0, 0), (1, 0), (2, 0)]
    only = [{"topic_name": "flights", "partition_ids": [0, 0]}]
    assert await reset(site, to="offset", offset=3, topics=only) == [(0, 0, 3)]
    assert await reset(site, to="shift", shift_by=-1) == [(0, 3, 2), (1, 0, 0), (2, 0, 0)]
    assert await reset(site, to="timestamp", timestamp=1001, topics=only) == [(0, 2, 1)]
    assert await reset(site, to="duration", duration_ms=10**15, topics=only) == [(0, 1, 0)]
    assert await reset(site, to="duration", duration_ms=1000, topics=only) == [(0, 0, 4)]
    assert await reset(site, to="latest", validate_only=True) == [(0, 4, 4), (1, 0, 0), (2, 0, 0)]
    assert await reset(site, to="earliest", validate_only=True) == [(0, 4, 0), (1, 0, 0), (2, 0, 0)]
    assert await partitions(site) == [(0, 4), (1, 0), (2, 0)], "what is only validated changes nothing"


MEANINGLESS: Any = [
    ({}, 40002, "to"),
    ({"to": "somewhere"}, 40002, "somewhere"),
    ({"to": "offset"}, 40002, "to=offset needs offset; given is none"),
    ({"to": "latest", "offset": 1}, 40002, "to=latest needs no value; given offset"),
    ({"to": "shift", "shift_by": 1, "offset": 1}, 40002, "given offset and shift_by"),
    ({"to": "latest"}, 42206, "name topics to give it some"),
    ({"to": "latest", "topics": []}, 42206, "name topics to give it some"),
    ({"to": "latest", "topics": [{"topic_name": "nothing"}]}, 40401, "nothing"),
    ({"to": "latest", "topics": [{"topic_name": "flights", "partition_ids": [3]}]}, 40402, "3"),
    ({"to": "shift", "shift_by": 1, "topics": [{"topic_name": "flights"}]}, 42206, "no offset of flights-0"),
]


async def test_resets_that_mean_nothing_do_nothing(site: Site) -> None:
    for asked, code, said in MEANINGLESS:
        reply = await site.post(f"{site.v3}/consumer-groups/{GROUP}/offsets:reset", asked)
        assert (reply.code, said in reply.json()["message"]) == (code, True), (asked, reply.body)
    assert (await site.get(f"{site.v3}/consumer-groups/{GROUP}")).code == 40405


async def test_a_group_with_members_is_neither_reset_nor_deleted(site: Site) -> None:
    await joined(site)
    base = f"{site.v3}/consumer-groups/{GROUP}"
    for validate_only in (True, False):
        reply = await site.post(f"{base}/offsets:reset", {"to": "latest", "validate_only": validate_only})
        assert reply.code == 40913
        assert "stop its consumers first" in reply.json()["message"]
    assert (await site.ask("DELETE", base)).code == 40913
    assert await partitions(site) == [(0, 1), (1, 0)]
    await beat(site, LEAVE, ())
    assert await reset(site, to="latest") == [(0, 1, 4), (1, 0, 0)]
    assert (await site.ask("DELETE", base)).status == 204
    assert (await site.ask("DELETE", base)).code == 40405
    assert (await site.get(f"{site.v3}/consumer-groups")).json()["data"] == []


# -- metrics ---------------------------------------------------------------------------------------------------------


async def test_lags_are_in_the_metrics(site: Site) -> None:
    await joined(site)
    shown = await site.metrics()
    assert 'tidelog_groups{state="stable",type="consumer"} 1.0' in shown
    assert f'tidelog_group_members{{group="{GROUP}"}} 1.0' in shown
    assert f'tidelog_group_lag_records{{group="{GROUP}",partition="0",topic="flights"}} 3.0' in shown
    assert f'tidelog_group_lag_records{{group="{GROUP}",partition="1",topic="flights"}} 0.0' in shown
    assert "tidelog_groups_not_shown 0.0" in shown
    families = [line.split()[2] for line in shown.splitlines() if line.startswith("# TYPE")]
    assert len(set(families)) == len(families), "no two parts of the broker show one and the same"


async def test_groups_beyond_the_bound_are_counted(site: Site) -> None:
    await joined(site)
    page = {family.name: family.samples for family in GroupMetrics(site.broker.face, series_max=2).collect()}
    assert page["tidelog_group_members"] == page["tidelog_group_lag_records"] == []
    assert page["tidelog_groups_not_shown"][0].value == 1
    counts = {tuple(sample.labels.values()): sample.value for sample in page["tidelog_groups"]}
    assert counts["stable", "consumer"] == 1
