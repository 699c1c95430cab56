"""Finds the route of a request: a tree of path segments.

Why not aiohttp's router: it decodes `%2f` and `%00` before it compares, so that what looks like a name may be a path,
and it costs a quarter of what a small request costs at all. Here a path is cut at its literal slashes first and each
segment is decoded by itself, so a placeholder gets exactly one segment, whatever is in it; its meaning is checked by
whoever asks for it (`Call.topic_name`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from tidelog.broker.http.params import percent_decoded, shown
from tidelog.broker.http.route import Route
from tidelog.model.errors import MethodNotAllowed, NotFound


class WrongMethod(MethodNotAllowed):
    """The path exists, and knows other methods."""

    def __init__(self, message: str, allowed: tuple[str, ...]) -> None:
        super().__init__(message)
        self.allowed = allowed


@dataclass(slots=True)
class _Node:
    """Where a path may go on after some segments, and the routes of the path that ends here, by method."""

    literals: dict[str, _Node] = field(default_factory=dict)
    placeholder: _Node | None = None
    routes: dict[str, tuple[Route, tuple[str, ...]]] = field(default_factory=dict)
    """Each with the names of its placeholders, in order."""


class Router:
    """All routes of a table. A literal segment is preferred to a placeholder."""

    def __init__(self, routes: Iterable[Route]) -> None:
        self._root = _Node()
        for route in routes:
            self._add(route)

    def match(self, method: str, raw_path: str) -> tuple[Route, dict[str, str]]:
        """The route of a request, and the values of its placeholders.

        Raises `NotFound`, `WrongMethod`, or `InvalidRequest` for a path that is badly escaped.
        """
        segments = raw_path.split("/")[1:]
        if "%" in raw_path:
            segments = [percent_decoded(segment) for segment in segments]
        values: list[str] = []
        node = _find(self._root, segments, 0, values)
        if node is None:
            raise NotFound(f"there is nothing at {shown(raw_path)}; /openapi.json lists what there is")
        found = node.routes.get(method)
        if found is None:
            allowed = tuple(node.routes)
            raise WrongMethod(f"{shown(raw_path)} knows {', '.join(allowed)}, not {shown(method)}", allowed)
        route, names = found
        return route, dict(zip(names, values, strict=True))

    def _add(self, route: Route) -> None:
        node = self._root
        names = []
        for segment in route.template.split("/")[1:]:
            if segment.startswith("{"):
                names.append(segment[1:-1])
                if node.placeholder is None:
                    node.placeholder = _Node()
                node = node.placeholder
            else:
                node = node.literals.setdefault(segment, _Node())
        assert route.method not in node.routes, f"{route.method} {route.template} is there twice"
        node.routes[route.method] = route, tuple(names)


def _find(node: _Node, segments: list[str], position: int, values: list[str]) -> _Node | None:
    """The node of the path, whose placeholders' values are then in `values`. As deep as the table, no deeper."""
    if position == len(segments):
        return node if node.routes else None
    segment = segments[position]
    literal = node.literals.get(segment)
    if literal is not None:
        found = _find(literal, segments, position + 1, values)
        if found is not None:
            return found
    if node.placeholder is None or not segment:
        return None
    values.append(segment)
    found = _find(node.placeholder, segments, position + 1, values)
    if found is None:
        values.pop()
    return found
