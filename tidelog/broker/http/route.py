"""Entries of the route table: method and path, authorization (operation and resource), and the types of request and
answer.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from aiohttp import web

from tidelog.broker.face.shedding import RequestClass
from tidelog.broker.http.call import Call
from tidelog.broker.http.context import Context
from tidelog.broker.http.media import JSON_TYPE
from tidelog.broker.http.params import shown
from tidelog.model.access import Operation, Resource
from tidelog.model.errors import NotFound

Handler = Callable[[Context, Call], Awaitable[web.StreamResponse]]


def cluster_resource(_path: Mapping[str, str]) -> Resource:
    """Returns the cluster as the resource to authorize."""
    return Resource("Cluster", "kafka-cluster")


def topic_resource(path: Mapping[str, str]) -> Resource:
    """Returns the topic of the path as the resource to authorize."""
    return Resource("Topic", path["topic"])


def any_topic_resource(_path: Mapping[str, str]) -> Resource:
    """Returns the resource of all topics, for a path that names none: the handler authorizes each topic, or filters a
    list.
    """
    return Resource("Topic", "*")


def group_resource(path: Mapping[str, str]) -> Resource:
    """Returns the consumer group of the path as the resource to authorize."""
    return Resource("Group", path["group"])


def any_group_resource(_path: Mapping[str, str]) -> Resource:
    """Returns the resource of all groups, for a path that names none: the handler authorizes each group, or filters a
    list.
    """
    return Resource("Group", "*")


def any_user_resource(_path: Mapping[str, str]) -> Resource:
    """Returns the resource of all users, for a path that names none: the handler authorizes each user, or filters a
    list.
    """
    return Resource("User", "*")


ResourceOf = Callable[[Mapping[str, str]], Resource]
"""Returns the resource of a request from the placeholders of its path."""


class Query(NamedTuple):
    """A query parameter, for the OpenAPI description."""

    name: str
    schema: Mapping[str, object]
    description: str


@dataclass(frozen=True, slots=True, eq=False)
class Route:
    """A route of the API. Placeholders in `path` are written `{name}` and match one segment.

    `request` and `answer` are the types of the JSON bodies, None if there is none or it is not JSON; a tuple of types
    is an answer of one of them. `request_media` and `answer_media` are their content types. `statuses` are those of
    success.
    """

    method: str
    path: str
    operation: Operation
    resource: ResourceOf
    handler: Handler
    request: Any = None
    answer: Any = None
    statuses: tuple[int, ...] = (200,)
    query: tuple[Query, ...] = ()
    request_media: tuple[str, ...] = (JSON_TYPE,)
    answer_media: tuple[str, ...] = (JSON_TYPE,)
    has_raw_body: bool = False
    """True if the request's body is bytes or a stream instead of one JSON document."""
    is_stream: bool = False
    """True if the body may go on for as long as the client likes."""
    is_always_on: bool = False
    """True if the route is served also before the broker is ready, and on probe connections."""
    request_class: RequestClass | None = RequestClass.ADMIN
    """The class by which a request is shed under overload; None if it never is. A read that waits (`wait_query`) is a
    `LONG_POLL`.
    """
    is_vital: bool = False
    """True if the quota `request_rate` does not count it: heartbeats and commits, without which a member would be
    expelled or read records twice.
    """
    is_recorded: bool = False
    """True if the audit log records it as a change, though its operation changes nothing."""
    wait_query: str = ""
    """The query parameter that makes a read wait for data; empty if there is none."""
    prefix: str = ""
    """The path prefix of REST v3, `/v3` or `/kafka/v3`; empty for all other routes."""

    def serve(self, context: Context, call: Call) -> Awaitable[web.StreamResponse]:
        """Runs the handler. Raises `NotFound` if the path names another cluster."""
        cluster_id, own = call.path.get("cluster_id"), context.face.cluster.cluster_id
        if cluster_id is not None and cluster_id != own:
            raise NotFound(f"this broker belongs to cluster {own}, not to {shown(cluster_id)}")
        return self.handler(context, call)

    def class_of(self, call: Call) -> RequestClass | None:
        """Returns the class by which a request is shed. Raises `InvalidRequest` for a malformed query."""
        if self.wait_query and call.query.get(self.wait_query, "0") != "0":
            return RequestClass.LONG_POLL
        return self.request_class

    @property
    def is_judged_by_handler(self) -> bool:
        """True if the handler authorizes the request, since only it knows which resources the request uses."""
        return self.resource in (any_topic_resource, any_group_resource, any_user_resource)

    @property
    def may_last(self) -> bool:
        """True if the request may wait or stream, so that its caller's rights are checked again meanwhile."""
        return self.is_stream or self.request_class in (RequestClass.READ, RequestClass.LONG_POLL, None)

    @property
    def is_read(self) -> bool:
        """True if the request changes nothing."""
        return self.method == "GET" or self.request_class in (RequestClass.READ, RequestClass.LONG_POLL)

    @property
    def summary(self) -> str:
        """The first line of the handler's docstring, the summary in the OpenAPI description."""
        return (self.handler.__doc__ or "").partition("\n")[0]

    @property
    def template(self) -> str:
        """The whole path, with prefix and placeholders."""
        return self.prefix + self.path
