"""The consumer API of REST v2: consumer instances are created, subscribe, read, commit and are deleted, over plain
HTTP.

Paths, bodies and codes are those of Confluent's REST Proxy; differences are listed in docs/http-api.md. Any broker
takes requests for any instance: the URL that a client gets names the broker that it asked, but every other broker works
as well.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, TypeVar

import msgspec
from aiohttp import web

from tidelog.broker.face.rest_consumers import requests
from tidelog.broker.http import consumer_bodies as bodies
from tidelog.broker.http import params
from tidelog.broker.http.answers import json_answer, no_content, send_parts
from tidelog.broker.http.body import read_body
from tidelog.broker.http.call import Call
from tidelog.broker.http.context import Context
from tidelog.broker.http.json_body import decode_body
from tidelog.broker.http.media import Embedded, check_document, embedded_accepted
from tidelog.broker.http.topics_v2 import ANSWER_TYPE
from tidelog.model.access import Operation
from tidelog.model.errors import InvalidRequest, UnknownPartition
from tidelog.model.groups import check_group_name, check_instance_name, pairs
from tidelog.model.lost_ranges import LOST_HEADER, LostRange
from tidelog.transport.peer import Answer

T = TypeVar("T")
A = TypeVar("A", bound=msgspec.Struct)

_HOST: Final = re.compile(r"[A-Za-z0-9._-]+(:[0-9]+)?|\[[0-9A-Fa-f:.]+\](:[0-9]+)?")

# -- its life --------------------------------------------------------------------------------------------------------


async def create(context: Context, call: Call) -> web.StreamResponse:
    """Creates a consumer instance."""
    sent = await _optional_body(context, call, bodies.NewConsumer)
    config, consumers = context.face.cluster.config, context.face.rest_consumers
    group = check_group_name(call.path["group"])
    body = bodies.NewConsumer() if sent is None else sent
    request = requests.OpenInstance(
        group=group,
        instance=body.named(consumers.new_name()),
        settings=body.to_settings(
            config.consumer_request_timeout_ms,
            context.limits.request_timeout_ms_max,
            owner="" if call.entry is None else str(call.principal),
        ),
    )
    if call.share is not None:
        await call.share.mutate(1)  # its group begins with it, as a rule
    await _send(context, call, request)
    base_uri = f"{context.scheme}://{_host(context, call)}/consumers/{group}/instances/{request.instance}"
    return json_answer(bodies.ConsumerCreated(request.instance, base_uri), content_type=ANSWER_TYPE)


async def delete(context: Context, call: Call) -> web.StreamResponse:
    """Deletes a consumer instance; its partitions are reassigned at once."""
    return await _done(context, call, requests.CloseInstance)


# -- what it reads ---------------------------------------------------------------------------------------------------


async def subscribe(context: Context, call: Call) -> web.StreamResponse:
    """Subscribes an instance to topics or to a pattern, in place of its previous subscription."""
    request = (await _body(context, call, bodies.Subscription)).to_request(**_named(call))
    context.require_subscription(call, request.topics, request.pattern)
    await _send(context, call, request)
    return no_content()


async def get_subscription(context: Context, call: Call) -> web.StreamResponse:
    """Returns the topics that an instance has subscribed to."""
    shown = await _ask(context, call, requests.Reading, requests.ShowReading(**_named(call)))
    return json_answer(bodies.TopicsShown(list(shown.topics)), content_type=ANSWER_TYPE)


async def unsubscribe(context: Context, call: Call) -> web.StreamResponse:
    """Ends the subscription or assignment of an instance, which then reads nothing."""
    return await _done(context, call, requests.Subscribe)


async def assign(context: Context, call: Call) -> web.StreamResponse:
    """Assigns partitions to an instance without group membership, in place of its previous ones."""
    sent = await _body(context, call, bodies.PartitionsNamed)
    context.require(call, Operation.READ, "Topic", [partition.topic for partition in sent.partitions])
    await _send(context, call, requests.Assign(**_named(call), partitions=sent.listed()))
    return no_content()


async def get_assignments(context: Context, call: Call) -> web.StreamResponse:
    """Returns the partitions assigned to an instance, by subscription or by assignment."""
    shown = await _ask(context, call, requests.Reading, requests.ShowReading(**_named(call)))
    partitions = [bodies.PartitionShown(*partition) for partition in pairs(shown.partitions)]
    return json_answer(bodies.PartitionsShown(partitions), content_type=ANSWER_TYPE)


# -- where it is -----------------------------------------------------------------------------------------------------


async def seek(context: Context, call: Call) -> web.StreamResponse:
    """Sets an instance's positions to offsets, or to the first records of given times or later."""
    request = (await _body(context, call, bodies.SoughtPositions)).to_request(**_named(call))
    topics = [topic for topic, _, _ in (*request.offsets, *request.timestamps)]
    context.require(call, Operation.READ, "Topic", topics)
    await _send(context, call, request)
    return no_content()


