"""The envelope of REST v3: every resource has its kind, its URL and links to related resources.

`self` and `related` are built from the broker's registered address, never from the request's `Host` header, and with
the prefix (`/v3` or `/kafka/v3`) that the client used.
"""

from __future__ import annotations

from typing import Final, Generic, TypeVar
from urllib.parse import quote

from msgspec import Struct

from tidelog.broker.http.call import Call
from tidelog.broker.http.context import Context

T = TypeVar("T")
_SAFE_IN_SEGMENTS: Final = "!$&'()*+,;=:@"
"""Characters, besides letters and digits, that need no escape in a path segment (RFC 3986)."""


class Metadata(Struct, frozen=True):
    """The links of a resource: its URL, and its Confluent resource name."""

    self: str
    resource_name: str | None = None


class Resource(Struct, frozen=True):
    """A resource of a cluster; `kind` is its type."""

    kind: str
    metadata: Metadata
    cluster_id: str


class PartitionResource(Resource, frozen=True):
    """A resource of a partition."""

    topic_name: str
    partition_id: int


class ListMetadata(Struct, frozen=True):
    """The URL of a list. Lists are never paged, so `next` is null."""

    self: str
    next: str | None = None


class Related(Struct, frozen=True):
    """A link to another resource."""

    related: str


class ResourceList(Struct, Generic[T], frozen=True):
    """A list of resources."""

    kind: str
    metadata: ListMetadata
    data: list[T]


class Links:
    """Builds the URLs in one answer, with the prefix that the client used."""

    def __init__(self, context: Context, call: Call) -> None:
        cluster = context.face.cluster
        self.cluster_id = cluster.cluster_id
        self.moves_throttle = cluster.image.moves_throttle or None
        self.clusters_url = f"{context.scheme}://{context.advertised}{call.prefix}/clusters"
        """The URL of the list of clusters."""

    def url(self, *segments: object) -> str:
        """Returns the URL of a resource in this cluster; the segments are the path after the cluster id. They are
        escaped, since names of groups and members may have any characters.
        """
        quoted = (quote(str(segment), safe=_SAFE_IN_SEGMENTS) for segment in segments)
        return "/".join([self.clusters_url, self.cluster_id, *quoted])

    def metadata(self, *segments: object) -> Metadata:
        """Returns the metadata of a resource; segments alternate between kinds and names, as in
        `topics/t/partitions/0`.
        """
        pairs = [f"{kind.removesuffix('s')}={name}" for kind, name in zip(segments[::2], segments[1::2], strict=False)
                 if isinstance(kind, str)]  # fmt: skip
        return Metadata(self.url(*segments), f"crn:///kafka={self.cluster_id}" + "".join(f"/{pair}" for pair in pairs))

    def resource(self, kind: str, *segments: object) -> tuple[str, Metadata, str]:
        """Returns the first three fields of a `Resource`: its kind, its metadata (URL and resource name) and the
        cluster id. The segments are kinds and names in turn, as in `topics/t/partitions/0`.
        """
        return kind, self.metadata(*segments), self.cluster_id

    def related(self, *segments: object) -> Related:
        """Returns a link to a resource in this cluster; the segments are its path after the cluster id."""
        return Related(self.url(*segments))

    def list_of(self, kind: str, data: list[T], *segments: object) -> ResourceList[T]:
        """Returns a list of resources of the type `kind` (the list's own type has the suffix `List`). The segments are
        the path of the list's URL after the cluster id.
        """
        return ResourceList(f"{kind}List", ListMetadata(self.url(*segments)), data)
