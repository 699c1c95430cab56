"""Strongly connected components of a graph, by Tarjan's algorithm without recursion, and shortest paths."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence

Graph = Sequence[Sequence[int]]
"""A directed graph: the successors of each node, by number."""


def components(graph: Graph) -> Iterator[list[int]]:
    """Yields the strongly connected components of more than one node; also each node that is its own successor."""
    numbers = [0] * len(graph)
    lows = [0] * len(graph)
    is_open = bytearray(len(graph))
    stack: list[int] = []
    count = 0
    for root in range(len(graph)):
        if numbers[root]:
            continue
        path = [(root, iter(graph[root]))]
        count += 1
        numbers[root] = lows[root] = count
        stack.append(root)
        is_open[root] = True
        while path:
            node, successors = path[-1]
            for successor in successors:
                if not numbers[successor]:
                    count += 1
                    numbers[successor] = lows[successor] = count
                    stack.append(successor)
                    is_open[successor] = True
                    path.append((successor, iter(graph[successor])))
                    break
                if is_open[successor] and numbers[successor] < lows[node]:
                    lows[node] = numbers[successor]
            else:
                path.pop()
                if path and lows[node] < lows[path[-1][0]]:
                    lows[path[-1][0]] = lows[node]
                if lows[node] == numbers[node]:
                    component = _close(stack, is_open, node)
                    if len(component) > 1 or node in graph[node]:
                        yield component


def _close(stack: list[int], is_open: bytearray, node: int) -> list[int]:
    component: list[int] = []
    while not component or component[-1] != node:
        component.append(stack.pop())
        is_open[component[-1]] = False
    return component


def way(graph: Graph, begin: int, end: int) -> list[int]:
    """Returns a shortest path from one node to another, both included. There must be one."""
    before = {begin: begin}
    queue = deque([begin])
    while end not in before:
        node = queue.popleft()
        for successor in graph[node]:
            if successor not in before:
                before[successor] = node
                queue.append(successor)
    path = [end]
    while path[-1] != begin:
        path.append(before[path[-1]])
    return path[::-1]
