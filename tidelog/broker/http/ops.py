"""For those who run brokers: is it alive, can it serve, what is it doing, what can it do."""

from __future__ import annotations

from aiohttp import web
from msgspec import Struct
from prometheus_client import CONTENT_TYPE_LATEST

from tidelog.broker.http.answers import json_answer
from tidelog.broker.http.call import Call
from tidelog.broker.http.context import Context


class Health(Struct, frozen=True):
    """The process answers."""

    status: str


class Readiness(Struct, frozen=True):
    """The broker serves requests."""

    status: str
    cluster_id: str
    node_id: int


async def get_health(_context: Context, _call: Call) -> web.StreamResponse:
    """Is the process alive?"""
    return json_answer(Health("ok"))


async def get_readiness(context: Context, _call: Call) -> web.StreamResponse:
    """Can it serve?"""
    context.admission.refuse_if_leaving()
    context.admission.refuse_unready()
    cluster = context.face.cluster
    return json_answer(Readiness("ready", cluster.cluster_id, cluster.node_id))


async def get_metrics(context: Context, _call: Call) -> web.StreamResponse:
    """Counters and gauges, as Prometheus reads them."""
    return web.Response(body=await context.metrics_page.text(), headers={"Content-Type": CONTENT_TYPE_LATEST})


async def get_openapi(context: Context, _call: Call) -> web.StreamResponse:
    """This description."""
    return web.Response(body=context.openapi(), headers={"Content-Type": "application/json"})