async def seek_to_beginning(context: Context, call: Call) -> web.StreamResponse:
    """Sets an instance's position to the beginning of these partitions, or of all that it has."""
    return await _seek_to_edge(context, call, is_end=False)


async def seek_to_end(context: Context, call: Call) -> web.StreamResponse:
    """Sets an instance's position to the end of these partitions, or of all that it has."""
    return await _seek_to_edge(context, call, is_end=True)


async def _seek_to_edge(context: Context, call: Call, *, is_end: bool) -> web.StreamResponse:
    sent = await _body(context, call, bodies.PartitionsNamed)
    context.require(call, Operation.READ, "Topic", [partition.topic for partition in sent.partitions])
    await _send(context, call, requests.SeekToEdge(**_named(call), partitions=sent.listed(), is_end=is_end))
    return no_content()


# -- records ---------------------------------------------------------------------------------------------------------


async def get_records(context: Context, call: Call) -> web.StreamResponse:
    """Returns the next records of an instance; waits if there are none."""
    embedded = _accepted_form(call)
    limits, consumers = context.limits, context.face.rest_consumers
    if context.guard is not None:
        await _check_reading(context, call)
    wait_s = call.duration_s(context, "timeout", limits.request_timeout_ms_max)
    bytes_max = context.face.cluster.config.consumer_request_max_bytes
    request = requests.ReadRecords(
        **_named(call),
        attempt=consumers.new_attempt(),
        wait_ms=round(wait_s * 1000) if "timeout" in call.query else None,
        bytes_max=min(params.optional_integer(call.query, "max_bytes", bytes_max), bytes_max),
        format=None if embedded is None else embedded.form,
    )
    answer = None
    try:
        async with context.admission.waits.until(call.started_s + wait_s + consumers.patience_s):
            answer = await _send(context, call, request, wait_s=wait_s)
        if answer is None:  # this broker shuts down
            consumers.abandon(request)
            return json_answer([], content_type=(embedded or Embedded.BINARY).value)
        assert isinstance(answer.message, requests.RecordsRead)
        form = Embedded[answer.message.format.upper()]
        return await send_parts(context, call, [answer.body], _lost_header(answer.message), form.value)
    except BaseException:
        consumers.abandon(request)
        raise


async def _check_reading(context: Context, call: Call) -> None:
    """Raises `NotAuthorized` unless the caller may read the topics of the instance. Its subscription alone is no proof:
    it may be another caller's, or from before the right was withdrawn.
    """
    reading = await _ask(context, call, requests.Reading, requests.ShowReading(**_named(call)))
    topics = [*reading.topics, *(partition.topic for partition in reading.partitions)]
    context.require(call, Operation.READ, "Topic", topics)


def _lost_header(read: requests.RecordsRead) -> dict[str, str]:
    """Returns the response header with the accepted losses (ranges of lost offsets) that the read skipped, by
    partition.
    """
    ranges = [f"{topic}-{partition}:{LostRange(start, end)}" for topic, partition, start, end in read.lost]
    return {LOST_HEADER: ", ".join(ranges)} if ranges else {}


