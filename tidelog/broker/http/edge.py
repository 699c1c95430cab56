"""The edge: every request goes through `Edge.serve`, which turns the handler's result or error into an answer.

A handler raises `TidelogError` for every expected failure. Any other exception is a bug of the broker: it is logged
once, and the client gets a 500 without details. An answer that has begun can only be cut off, which the client sees.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping, Sequence
from typing import Final, cast

import structlog
from aiohttp import web
from aiohttp.hdrs import AUTHORIZATION, HOST, ORIGIN

from tidelog.broker.face.shares import Share
from tidelog.broker.face.shedding import RequestClass
from tidelog.broker.http.answers import CLOSING_STATUSES, RETRY_AFTER_S_MAX, THROTTLE_TIME, cut, error_answer
from tidelog.broker.http.call import Call, client_of
from tidelog.broker.http.connection import Connection
from tidelog.broker.http.context import Context
from tidelog.broker.http.guard import Guard
from tidelog.broker.http.metrics import RouteStats
from tidelog.broker.http.origin import SEC_FETCH_SITE, KnownHosts, check_origin
from tidelog.broker.http.route import Route
from tidelog.broker.http.router import Router, WrongMethod
from tidelog.config.values import split_address
from tidelog.model.access import Operation
from tidelog.model.errors import (
    InternalError,
    InvalidRequest,
    NotAuthenticated,
    Overloaded,
    QuotaExceeded,
    TidelogError,
    TooManyAttempts,
    TooManyConnections,
)
from tidelog.model.quotas import REQUEST_RATE

REFUSALS: Final = {  # by code, else by status
    40301: "no right",
    40302: "foreign origin",
    401: "no login",
    408: "slow body",
    411: "no length",
    413: "too large",
    415: "media type",
    421: "unknown host",
    42901: "failed logins",
    42902: "quota",
    503: "not now",
    507: "disk full",
}
READS: Final = (RequestClass.READ, RequestClass.LONG_POLL)


class Edge:
    """Serves the requests of one listener: routes, admits and authorizes them, runs their handlers, and answers
    errors.
    """

    def __init__(self, context: Context, routes: Sequence[Route], elsewhere: Sequence[Route] = ()) -> None:
        """`elsewhere` are the routes of this broker's other HTTP listener (for clients or for operators), so that a 404
        can name that listener.
        """
        self._context = context
        self._admission = context.admission
        self._guard = context.guard
        self._shares = context.face.shares
        self._clock = context.face.clock
        config = context.face.cluster.config
        listeners = (config.http_listener, config.http_ops_listener)
        self._hosts = KnownHosts(
            [*config.http_hosts, *(split_address(at)[0].lower() for at in listeners if at is not None)],
            lambda: [broker.http.host for broker in context.face.cluster.image.brokers.values()],
        )
        self._router = Router(routes, elsewhere)
        self._stats = {route: context.metrics.route(route.template, route.method) for route in routes}
        self._unmatched = context.metrics.route("unmatched", "any")
        self._logger = structlog.get_logger("tidelog.http").bind(node_id=context.face.cluster.node_id)
        self._refused = 0
        stages = context.face.statistics.counts.stages
        self._turns = {
            RequestClass.PRODUCE: stages.produce_turn,
            RequestClass.READ: stages.fetch_turn,
            RequestClass.LONG_POLL: stages.fetch_turn,
        }

    async def serve(self, request: web.BaseRequest) -> web.StreamResponse:
        """Returns the answer to a request. Raises `ConnectionError` if the client has disconnected, or a streamed
        answer was cut off.
        """
        started_s = self._clock.monotonic_s()  # uvloop's own time has a grain of a millisecond
        stats = self._unmatched
        call = None
        try:
            route, path = self._router.match(request.method, request.rel_url.raw_path)
            stats = self._stats[route]
            call = self._begin(request, route, path)
            if route.operation is not Operation.NONE:  # probes ask for health under any name
                headers = request.headers
                self._hosts.check(headers.get(HOST))
                if ORIGIN in headers or SEC_FETCH_SITE in headers:  # from a browser
                    check_origin(request.method, headers)
            if not route.is_always_on:
                self._refuse_now(cast("Connection", request.protocol), route, call, started_s)
            if self._guard is None or route.operation is Operation.NONE:
                response = await self._run(route, call)
            else:
                response = await self._serve_guarded(self._guard, route, call)
        except TidelogError as error:
            response = self._refuse(request, call, error)
        except (ConnectionError, asyncio.CancelledError):
            raise
        except web.RequestPayloadError:
            response = self._refuse(request, call, InvalidRequest("the body is not correctly framed"))
        except Exception:
            self._logger.exception("a request failed in a way that was not foreseen", route=stats.template)
            response = self._refuse(request, call, InternalError("the broker failed; its log says more"))
        finally:
            if call is not None:
                self._give_back(call)
        self._count(stats, call, response, self._clock.monotonic_s() - started_s)
        return response

    def _begin(self, request: web.BaseRequest, route: Route, path: Mapping[str, str]) -> Call:
        return Call(request, route.prefix, path, asyncio.get_running_loop().time())

    def _run(self, route: Route, call: Call) -> Awaitable[web.StreamResponse]:
        if self._shares.are_set and not route.is_always_on:
            return self._charged(route, call)
        return route.serve(self._context, call)

    async def _serve_guarded(self, guard: Guard, route: Route, call: Call) -> web.StreamResponse:
        """Authenticates and authorizes the request, and runs its handler. If the request may wait or stream, cancels it
        when its caller loses the right.
        """
        request = call.request
        connection = cast("Connection", request.protocol)
        call.entry = await guard.admit(
            request.headers.get(AUTHORIZATION),
            connection.address,
            connection.certificate,
            route.operation,
            route.resource(call.path),
            is_judged_by_handler=route.is_judged_by_handler,
        )
        served = self._run(route, call)
        return await (guard.while_it_may(call.entry, served, is_read=route.is_read) if route.may_last else served)

    def _refuse_now(self, connection: Connection, route: Route, call: Call, now_s: float) -> None:
        """Raises `Overloaded` on a probe connection or for a request that has queued too long; `LeaderNotAvailable`
        before the broker is ready.
        """
        if connection.is_probe:
            raise Overloaded("too many connections; try again in a moment")
        self._admission.refuse_unready()
        kind = route.class_of(call)
        if kind is not None:
            waited_s = now_s - connection.waits_since_s
            self._admission.shedding.refuse_late(kind, waited_s, now_s)
            turn = self._turns.get(kind)
            if turn is not None:
                turn.observe(waited_s)

    async def _charged(self, route: Route, call: Call) -> web.StreamResponse:
        """Runs a handler within its caller's quotas. Raises `QuotaExceeded` if the quota of requests or of bytes read
        is used up, `TooManyConnections` if the caller has too many connections, or the handler's error.
        """
        cast("Connection", call.request.protocol).hold_for(call.principal.name)
        share = Share(self._shares, client_of(call), produces=route.request_class is RequestClass.PRODUCE)
        call.share = share
        if not route.is_vital:
            await share.use(REQUEST_RATE, 1)
        if route.request_class in READS:
            share.refuse_to_send()
        response = await route.serve(self._context, call)
        if share.waited_s and not response.prepared:
            response.headers[THROTTLE_TIME] = share.waited_ms
        return response

    def _refuse(self, request: web.BaseRequest, call: Call | None, error: TidelogError) -> web.Response:
        """Returns the answer to a request that failed. If a streamed answer has begun, cuts the connection and raises
        `ConnectionAbortedError`.
        """
        if call is not None and call.is_open:
            cut(call)
            raise ConnectionAbortedError("an answer that had begun could not be finished")
        if call is not None:
            call.error = error
        error.forget_origin()  # which would keep the body, or what was read
        self._refused += 1
        spread_s = self._refused % RETRY_AFTER_S_MAX if isinstance(error, Overloaded) else 0  # others pass soon
        retry_after_s = error.retry_after_s if isinstance(error, TooManyAttempts | QuotaExceeded) else 1 + spread_s
        response = error_answer(error, retry_after_s=retry_after_s)
        if isinstance(error, NotAuthenticated) and self._guard is not None and self._guard.authentication.challenge:
            response.headers["WWW-Authenticate"] = self._guard.authentication.challenge
        if isinstance(error, WrongMethod):
            response.headers["Allow"] = ", ".join(error.allowed)
        reason = REFUSALS.get(error.code) or REFUSALS.get(error.status)
        if reason is not None:
            self._context.metrics.refused(reason)
        is_probe = cast("Connection", request.protocol).is_probe  # its client gets a full place with the next one
        is_ended = error.status in CLOSING_STATUSES or isinstance(error, TooManyConnections)
        if is_ended or is_probe or not request.content.is_eof():
            response.force_close()
        return response

    def _give_back(self, call: Call) -> None:
        if call.body_bytes:
            self._admission.bodies.give_back(call.body_bytes)
        if call.answer_bytes:
            self._admission.answers.give_back(call.answer_bytes)

    @staticmethod
    def _count(stats: RouteStats, call: Call | None, response: web.StreamResponse, seconds: float) -> None:
        received, sent = (0, 0) if call is None else (call.received_bytes, call.sent_bytes)
        if not sent and isinstance(response, web.Response) and isinstance(response.body, bytes):
            sent = len(response.body)
        stats.observe(response.status, seconds, received, sent)
