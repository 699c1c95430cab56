"""Routes for operators: liveness, readiness, metrics, and the API description."""

from __future__ import annotations

from aiohttp import web
from msgspec import Struct
from prometheus_client import CONTENT_TYPE_LATEST

from tidelog.broker.http.answers import json_answer
from tidelog.broker.http.call import Call
from tidelog.broker.http.context import Context


class Health(Struct, frozen=True):
    """The answer of the liveness check."""

    status: str


class Readiness(Struct, frozen=True):
    """The answer of the readiness check."""

    status: str
    cluster_id: str
    node_id: int


async def get_health(_context: Context, _call: Call) -> web.StreamResponse:
    """Returns 200 while the process is alive."""
    return json_answer(Health("ok"))


async def get_readiness(context: Context, _call: Call) -> web.StreamResponse:
    """Returns 200 if the broker serves requests, else 503."""
    context.admission.refuse_if_leaving()
    context.admission.refuse_unready()
    cluster = context.face.cluster
    return json_answer(Readiness("ready", cluster.cluster_id, cluster.node_id))


async def get_metrics(context: Context, _call: Call) -> web.StreamResponse:
    """Returns the metrics in Prometheus' text format."""
    return web.Response(body=await context.metrics_page.text(), headers={"Content-Type": CONTENT_TYPE_LATEST})


async def get_openapi(context: Context, _call: Call) -> web.StreamResponse:
    """Returns this OpenAPI description."""
    return web.Response(body=context.openapi(), headers={"Content-Type": "application/json"})