def _accepted_form(call: Call) -> Embedded | None:
    """Returns the record format that `Accept` requires; None if it accepts any, so that the instance's own format is
    used.
    """
    accept = call.request.headers.get("Accept")
    kinds = [] if accept is None else [kind.partition(";")[0].strip() for kind in accept.split(",")]
    takes_any = accept is None or "*/*" in kinds or "application/*" in kinds
    return None if takes_any else embedded_accepted(call.request)


# -- committed offsets ------------------------------------------------------------------------------------------------


async def commit(context: Context, call: Call) -> web.StreamResponse:
    """Commits the named offsets, or the next offsets of all partitions that the instance has read."""
    is_async = bool(params.boolean(call.query, "async"))
    sent = await _optional_body(context, call, bodies.OffsetsToCommit)
    is_next = context.face.cluster.config.rest_commit_semantics == "next"
    offsets = None if sent is None else sent.to_offsets(offset_is_next=is_next)
    context.require(call, Operation.READ, "Topic", [offset.topic for offset in offsets or ()])
    committed = await _ask(
        context,
        call,
        requests.OffsetsCommitted,
        requests.CommitPositions(**_named(call), offsets=offsets, is_async=is_async),
    )
    refused: list[requests.OffsetRefused] = list(committed.refused)
    return json_answer(refused, content_type=ANSWER_TYPE)


async def get_offsets(context: Context, call: Call) -> web.StreamResponse:
    """Returns the group's committed offsets in the partitions that the body names."""
    sent = await _optional_body(context, call, bodies.PartitionsNamed)
    if sent is None:
        raise UnknownPartition('say in the body of which partitions: {"partitions": [{"topic", "partition"}]}')
    context.require(call, Operation.DESCRIBE, "Topic", [partition.topic for partition in sent.partitions])
    committed = await _ask(
        context, call, requests.CommittedFetched, requests.FetchCommitted(**_named(call), partitions=sent.listed())
    )
    offsets = [
        bodies.CommittedShown(offset.topic, offset.partition, offset.offset, offset.metadata)
        for offset in committed.offsets
    ]
    return json_answer(bodies.CommittedListed(offsets), content_type=ANSWER_TYPE)


# -- what they share -------------------------------------------------------------------------------------------------


async def _body(context: Context, call: Call, kind: type[T]) -> T:
    sent = await _optional_body(context, call, kind)
    if sent is None:
        raise InvalidRequest("send a JSON document")
    return sent


async def _optional_body(context: Context, call: Call, kind: type[T]) -> T | None:
    """Returns the decoded JSON body, or None if it is empty."""
    body = await read_body(context, call, context.limits.json_bytes_max, is_optional=True)
    if not body:
        return None
    check_document(call.request)
    return decode_body(kind, body)


async def _done(context: Context, call: Call, kind: Callable[..., requests.InstanceRequest]) -> web.StreamResponse:
    await read_body(context, call, context.limits.json_bytes_max, is_optional=True)
    await _send(context, call, kind(**_named(call)))
    return no_content()


async def _ask(context: Context, call: Call, kind: type[A], request: requests.InstanceRequest) -> A:
    answer = (await _send(context, call, request)).message
    assert isinstance(answer, kind)
    return answer


async def _send(context: Context, call: Call, request: requests.InstanceRequest, *, wait_s: float = 0.0) -> Answer:
    """Sends a request to the broker that keeps the instance, in the name of the caller if access control is on and it
    is no super user.
    """
    if call.entry is not None and str(call.principal) not in context.face.cluster.config.super_users:
        request = msgspec.structs.replace(request, caller=str(call.principal))
    return await context.face.rest_consumers.ask(request, wait_s=wait_s)


def _named(call: Call) -> dict[str, str]:
    """Returns the group and the instance name of the path."""
    group = check_group_name(call.path["group"])
    return {"group": group, "instance": check_instance_name(call.path["instance"], "consumer instance")}


def _host(context: Context, call: Call) -> str:
    """Returns the address by which the client reached this broker, from a well-formed `Host` header; else the
    advertised address.
    """
    host = call.request.headers.get("Host", "")
    return host if _HOST.fullmatch(host) else str(context.advertised)
