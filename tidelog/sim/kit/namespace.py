"""Directories of a simulated disk: the names that programs see, and those that a power cut would leave.

A change of names is one atomic set of assignments `(directory, name) -> node or nothing`: a rename takes one name away
and replaces another at once, so that a crash finds the old state or the new one and never a half. Changes wait in one
list, in order, until the directory of one of their names is synced; a crash lets any subset through.

Names need not become durable in order: real journals keep the order, POSIX does not promise it.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Mapping
from functools import partial

from tidelog.sim.kit.choices import CrashChoices
from tidelog.sim.kit.inode import FileNode


class DirectoryNode:
    """Names in a directory, as programs see them and as they are durable."""

    __slots__ = ("durable", "names")

    def __init__(self) -> None:
        self.names: dict[str, Node] = {}
        self.durable: dict[str, Node] = {}


Node = FileNode | DirectoryNode
Assignment = tuple[DirectoryNode, str, Node | None]
Change = tuple[int, list[Assignment]]
"""Change of names, as (sequence, assignments)."""


class Namespace:
    """Tree of directories. Failures raise `OSError`s as on Linux."""

    def __init__(self) -> None:
        self.root = DirectoryNode()
        self.pending: list[Change] = []

    def find(self, path: str) -> Node:
        node: Node = self.root
        for name in path.split("/") if path else ():
            if not isinstance(node, DirectoryNode):
                raise os_error(errno.ENOTDIR, path)
            if name not in node.names:
                raise os_error(errno.ENOENT, path)
            node = node.names[name]
        return node

    def directory(self, path: str) -> DirectoryNode:
        node = self.find(path)
        if not isinstance(node, DirectoryNode):
            raise os_error(errno.ENOTDIR, path)
        return node

    def parent(self, path: str) -> tuple[DirectoryNode, str]:
        """Returns the directory of the last name in `path`, and that name."""
        directory, _, name = path.rpartition("/")
        return self.directory(directory), name

    def change(self, sequence: int, assignments: list[Assignment]) -> None:
        """Changes names for readers now; durable only after a sync."""
        for directory, name, node in assignments:
            _assign(directory.names, name, node)
        self.pending.append((sequence, assignments))

    def make_directory(self, parent: DirectoryNode, name: str) -> DirectoryNode:
        """Finds or makes a directory, durably. Other pending changes in the parent stay pending."""
        node = parent.names.get(name)
        if node is None:
            node = parent.names[name] = DirectoryNode()
        if not isinstance(node, DirectoryNode):
            raise os_error(errno.EEXIST, name)
        self._make_durable(partial(_is_of, parent, name))
        parent.durable[name] = node
        return node

    def assign_durably(self, nodes: Mapping[str, Node | None]) -> None:
        """Points names to other nodes, or removes them, durably and unseen by the program; pending changes of these
        names are dropped."""
        for path, node in nodes.items():
            parent, name = self.parent(path)
            self._make_durable(partial(_is_of, parent, name))
            _assign(parent.names, name, node)
            _assign(parent.durable, name, node)

    def sync_directory(self, directory: DirectoryNode) -> None:
        self._make_durable(lambda assignment: assignment[0] is directory)

    def sync(self) -> None:
        """Makes every change durable, as the kernel does sooner or later."""
        self._make_durable(lambda _: True)

    def _make_durable(self, concerned: Callable[[Assignment], bool]) -> None:
        """Makes each change durable that assigns a name for which `concerned` holds; earlier pending changes of the
        same names are dropped."""
        remaining: list[Change] = []
        settled: set[tuple[int, str]] = set()
        for sequence, assignments in reversed(self.pending):
            fresh = [a for a in assignments if (id(a[0]), a[1]) not in settled]
            if any(map(concerned, assignments)):
                for directory, name, node in fresh:
                    _assign(directory.durable, name, node)
                    settled.add((id(directory), name))
            elif fresh:
                remaining.append((sequence, fresh))
        remaining.reverse()
        self.pending = remaining

    def crash(self, choices: CrashChoices) -> None:
        """Applies a subset of the pending changes to the durable names, and drops the others."""
        for sequence, assignments in self.pending:
            if choices.survives(sequence):
                for directory, name, node in assignments:
                    _assign(directory.durable, name, node)
        for _, assignments in self.pending:
            for directory, name, _ in assignments:
                _assign(directory.names, name, directory.durable.get(name))
        self.pending.clear()


def _is_of(directory: DirectoryNode, name: str, assignment: Assignment) -> bool:
    return assignment[0] is directory and assignment[1] == name


def _assign(names: dict[str, Node], name: str, node: Node | None) -> None:
    if node is None:
        names.pop(name, None)
    else:
        names[name] = node


def os_error(number: int, path: str = "") -> OSError:
    """Returns the `OSError` (of the right subclass) for an errno."""
    return OSError(number, errno.errorcode[number], path)
