"""Entries of the route table: method and path, operation, resource, and the types of request and answer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from aiohttp import web

from tidelog.broker.face.shedding import RequestClass
from tidelog.broker.http.call import Call
from tidelog.broker.http.context import Context
from tidelog.broker.http.media import JSON_TYPE
from tidelog.model.access import Operation, Resource

Handler = Callable[[Context, Call], Awaitable[web.StreamResponse]]


def cluster_resource(_path: Mapping[str, str]) -> Resource:
    """Returns the cluster as a whole."""
    return Resource("Cluster", "kafka-cluster")


def topic_resource(path: Mapping[str, str]) -> Resource:
    """Returns the topic of the path."""
    return Resource("Topic", path["topic"])


def any_topic_resource(_path: Mapping[str, str]) -> Resource:
    """Topics that the path does not name: each one has to be judged, and a list is filtered."""
    return Resource("Topic", "*")


def group_resource(path: Mapping[str, str]) -> Resource:
    """Returns the consumer group of the path."""
    return Resource("Group", path["group"])


def any_group_resource(_path: Mapping[str, str]) -> Resource:
    """Groups that the path does not name; as `any_topic_resource`."""
    return Resource("Group", "*")


def any_user_resource(_path: Mapping[str, str]) -> Resource:
    """Principals that the path does not name; as `any_topic_resource`."""
    return Resource("User", "*")


ResourceOf = Callable[[Mapping[str, str]], Resource]
"""Finds the resource of a request from its path's placeholders."""


class Query(NamedTuple):
    """A query parameter, for the reader of the API's description."""

    name: str
    schema: Mapping[str, object]
    description: str


@dataclass(frozen=True, slots=True, eq=False)
class Route:
    """An operation of the API. Placeholders in `path` are written `{name}` and match one segment.

    `request` and `answer` are the types of the JSON bodies, None where there is none or it is no JSON; a tuple of types
    is an answer that has one of them.
    `request_media` and `answer_media` name their content types. `statuses` are those of success.
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
    """True if the request's body is bytes, or a stream, rather than one JSON document."""
    is_stream: bool = False
    """True if the body may go on for as long as the client likes."""
    is_always_on: bool = False
    """True if it is served before the broker is ready, too."""
    request_class: RequestClass | None = RequestClass.ADMIN
    """Names what it is shed with; None if it never is. A read is a `LONG_POLL` if it waits, as `wait_query` says."""
    is_vital: bool = False
    """True if `request_rate` does not count it: a member that may not say that it is there is expelled, and what it
    has read and may not commit is read twice."""
    is_recorded: bool = False
    """True if the audit log has a line for it, though its operation does not look like a change."""
    wait_query: str = ""
    """The query parameter that has a read wait for data, if there is one."""
    prefix: str = ""
    """Under which name REST v3 was asked: `/v3` or `/kafka/v3`; empty for all others."""

    def class_of(self, call: Call) -> RequestClass | None:
        """Returns what a request is shed with. Raises `InvalidRequest` for a query that is badly written."""
        if self.wait_query and call.query.get(self.wait_query, "0") != "0":
            return RequestClass.LONG_POLL
        return self.request_class

    @property
    def is_judged_by_handler(self) -> bool:
        """True if only its handler knows which resources it is about."""
        return self.resource in (any_topic_resource, any_group_resource, any_user_resource)

    @property
    def may_last(self) -> bool:
        """True if it may wait, or stream, so that rights can be lost meanwhile; others are left to end."""
        return self.is_stream or self.request_class in (RequestClass.READ, RequestClass.LONG_POLL, None)

    @property
    def is_read(self) -> bool:
        """True if it changes nothing."""
        return self.method == "GET" or self.request_class in (RequestClass.READ, RequestClass.LONG_POLL)

    @property
    def summary(self) -> str:
        """The first line of the handler's docstring: a summary of the operation."""
        return (self.handler.__doc__ or "").partition("\n")[0]

    @property
    def template(self) -> str:
        """The whole path with its placeholders."""
        return self.prefix + self.path
