"""The disk itself, which outlasts the machines that use it: its contents, its faults, its statistics."""

from __future__ import annotations

import random

import xxhash

from tidelog.sim.kit.choices import CrashChoices, RandomChoices
from tidelog.sim.kit.faults import NO_FAULTS, DiskStatistics, FaultRates
from tidelog.sim.kit.inode import SECTOR_BYTES, FileNode, resize
from tidelog.sim.kit.namespace import DirectoryNode, Namespace, Node

CAPACITY_BYTES = 1 << 40
OLD_BLOCKS_BYTES = 128 * SECTOR_BYTES


class Medium:
    """Contents and faults of one disk.

    The scenario may change these at any time: `faults` (chances), `capacity_bytes`, `read_only`, and
    `exposes_old_blocks` (after a crash, holes may show what removed files held, as ext4 does with `data=writeback`).
    """

    def __init__(self, rng: random.Random) -> None:
        self.random = rng
        self.faults: FaultRates = NO_FAULTS
        self.capacity_bytes = CAPACITY_BYTES
        self.read_only = False
        self.exposes_old_blocks = False
        self.statistics = DiskStatistics()
        self.space = Namespace()
        self.used_bytes = 0
        self.dirty: dict[int, FileNode] = {}
        self.sequence = 0
        self._files_made = 0
        self._old_blocks = b""
        self._hash = xxhash.xxh3_64()

    def new_file(self) -> FileNode:
        self._files_made += 1
        return FileNode(self._files_made)

    def free(self, node: Node) -> None:
        """Notes that a file's name is gone, and its space is free."""
        if isinstance(node, FileNode):
            self.used_bytes -= len(node.data)
            blocks = len(node.durable) // SECTOR_BYTES * SECTOR_BYTES
            if blocks:
                self._old_blocks = bytes(node.durable[max(0, blocks - OLD_BLOCKS_BYTES) : blocks])

    def strikes(self, fault: str, chance: float) -> bool:
        """Draws whether a fault happens, by its chance, and counts it if so."""
        if chance and self.random.random() < chance:
            self.statistics.faults[fault] += 1
            self._hash.update(fault.encode())
            return True
        return False

    def book(self, kind: str, detail: str, payload: bytes) -> None:
        """Counts an operation that changes the disk, and adds it to the trace."""
        self.sequence += 1
        self.statistics.operations[kind] += 1
        self._hash.update(f"{kind} {detail} {len(payload)};".encode())
        self._hash.update(payload)

    def crash(self, choices: CrashChoices | None) -> None:
        """Cuts the power: of all unsynced changes, only those that `choices` lets through stay."""
        dirty = [self.dirty[number] for number in sorted(self.dirty)]
        if choices is None:
            sequences = [change[0] for change in self.space.pending]
            sequences += [change[0] for node in dirty for change in node.pending]
            choices = self._random_choices(sequences)
        self.space.crash(choices)
        filler = b""
        if dirty and self.exposes_old_blocks and self._old_blocks and choices.choose(2):
            filler = self._old_blocks
        for node in dirty:
            node.settle(choices, filler)
            if len(node.durable) < len(node.data) and choices.choose(2):
                resize(node.durable, len(node.data), filler)
        self.dirty.clear()
        self.used_bytes = 0
        for node in self.walk().values():
            node.data[:] = node.durable
            self.used_bytes += len(node.data)

    def fail_sync(self, node: FileNode) -> None:
        """Makes a drawn part of a file's unsynced writes durable and forgets the others; reads may or may not show the
        loss."""
        choices = self._random_choices([change[0] for change in node.pending])
        node.settle(choices, filler=b"")
        node.has_failed_sync = True
        self.dirty.pop(node.number, None)
        if choices.choose(2):
            node.drop_cache()

    def _random_choices(self, sequences: list[int]) -> RandomChoices:
        return RandomChoices(self.random, min(sequences, default=0), max(sequences, default=0))

    def walk(self) -> dict[str, FileNode]:
        """Returns all files by path, sorted, for checks and for damage; the program under test uses `SimDisk`."""
        files: dict[str, FileNode] = {}
        stack: list[tuple[str, Node]] = [("", self.space.root)]
        while stack:
            path, node = stack.pop()
            if isinstance(node, DirectoryNode):
                stack += [(f"{path}/{name}" if path else name, child) for name, child in node.names.items()]
            else:
                files[path] = node
        return dict(sorted(files.items()))

    def trace(self) -> str:
        """Returns a hash of all changes and faults since the disk was made: 16 hexadecimal digits."""
        return self._hash.hexdigest()
