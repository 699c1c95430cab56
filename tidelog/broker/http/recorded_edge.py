"""The edge of a broker that keeps an audit log: it serves requests as `Edge` does, and records denials and changes.

A denial is an answer 401, 403, 421 or 429. A change is any answer of a route that may change the cluster, failures
included; if the client has disconnected before the answer, its line says that. Each request has an id, the client's
`X-Request-Id` if it is well-formed, which is also a header of the answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, cast

from aiohttp import web

from tidelog.broker.face.audit import Audit, AuditEvent
from tidelog.broker.http.answers import REQUEST_ID
from tidelog.broker.http.call import Call, client_of
from tidelog.broker.http.connection import Connection
from tidelog.broker.http.context import Context
from tidelog.broker.http.edge import REFUSALS, Edge
from tidelog.broker.http.route import Route
from tidelog.model.access import Operation
from tidelog.model.errors import NotAuthenticated, NotAuthorized, TidelogError

DENIALS: Final = frozenset({401, 403, 421, 429})
UNCHANGING: Final = frozenset(
    {
        Operation.NONE,
        Operation.READ,
        Operation.WRITE,
        Operation.DESCRIBE,
        Operation.DESCRIBE_CONFIGS,
        Operation.IDEMPOTENT_WRITE,
    }
)
"""Operations that change nothing but records and committed offsets, and so are not recorded as changes."""
_CALL: Final = web.RequestKey("tidelog.call", tuple[Route, Call])


class RecordedEdge(Edge):
    """Serves the requests of one listener, and records denials and changes in the audit log."""

    def __init__(
        self,
        context: Context,
        routes: tuple[Route, ...],
        audit: Audit,
        listener: str,
        elsewhere: tuple[Route, ...] = (),
    ) -> None:
        super().__init__(context, routes, elsewhere)
        self._audit = audit
        self._listener = listener

    async def serve(self, request: web.BaseRequest) -> web.StreamResponse:
        """Serves a request as `Edge.serve`, and records a denial or change."""
        try:
            response = await super().serve(request)
        except BaseException:
            self._was_cut_off(request)
            raise
        begun = request.get(_CALL)
        if begun is None:
            return response
        route, call = begun
        if not response.prepared:
            response.headers[REQUEST_ID] = call.request_id
        if response.status in DENIALS or call.refused is not None:
            self._audit.denied(self._event(route, call, "denied", response.status))
        elif is_change(route):
            await self._audit.changed(self._event(route, call, "changed", response.status))
        return response

    def _begin(self, request: web.BaseRequest, route: Route, path: Mapping[str, str]) -> Call:
        call = super()._begin(request, route, path)
        call.request_id = self._audit.request_id(request.headers.get(REQUEST_ID))
        request[_CALL] = (route, call)
        return call

    def _was_cut_off(self, request: web.BaseRequest) -> None:
        begun = request.get(_CALL)
        if begun is not None and is_change(begun[0]):
            route, call = begun
            self._audit.changed_unanswered(self._event(route, call, "changed", 0))

    def _event(self, route: Route, call: Call, event: str, status: int) -> AuditEvent:
        client, error = client_of(call), call.error
        operation, resource = call.refused or (route.operation, route.resource(call.path))
        return AuditEvent(
            event=event,
            principal=f"{client.principal.type}:{client.principal.name}",
            client_id=client.client_id,
            address=cast("Connection", call.request.protocol).address,
            listener=self._listener,
            request_id=call.request_id,
            method=route.method,
            route=route.template,
            operation=operation.value,
            resource_type=resource.type,
            resource_name=resource.name,
            subject=call.subject or _named(call),
            allowed=event != "denied",
            status=status,
            error_code=0 if error is None else error.code,
            reason=_reason(call, error, status),
        )


def _named(call: Call) -> str:
    return " ".join(f"{name}={value}" for name, value in call.path.items() if name != "cluster_id")


def is_change(route: Route) -> bool:
    """Returns True if a route may change the cluster."""
    return route.is_recorded or (route.method != "GET" and route.operation not in UNCHANGING)


def _reason(call: Call, error: TidelogError | None, status: int) -> str:
    """Returns the reason for the audit log, from a small set of texts, so that equal denials are counted together."""
    if call.refused is not None:
        return REFUSALS[NotAuthorized.code]
    if error is None:
        return "" if status else "the client was gone before the answer"
    if isinstance(error, NotAuthenticated) and error.cause:
        return f"{REFUSALS[401]}: {error.cause}"
    return REFUSALS.get(error.code) or REFUSALS.get(error.status) or type(error).__name__
