"""Finds the route of a request.

aiohttp's router is not used: it decodes `%2f` and `%00` before it compares, so that a name may be taken for a path, and
it takes a quarter of the time of a small request. Here a path is split at its literal slashes first and each segment is
decoded by itself, so that a placeholder gets exactly one segment, whatever is in it; its value is checked when a
handler asks for it (`Call.topic_name`). A `/` at the end of a path is ignored.

Paths of one length have few *shapes* (which segments are literal, which are placeholders). For each shape a dictionary
maps the literals to the routes, so that a request costs one or two look-ups, however many routes there are.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from tidelog.broker.http.params import percent_decoded, shown
from tidelog.broker.http.route import Route
from tidelog.model.errors import MethodNotAllowed, NotFound


class WrongMethod(MethodNotAllowed):
    """The path exists, but not with this method (405). `allowed` are its methods."""

    def __init__(self, message: str, allowed: tuple[str, ...]) -> None:
        super().__init__(message)
        self.allowed = allowed


class _Entry(NamedTuple):
    route: Route
    names: tuple[str, ...]
    """The names of the placeholders, in order."""


class _Shape:
    """All paths of one length that have their placeholders at the same positions."""

    def __init__(self, literals: tuple[int, ...], placeholders: tuple[int, ...]) -> None:
        self.literals = literals
        self.placeholders = placeholders
        self.paths: dict[tuple[str, ...], dict[str, _Entry]] = {}
        """The routes of the shape, by literal segments and then by method."""


class Router:
    """Matches requests to a table of routes. If two match, the one with more literal segments is chosen."""

    def __init__(self, routes: Iterable[Route], elsewhere: Iterable[Route] = ()) -> None:
        """`elsewhere` are routes, without placeholders, of this broker's other HTTP listener (for clients or for
        operators), so that a 404 can name that listener.
        """
        self._elsewhere = frozenset(route.template for route in elsewhere)
        self._shapes: dict[int, list[_Shape]] = {}
        for route in routes:
            self._add(route)
        for shapes in self._shapes.values():
            shapes.sort(key=lambda shape: len(shape.placeholders))

    def match(self, method: str, raw_path: str) -> tuple[Route, dict[str, str]]:
        """Returns the route of a request, and the values of its placeholders.

        Raises `NotFound`, `WrongMethod`, or `InvalidRequest` for a malformed escape.
        """
        segments = raw_path.split("/")
        if not segments[-1] and len(segments) > 2 and segments[-2]:
            segments.pop()
        if "%" in raw_path:
            segments = [percent_decoded(segment) for segment in segments]
        for shape in self._shapes.get(len(segments), ()):
            methods = shape.paths.get(tuple([segments[position] for position in shape.literals]))
            if methods is None:
                continue
            values = [segments[position] for position in shape.placeholders]
            if "" in values:
                continue
            entry = methods.get(method)
            if entry is None:
                allowed = tuple(methods)
                raise WrongMethod(f"{shown(raw_path)} knows {', '.join(allowed)}, not {shown(method)}", allowed)
            return entry.route, dict(zip(entry.names, values, strict=True))
        if raw_path in self._elsewhere:
            raise NotFound(f"{raw_path} is not for clients: it is at this broker's http.ops.listener")
        raise NotFound(f"there is nothing at {shown(raw_path)}; /openapi.json lists what there is")

    def _add(self, route: Route) -> None:
        segments = route.template.split("/")
        placeholders = tuple(position for position, segment in enumerate(segments) if segment.startswith("{"))
        literals = tuple(position for position in range(len(segments)) if position not in placeholders)
        shape = self._shape(len(segments), literals, placeholders)
        methods = shape.paths.setdefault(tuple(segments[position] for position in literals), {})
        assert route.method not in methods, f"{route.method} {route.template} is there twice"
        entry = _Entry(route, tuple(segments[position][1:-1] for position in placeholders))
        methods[route.method] = entry
        if route.is_always_on and route.method == "GET":
            methods["HEAD"] = entry  # what load balancers probe with

    def _shape(self, length: int, literals: tuple[int, ...], placeholders: tuple[int, ...]) -> _Shape:
        shapes = self._shapes.setdefault(length, [])
        for shape in shapes:
            if shape.literals == literals:
                return shape
        shapes.append(_Shape(literals, placeholders))
        return shapes[-1]
