"""Cycles of dependencies (Adya's G0 and G1c): operations that would each have to come before the others.

A *ww* edge goes from the writer of a value to the writer of the next one in the log, a *wr* edge from the writer of a
value to the operation that polled it. A cycle of ww edges is G0, one with a wr edge G1c. In the kinds with `-process`
there are also edges from each operation that a process completed to those it invoked later, in those with `-realtime`
such edges between all processes. There are no edges from readers to later writers. What a batch writes to one key is
one node, since only a `txn` is all or nothing over several keys.

Edges from each completed operation to all later ones would be too many. Instead there is a chain of instants: each
completion leads to its instant, each instant to the next, and the last instant before an invocation to the operation;
so the graph is linear in the length of the history. And of a poll only the last value of each key has an edge: the ww
edges lead there from all earlier ones.

A component is named after the first kind, in the order of `LEVELS`, of which it has a cycle.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import NamedTuple

from tidelog.checker.anomaly import Anomaly
from tidelog.checker.components import components, way
from tidelog.checker.run import NEVER, Act, Run
from tidelog.checker.versions import Versions

Edges = list[tuple[int, int]]


class Node(NamedTuple):
    act: Act
    key: str
    """The partition that the batch was written to; empty for an operation on several."""

    def __str__(self) -> str:
        return f"{self.act}"


class Level(NamedTuple):
    name: str
    reads: bool
    order: Callable[[Act], str] | None
    """Returns the group of an operation: within a group, an operation that completed precedes those invoked later. None
    if time makes no order."""


LEVELS = (
    Level("G0", False, None),
    Level("G1c", True, None),
    Level("G0-process", False, lambda act: act.process),
    Level("G1c-process", True, lambda act: act.process),
    Level("G0-realtime", False, lambda act: ""),
    Level("G1c-realtime", True, lambda act: ""),
)


def cycles(run: Run, versions: Versions) -> Iterator[Anomaly]:
    """Yields an anomaly for each set of operations whose dependencies form cycles (a strongly connected component)."""
    dependencies = Dependencies(run, versions)
    nodes = dependencies.nodes
    for component in components(dependencies.graph(LEVELS[-1], range(len(nodes)))):
        members = sorted(node for node in component if node < len(nodes))
        for level in LEVELS:
            cycle = dependencies.find(level, members)
            if cycle:
                text = " -> ".join(map(str, [*cycle, cycle[0]]))
                yield Anomaly(level.name, cycle[0].key, text)
                break


class Dependencies:
    """The dependencies between operations: which must come before which."""

    def __init__(self, run: Run, versions: Versions) -> None:
        self.nodes: list[Node] = []
        self._writers: dict[tuple[str, str], int] = {}
        for act in run.acts:
            if act.is_view or not (act.sends or act.polls) or act.outcome == "fail":
                continue
            self._add(act)
        self._ww = self._find_ww(versions)
        self._wr = self._find_wr(versions)

    def _add(self, act: Act) -> None:
        if act.f == "txn" or act.polls:
            for send in act.sends:
                self._writers[send.key, send.value] = len(self.nodes)
            self.nodes.append(Node(act, ""))
            return
        for key in dict.fromkeys(send.key for send in act.sends):
            for send in act.sends:
                if send.key == key:
                    self._writers[key, send.value] = len(self.nodes)
            self.nodes.append(Node(act, key))

    def _find_ww(self, versions: Versions) -> Edges:
        edges: Edges = []
        for key, log in versions.logs.items():
            writers = (self._writers.get((key, value)) for value in log.order())
            nodes = [writer for writer in writers if writer is not None]
            edges += [(before, after) for before, after in pairwise(nodes) if before != after]
        return edges

    def _find_wr(self, versions: Versions) -> Edges:
        edges: Edges = []
        for number, node in enumerate(self.nodes):
            last: dict[str, tuple[int, str]] = {}
            for key, _, value in node.act.polled():
                offset = versions.log(key).offsets.get(value, -1)
                last[key] = max(last.get(key, (-1, "")), (offset, value))
            for key, (_, value) in last.items():
                writer = self._writers.get((key, value))
                if writer is not None and writer != number:
                    edges.append((writer, number))
        return edges

    def graph(self, level: Level, members: range | list[int]) -> list[list[int]]:
        """Returns the graph of these nodes and their dependencies, followed by nodes for the instants that order them
        in time."""
        among = members if isinstance(members, range) else set(members)
        graph: list[list[int]] = [[] for _ in self.nodes]
        for edges in (self._ww, self._wr) if level.reads else (self._ww,):
            for before, after in edges:
                if before in among and after in among:
                    graph[before].append(after)
        if level.order is not None:
            for instants in self._instants(level.order, members).values():
                self._chain(graph, instants)
        return graph

    def _instants(
        self, order: Callable[[Act], str], members: range | list[int]
    ) -> dict[str, list[tuple[int, bool, int]]]:
        """Returns the invocations and completions of these nodes in order of time, by group: (time, is completion,
        node)."""
        instants: dict[str, list[tuple[int, bool, int]]] = {}
        for number in members:
            act = self.nodes[number].act
            events = instants.setdefault(order(act), [])
            events.append((act.invoked, False, number))
            if act.outcome == "ok" and act.completed != NEVER:
                events.append((act.completed, True, number))
        for events in instants.values():
            events.sort()
        return instants

    @staticmethod
    def _chain(graph: list[list[int]], events: list[tuple[int, bool, int]]) -> None:
        instant = -1
        for _, is_completion, number in events:
            if is_completion:
                graph.append([])
                if instant >= 0:
                    graph[instant].append(len(graph) - 1)
                instant = len(graph) - 1
                graph[number].append(instant)
            elif instant >= 0:
                graph[instant].append(number)

    def find(self, level: Level, members: list[int]) -> list[Node]:
        """Returns a cycle of the level's kind of anomaly among these nodes; an empty list if there is none."""
        graph = self.graph(level, members)
        inside: dict[int, int] = {}
        for number, component in enumerate(components(graph)):
            inside.update(dict.fromkeys(component, number))
        for before, after in self._wr if level.reads else self._ww:
            if before in inside and inside[before] == inside.get(after):
                return [self.nodes[node] for node in way(graph, after, before) if node < len(self.nodes)]
        return []
