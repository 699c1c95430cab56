"""The consumer groups of a scenario: their topics, their members, and the disturbances of members.

They are drawn from random streams of their own, so that seeds without groups do not depend on them. The topics of
groups have producers and readers beside the groups, and never lose acknowledged records: what an unclean election loses
cannot have been handed out for certain.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator

import msgspec
from msgspec import structs

from tidelog.model.cluster import ISR, PAXOS
from tidelog.sim.cluster.traffic import DATA, ProducerPlan, TopicPlan, Traffic
from tidelog.sim.kit.history import Kind
from tidelog.sim.kit.seeds import stream

TOPIC = f"{DATA}g"
"""Prefix of the names of topics that groups read."""
ANY = "topic"
"""Prefix of the names of topics that administrators create."""
PATTERNS = (f"{TOPIC}.*", f"{TOPIC}.*", f"({TOPIC}|{ANY}).*")
"""Subscription patterns; the last one also matches topics that administrators create and delete."""
SHARE = 0.15
"""Share of the seeds that have consumer groups, unless chosen by an option."""
ASSIGNORS = ("uniform", "uniform", "range", "roundrobin")
RATES = (0.0, 0.02, 0.1)
PAUSE_S = 0.05
"""Seconds that a member waits before it retries after a failure."""

MISHAPS: dict[str, float] = {
    "crash": 3.0,
    "sleep": 3.0,
    "dawdle": 2.0,
    "leave": 2.0,
    "resubscribe": 1.5,
    "grow": 0.7,
}
"""Names of the disturbances of members and their topics, with their weights (`tidelog.sim.cluster.groups.slots`)."""


class MemberPlan(msgspec.Struct, frozen=True):
    """Plan of a group member: its subscription and timeouts. When the process of a member ends, another process takes
    over the plan. Seconds are of virtual time."""

    topics: tuple[str, ...]
    pattern: str = ""
    instance_id: str | None = None
    assignor: str = "uniform"
    session_timeout_ms: int = 1_000
    rebalance_timeout_ms: int = 1_000
    joins_s: float = 0.0
    handling_s: float = 0.01
    """Mean seconds that the member takes to handle a batch after it was handed out."""
    commits_every_s: float = 0.0
    """Seconds between commits; 0: a commit after each batch."""
    wait_ms: int = 0
    """Milliseconds that the coordinator may hold a heartbeat until there is a change to report."""


class GroupPlan(msgspec.Struct, frozen=True):
    """Plan of one group: its name and members."""

    name: str
    members: tuple[MemberPlan, ...]


class GroupTraffic(msgspec.Struct, frozen=True):
    """All groups of one run, and the rates of faults on their requests."""

    groups: tuple[GroupPlan, ...] = ()
    late_rate: float = 0.0
    """Chance that a request arrives only after its caller has given up."""
    twice_rate: float = 0.0
    """Chance that a request arrives once more, later."""
    mute_rate: float = 0.0
    """Chance that the answer to a request is lost."""
    copied_from_records: int = 20_000
    """Records in a coordinator's partition from which on the coordinator appends its live records again, so that all
    before them can be deleted."""
    copied_at_once: int = 500


class Mishap(msgspec.Struct, frozen=True, tag=True):
    """A disturbance of a group member. What `amount` means depends on the kind."""

    at_s: float
    kind: str
    group: int
    """Index of the group, modulo the number of groups; `member` is the index of its member, modulo theirs."""
    member: int
    lasts_s: float
    amount: float


# -- drawing ---------------------------------------------------------------------------------------------------------


def has_groups(seed: int) -> bool:
    """Returns whether a seed has consumer groups, if no option decides it."""
    return stream(seed, "groups?").random() < SHARE


def draw_topics(seed: int, brokers: int) -> Traffic:
    """Draws the topics of groups, and their producers."""
    rng = stream(seed, "group topics")
    topics = tuple(_draw_topic(rng, f"{TOPIC}{number}", brokers) for number in range(rng.choice((1, 1, 2))))
    return Traffic(topics, tuple(_draw_producers(rng, topics)), tunes=rng.random() < 0.2)


def _draw_topic(rng: random.Random, name: str, brokers: int) -> TopicPlan:
    factor = min(brokers, rng.choice((1, 2, 3, 3)))
    configs = {"segment.bytes": str(rng.choice((1_024, 3_000, 20_000)))}
    if rng.random() < 0.5:
        configs["min.insync.replicas"] = str(rng.randint(1, min(2, factor)))
    return TopicPlan(name, rng.choice((1, 2, 3, 4)), factor, configs)


def _draw_producers(rng: random.Random, topics: tuple[TopicPlan, ...]) -> Iterator[ProducerPlan]:
    for topic in topics:
        for partition in range(topic.partitions):
            kind = rng.choice((Kind.IDEMPOTENT, Kind.IDEMPOTENT, Kind.KEYED))
            yield ProducerPlan(f"{topic.name}p{partition}", kind, -1, topic.name, partition)


def draw_groups(seed: int, topics: tuple[TopicPlan, ...]) -> GroupTraffic:
    """Draws the groups that read these topics."""
    rng = stream(seed, "groups")
    names = [topic.name for topic in topics]
    groups = tuple(_draw_group(rng, f"group{number}", names) for number in range(rng.choice((1, 1, 2))))
    late_rate, twice_rate, mute_rate = (rng.choice(RATES) for _ in range(3))
    copied_from_records, copied_at_once = rng.choice((30, 100, 20_000)), rng.choice((1, 5, 500))
    return GroupTraffic(groups, late_rate, twice_rate, mute_rate, copied_from_records, copied_at_once)


def _draw_group(rng: random.Random, name: str, topics: list[str]) -> GroupPlan:
    assignors = rng.choice((ASSIGNORS, (rng.choice(ASSIGNORS),)))
    shared = tuple(rng.sample(topics, rng.randint(1, len(topics))))
    members = [
        _draw_member(rng, f"{name}-{slot}", shared if rng.random() < 0.7 else tuple(topics), rng.choice(assignors))
        for slot in range(rng.choices((1, 2, 3, 4, 6), (1, 3, 3, 2, 1))[0])
    ]
    return GroupPlan(name, tuple(members))


def _draw_member(rng: random.Random, name: str, topics: tuple[str, ...], assignor: str) -> MemberPlan:
    by_pattern = rng.random() < 0.2
    return MemberPlan(
        topics=() if by_pattern else topics,
        pattern=rng.choice(PATTERNS) if by_pattern else "",
        instance_id=name if rng.random() < 0.3 else None,
        assignor=assignor,
        session_timeout_ms=rng.choice((500, 800, 1_500, 3_000)),
        rebalance_timeout_ms=rng.choice((400, 1_000, 3_000)),
        joins_s=round(rng.choice((0.0, 0.0, 1.0, 3.0)) * rng.random(), 4),
        handling_s=rng.choice((0.001, 0.01, 0.05)),
        commits_every_s=rng.choice((0.0, 0.0, 0.05, 0.3)),
        wait_ms=rng.choice((0, 100, 1_000)),
    )


def revocation_s(delay_s: float, disk_delay_s: float, handling_s: float) -> float:
    """Returns the seconds that a member should have to give up a partition, given the mean delays of a frame and a
    flush.

    The coordinator appends its decision and sends it. The member handles its batch and commits; the heartbeat that is
    under way meanwhile is answered; the next one says that the partition is given up. An append takes a frame to the
    other replicas and one back, and a flush on both sides; the append before it has to be done. Delays are exponential,
    and their sum is hardly ever twice its mean. One request may fail. Members with less time than that expel each other
    by turns, for ever: each that joins anew takes partitions from others.
    """
    append_s = 2 * (2 * delay_s + 2 * disk_delay_s)
    notice_s = append_s + delay_s
    commit_s = heartbeat_s = delay_s + append_s + delay_s
    return 2 * (notice_s + handling_s + commit_s + heartbeat_s + delay_s) + PAUSE_S


def with_time_to_revoke(traffic: GroupTraffic, delay_s: float, disk_delay_s: float) -> GroupTraffic:
    """Returns the groups with rebalance timeouts that are at least `revocation_s`."""

    def patient(member: MemberPlan) -> MemberPlan:
        least_ms = math.ceil(1000 * revocation_s(delay_s, disk_delay_s, member.handling_s))
        return structs.replace(member, rebalance_timeout_ms=max(member.rebalance_timeout_ms, least_ms))

    groups = [structs.replace(group, members=tuple(map(patient, group.members))) for group in traffic.groups]
    return structs.replace(traffic, groups=tuple(groups))


def draw_mishaps(seed: int, groups: GroupTraffic, chaos_s: float) -> list[Mishap]:
    """Draws the disturbances of members; few last longer than a session timeout."""
    rng = stream(seed, "mishaps")
    kinds = rng.sample(sorted(MISHAPS), rng.choice((0, 1, 2, 3, 4)))
    if not kinds:
        return []
    weights = [MISHAPS[kind] for kind in kinds]
    return [
        Mishap(
            at_s=round(rng.uniform(0.3, chaos_s), 4),
            kind=rng.choices(kinds, weights)[0],
            group=rng.randrange(len(groups.groups)),
            member=rng.randrange(6),
            lasts_s=round(rng.choice((0.1, 0.7, 1.5)) * rng.uniform(0.5, 2.0), 4),
            amount=round(rng.random(), 4),
        )
        for _ in range(rng.randint(1, 2 + int(3 * chaos_s)))
    ]


def draw_group_settings(seed: int) -> dict[str, int | str]:
    """Draws the broker settings that concern groups."""
    rng = stream(seed, "group settings")
    return {
        "offsets.topic.num.partitions": rng.choice((1, 1, 2, 3)),
        "offsets.topic.replication.factor": rng.choice((1, 2, 3, 3)),
        "offsets.topic.commit.protocol": rng.choice((ISR, PAXOS)),
        "group.min.session.timeout.ms": 300,
        "group.consumer.session.timeout.ms": 1_000,
        "group.consumer.heartbeat.interval.ms": rng.choice((50, 100, 150)),
    }


# -- shrinking -------------------------------------------------------------------------------------------------------


def simpler_groups(traffic: GroupTraffic) -> Iterator[GroupTraffic]:
    """Yields simpler plans for shrinking: without one group, without one member, or with one fault rate at 0."""
    if len(traffic.groups) > 1:
        for group in traffic.groups:
            yield structs.replace(traffic, groups=tuple(kept for kept in traffic.groups if kept is not group))
    for index, group in enumerate(traffic.groups):
        for member in group.members:
            fewer = tuple(kept for kept in group.members if kept is not member)
            if fewer:
                yield _with(traffic, index, structs.replace(group, members=fewer))
    for name in ("late_rate", "twice_rate", "mute_rate"):
        yield structs.replace(traffic, **{name: 0.0})


def _with(traffic: GroupTraffic, index: int, group: GroupPlan) -> GroupTraffic:
    return structs.replace(traffic, groups=(*traffic.groups[:index], group, *traffic.groups[index + 1 :]))
