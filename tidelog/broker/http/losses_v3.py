"""REST v3: offsets that are lost on every disk, and that an operator gives up. Not in Kafka.

A POST asks all replicas first, and tells what each has; with `validate_only` that is all. What was given up stays in
the metadata, with who did it and what was said, and is listed by a GET.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from aiohttp import web
from msgspec import Struct

from tidelog.broker.face.access import ANONYMOUS
from tidelog.broker.face.partitions import LossReport
from tidelog.broker.http.answers import json_answer
from tidelog.broker.http.body import read_json
from tidelog.broker.http.call import Call
from tidelog.broker.http.context import Context
from tidelog.broker.http.envelope import Links, PartitionResource, ResourceList
from tidelog.broker.http.json_body import Body, NodeNumber, OffsetNumber, json_decoder
from tidelog.broker.http.topics_v2 import partition_of
from tidelog.controller.partition_commands import AcceptLoss
from tidelog.model.cluster import PartitionInfo, Topic
from tidelog.model.errors import InvalidRequest, LossRefused
from tidelog.model.losses import AcceptedLoss


class StatementShown(Struct, frozen=True):
    """The answer of one replica: `damaged`, `missing`, `deleted`, `unreachable`, `unknown`, or `good copy`."""

    broker_id: int
    status: str


class LossV3(PartitionResource, frozen=True):
    """A range that was given up; `end_offset` is exclusive. `digests` name the batches that lay there, as far as a
    catalog still did."""

    start_offset: int
    end_offset: int
    accepted_at_ms: int
    accepted_by: str
    accepted_via: int
    statements: list[StatementShown]
    digests: list[str]


class PieceShown(Struct, frozen=True):
    """A damaged batch, or offsets of which no catalog row is left. It can be given up unless `kept_because` says why
    not. `bytes` and `max_timestamp` are null where no row tells."""

    start_offset: int
    end_offset: int
    kept_because: str | None
    statements: list[StatementShown]
    digest: str | None
    bytes: int | None
    max_timestamp: int | None


class LossesAsked(Body):
    """The body that gives up what is lost: all of it, or what lies in the offsets from `start_offset` up to
    `end_offset`, exclusive. `even_though` are brokers that cannot be asked, and are not waited for."""

    start_offset: OffsetNumber | None = None
    end_offset: OffsetNumber | None = None
    even_though: list[NodeNumber] | None = None
    validate_only: bool = False


class LossesJudged(Struct, frozen=True):
    """Tells what is damaged, and what each replica said. `accepted` tells whether it is given up now; `refusals` why
    not. `accepted_before` were given up already. Unless `is_whole`, there is more: the same can be asked again."""

    accepted: bool
    pieces: list[PieceShown]
    refusals: list[str]
    accepted_before: list[LossV3]
    is_whole: bool


_ASKED: Final = json_decoder(LossesAsked)


async def list_all(context: Context, call: Call) -> web.StreamResponse:
    """All that was given up in the cluster."""
    links = Links(context, call)
    topics = context.face.cluster.image.topics
    return json_answer(_listed(links, [topics[name] for name in sorted(topics)], "-"))


async def list_of_topic(context: Context, call: Call) -> web.StreamResponse:
    """All that was given up of a topic."""
    links = Links(context, call)
    topic = context.face.cluster.topic(call.topic_name())
    return json_answer(_listed(links, [topic], topic.name))


async def list_of_partition(context: Context, call: Call) -> web.StreamResponse:
    """All that was given up of a partition."""
    links = Links(context, call)
    topic = context.face.cluster.topic(call.topic_name())
    info = partition_of(topic, call)
    data = [_loss(links, topic, info, loss) for loss in info.losses]
    return json_answer(links.list_of("KafkaLoss", data, "topics", topic.name, "partitions", info.partition, "losses"))


async def accept(context: Context, call: Call) -> web.StreamResponse:
    """Gives up what is lost of a partition, if no replica has a good copy. Asking again does no harm."""
    links = Links(context, call)
    topic = context.face.cluster.topic(call.topic_name())
    info = partition_of(topic, call)
    asked = await read_json(context, call, _ASKED)
    even_though = _named(topic, info, asked)
    report = await context.face.partitions.find_losses(topic, info, _range(asked), even_though)
    if report.refusals and not asked.validate_only:
        raise LossRefused("; ".join((*report.refusals, "nothing was given up")))
    is_due = bool(report.lost) and not asked.validate_only
    if is_due:
        command = AcceptLoss(
            topic.topic_id,
            info.partition,
            tuple(report.lost),
            ANONYMOUS.name,
            context.face.cluster.node_id,
            context.face.clock.wall_ms(),
        )
        await context.face.administration.accept_loss(command)
    return json_answer(_judged(links, topic, info, report, is_done=is_due))


def _range(asked: LossesAsked) -> tuple[int, int] | None:
    if asked.start_offset is None and asked.end_offset is None:
        return None
    if asked.start_offset is None or asked.end_offset is None or asked.start_offset >= asked.end_offset:
        raise InvalidRequest("start_offset and end_offset go together, and end_offset is exclusive: the greater one")
    return asked.start_offset, asked.end_offset


def _named(topic: Topic, info: PartitionInfo, asked: LossesAsked) -> Sequence[int]:
    even_though = asked.even_though or []
    stranger = next((node for node in even_though if node not in info.replicas), None)
    if stranger is not None:
        raise InvalidRequest(
            f"broker {stranger} has no replica of {topic.name}-{info.partition}; "
            f"brokers {', '.join(map(str, info.replicas))} have"
        )
    return even_though


def _listed(links: Links, topics: Sequence[Topic], name: str) -> ResourceList[LossV3]:
    data = [_loss(links, topic, info, loss) for topic in topics for info in topic.partitions for loss in info.losses]
    return links.list_of("KafkaLoss", data, "topics", name, "partitions", "-", "losses")


def _loss(links: Links, topic: Topic, info: PartitionInfo, loss: AcceptedLoss) -> LossV3:
    return LossV3(
        *links.resource("KafkaLoss", "topics", topic.name, "partitions", info.partition, "losses"),
        topic.name,
        info.partition,
        loss.start,
        loss.end,
        loss.at_ms,
        loss.by,
        loss.via,
        [StatementShown(said.node_id, said.status) for said in loss.statements],
        list(loss.digests),
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
