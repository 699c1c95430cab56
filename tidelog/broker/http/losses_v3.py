"""REST v3: offsets that are lost on every disk, and that an operator declares lost (gives up). Not in Kafka.

A POST asks all replicas first, and reports what each has; with `validate_only` that is all. An accepted loss stays in
the metadata, with who accepted it and what the replicas reported, and a GET lists it. With `votes` no records are given
up, but replicas: a partition that cannot elect a leader continues with the replicas that are left.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence

from aiohttp import web
from msgspec import Struct

from tidelog.broker.face.partitions import LossReport
from tidelog.broker.http.answers import json_answer
from tidelog.broker.http.body import read_json
from tidelog.broker.http.call import Call
from tidelog.broker.http.context import Context
from tidelog.broker.http.envelope import Links, PartitionResource, ResourceList
from tidelog.broker.http.json_body import Body, NodeNumber, OffsetNumber
from tidelog.broker.http.topics_v2 import partition_of
from tidelog.controller.partition_commands import AcceptLoss, RegroupPartition
from tidelog.model.cluster import PartitionInfo, Regrouping, Topic
from tidelog.model.errors import InvalidRequest, LossRefused
from tidelog.model.losses import AcceptedLoss, LossStatement


class StatementShown(Struct, frozen=True):
    """The report of one replica about damaged offsets: `damaged`, `missing`, `deleted`, `unreachable`, `unknown`, or
    `good copy`; with `votes` (to continue without lost replicas), the state of the replica's log.
    """

    broker_id: int
    status: str


class LossKind(enum.StrEnum):
    """The kind of an accepted loss: a range of offsets (`records`), or replicas and whatever only they had
    (`votes`).
    """

    RECORDS = "records"
    VOTES = "votes"


class LossV3(PartitionResource, frozen=True):
    """An accepted loss: an offset range that was declared lost; `end_offset` is exclusive. `digests` name the lost
    batches, as far as a replica's catalog (its list of batches with checksums) still has them. For `votes`, the
    partition continued from the replicas whose log ended at `start_offset`, which is -1 if no replica was asked;
    `end_offset` is the same.
    """

    given_up: LossKind
    start_offset: int
    end_offset: int
    accepted_at_ms: int
    accepted_by: str
    accepted_via: int
    statements: list[StatementShown]
    digests: list[str]


class PieceShown(Struct, frozen=True):
    """A damaged batch, or offsets that no replica's catalog (its list of batches with checksums) describes any more. It
    can be declared lost unless `kept_because` has a reason against it. `bytes` and `max_timestamp` are null if no
    catalog has them.
    """

    start_offset: int
    end_offset: int
    kept_because: str | None
    statements: list[StatementShown]
    digest: str | None
    bytes: int | None
    max_timestamp: int | None


class LossesAsked(Body):
    """The body that declares records lost: all damaged ones, or those from `start_offset` up to `end_offset`,
    exclusive. `even_though` are brokers that cannot be asked, and are not waited for. With `votes` a partition that
    cannot elect a leader continues with the replicas that are left.
    """

    start_offset: OffsetNumber | None = None
    end_offset: OffsetNumber | None = None
    even_though: list[NodeNumber] | None = None
    votes: bool = False
    validate_only: bool = False


class RemainsShown(Struct, frozen=True):
    """The replicas left of a partition that cannot elect a leader: their brokers, and the end of their log. `source` is
    the broker whose replica the others copy, or null.
    """

    brokers: list[int]
    source: int | None
    end_offset: int
    statements: list[StatementShown]


class LossesJudged(Struct, frozen=True):
    """The damaged offsets, and what each replica reported. `accepted` is true if they are declared lost now; `refusals`
    has the reasons if not. `accepted_before` are earlier losses. Unless `is_whole`, there is more, and the request can
    be repeated. With `votes`, `remains` has the replicas that are left.
    """

    accepted: bool
    pieces: list[PieceShown]
    refusals: list[str]
    accepted_before: list[LossV3]
    is_whole: bool
    remains: RemainsShown | None = None


async def list_all(context: Context, call: Call) -> web.StreamResponse:
    """Lists the accepted losses of the cluster."""
    links = Links(context, call)
    topics = context.face.cluster.image.topics
    return json_answer(_listed(links, [topics[name] for name in context.visible(call, "Topic", sorted(topics))], "-"))


async def list_of_topic(context: Context, call: Call) -> web.StreamResponse:
    """Lists the accepted losses of a topic."""
    links = Links(context, call)
    topic = context.face.cluster.topic(call.topic_name())
    return json_answer(_listed(links, [topic], topic.name))


async def list_of_partition(context: Context, call: Call) -> web.StreamResponse:
    """Lists the accepted losses of a partition."""
    links = Links(context, call)
    topic, info = partition_of(context, call)
    data = _all_of(links, topic, info)
    return json_answer(links.list_of("KafkaLoss", data, "topics", topic.name, "partitions", info.partition, "losses"))


async def accept(context: Context, call: Call) -> web.StreamResponse:
    """Declares damaged records of a partition lost, if no replica has a good copy. May be repeated."""
    links = Links(context, call)
    topic, info = partition_of(context, call)
    body = await read_json(context, call, LossesAsked)
    even_though = _named(topic, info, body)
    if body.votes:
        return json_answer(await _regroup(context, call, links, topic, info, body))
    report = await context.face.partitions.find_losses(topic, info, _range(body), even_though)
    if report.refusals and not body.validate_only:
        raise LossRefused("; ".join((*report.refusals, "nothing was given up")))
    is_due = bool(report.lost) and not body.validate_only
    if is_due:
        command = AcceptLoss(
            topic.topic_id,
            info.partition,
            tuple(report.lost),
            call.principal.name,
            context.face.cluster.node_id,
            context.face.clock.wall_ms(),
        )
        await context.face.administration.by(call.caller).accept_loss(command)
    return json_answer(_judged(links, topic, info, report, is_done=is_due))


async def _regroup(
    context: Context, call: Call, links: Links, topic: Topic, info: PartitionInfo, body: LossesAsked
) -> LossesJudged:
    """Lets a partition that cannot elect a leader continue with the replicas that are left. If that was done before,
    returns that decision and changes nothing.
    """
    if _range(body) is not None:
        raise InvalidRequest("votes are given up of a whole partition, and offsets without votes")
    report = await context.face.partitions.find_remains(topic, info, body.even_though or [])
    before = [] if report.before is None else [_loss(links, topic, info, report.before)]
    if report.refusals and not before and not body.validate_only:
        raise LossRefused("; ".join((*report.refusals, "nothing was given up")))
    is_due = not report.refusals and not body.validate_only
    if is_due:
        command = RegroupPartition(
            topic.topic_id,
            info.partition,
            info.partition_epoch,
            report.kept,
            report.end,
            report.source,
            report.statements,
            call.principal.name,
            context.face.cluster.node_id,
            context.face.clock.wall_ms(),
            report.position,
            report.birth,
        )
        await context.face.administration.by(call.caller).regroup(command)
    source = report.source if report.source in info.replicas else None
    remains = RemainsShown(list(report.kept), source, report.end, _shown(report.statements))
    refusals = [] if before else list(report.refusals)
    return LossesJudged(is_due, [], refusals, before, is_whole=True, remains=remains)


def _range(body: LossesAsked) -> tuple[int, int] | None:
    if body.start_offset is None and body.end_offset is None:
        return None
    if body.start_offset is None or body.end_offset is None or body.start_offset >= body.end_offset:
        raise InvalidRequest("start_offset and end_offset go together, and end_offset is exclusive: the greater one")
    return body.start_offset, body.end_offset


def _named(topic: Topic, info: PartitionInfo, body: LossesAsked) -> Sequence[int]:
    even_though = body.even_though or []
    stranger = next((node for node in even_though if node not in info.replicas), None)
    if stranger is not None:
        raise InvalidRequest(
            f"broker {stranger} has no replica of {topic.name}-{info.partition}; "
            f"brokers {', '.join(map(str, info.replicas))} have"
        )
    return even_though


def _listed(links: Links, topics: Sequence[Topic], name: str) -> ResourceList[LossV3]:
    data = [loss for topic in topics for info in topic.partitions for loss in _all_of(links, topic, info)]
    return links.list_of("KafkaLoss", data, "topics", name, "partitions", "-", "losses")


def _all_of(links: Links, topic: Topic, info: PartitionInfo) -> list[LossV3]:
    decisions: list[AcceptedLoss | Regrouping] = [*info.losses, *info.regroupings]
    return [_loss(links, topic, info, decision) for decision in decisions]


def _shown(statements: Sequence[LossStatement]) -> list[StatementShown]:
    return [StatementShown(statement.node_id, statement.status) for statement in statements]


def _loss(links: Links, topic: Topic, info: PartitionInfo, decision: AcceptedLoss | Regrouping) -> LossV3:
    kind, start, digests = LossKind.VOTES, decision.end, list[str]()
    if isinstance(decision, AcceptedLoss):
        kind, start, digests = LossKind.RECORDS, decision.start, list(decision.digests)
    return LossV3(
        *links.resource("KafkaLoss", "topics", topic.name, "partitions", info.partition, "losses"),
        topic.name,
        info.partition,
        kind,
        start,
        decision.end,
        decision.at_ms,
        decision.by,
        decision.via,
        _shown(decision.statements),
        digests,
    )


def _judged(links: Links, topic: Topic, info: PartitionInfo, report: LossReport, *, is_done: bool) -> LossesJudged:
    pieces = [
        PieceShown(
            piece.start,
            piece.end,
            piece.kept_because,
            [StatementShown(node, status) for node, status in sorted(piece.statements.items())],
            None if piece.row is None else piece.row.digest.hex(),
            None if piece.row is None else piece.row.size,
            None if piece.row is None else piece.row.max_timestamp,
        )
        for piece in report.pieces
    ]
    before = [_loss(links, topic, info, loss) for loss in report.before]
    return LossesJudged(is_done, pieces, list(report.refusals), before, report.is_whole)
