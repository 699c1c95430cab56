"""Snapshots of a state machine, on disk, as opaque bytes; `snapshot_format` describes the files' format.

A snapshot is three files: `<position>-<version>.body`, and its header twice, `.header.0` and `.header.1`. It exists
once a header does. A crash leaves the old snapshots and perhaps the new one, never half of one with a header; other
files that it leaves are removed by `remove_old`.

A snapshot that may be needed is never overwritten: a second one of the same position (a replica whose image
turned out to differ fetches the others') is another version, and the newest version counts.

Damage is found when a snapshot is read, chunk by chunk, and reported by chunk index. Sound chunks stay useful: the
damaged ones are fetched from replicas whose snapshots at this position have the same root, and `repair` writes them to
their places, if the whole then has that root. All calls block.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field

from tidelog.model.ports import File, Files
from tidelog.storage.open_files import open_file
from tidelog.storage.snapshot_format import (
    BLOCK_BYTES,
    HASH_BYTES,
    HEADER_BYTES_MAX,
    DamagedSnapshot,
    SnapshotHeader,
    damaged_chunks,
    decode_header,
    encode_header,
    is_sound,
    join,
    root_of,
    split,
)

BODY = ".body"
HEADERS = (".header.0", ".header.1")
TEMPORARY = ".tmp"
KEPT = 2
_HEAD_BYTES_MAX = BLOCK_BYTES + HEADER_BYTES_MAX
_BLOCKS_AT_ONCE = 64


@dataclass(frozen=True, slots=True)
class Snapshot:
    header: SnapshotHeader
    body: bytes


@dataclass(slots=True)
class LoadedSnapshots:
    """The snapshots that `load_newest` found."""

    snapshot: Snapshot | None = None
    """The newest undamaged snapshot; None if there is none."""
    damaged: list[DamagedSnapshot] = field(default_factory=list)
    """Newer snapshots that could be used once repaired, the newest first."""


class UnknownSnapshot(LookupError):
    """Raised if there is no snapshot of a position, or its header is lost in both copies."""


class SnapshotStore:
    """The snapshots of one log, in a directory of their own. For one thread at a time.

    Methods raise `OSError` if the disk fails; the snapshots that existed before then still exist.
    """

    def __init__(self, files: Files, directory: str) -> None:
        self._files = files
        self._directory = directory

    # -- writing -----------------------------------------------------------------------------------------------------

    def write(self, position: int, header: bytes, body: bytes) -> SnapshotHeader:
        """Writes a snapshot durably. `header` are small additional bytes of the caller, stored twice and apart from the
        body."""
        assert position >= 0 and len(header) <= HEADER_BYTES_MAX
        blocks = split(position, body)
        written = SnapshotHeader(position, len(body), root_of(blocks), header)
        self._store(written, blocks)
        return written

    def install(self, header: SnapshotHeader, blocks: Sequence[bytes]) -> None:
        """Writes a snapshot that was received chunk by chunk, durably. Raises `DamagedSnapshot`, and writes nothing, if
        the chunks do not match the header."""
        assert len(blocks) == header.chunk_count
        self._check(header, blocks)
        self._store(header, blocks)

    def _store(self, header: SnapshotHeader, blocks: Sequence[bytes]) -> None:
        self._files.make_dirs(self._directory)
        versions = [version for position, version in self._versions() if position == header.position]
        # A new version, never the same name again: what is there may be the only copy that can still be repaired.
        stem = _stem(header.position, max(versions, default=0) + 1)
        body, copies = self._path(stem + BODY), [self._path(stem + suffix) for suffix in HEADERS]
        self._write(body + TEMPORARY, blocks)
        # The body has its name, durably, before a header has: a header promises a whole body.
        self._files.rename(body + TEMPORARY, body)
        for path in copies:
            self._write(path + TEMPORARY, [encode_header(header)])
        self._files.sync_dir(self._directory)
        for path in copies:
            self._files.rename(path + TEMPORARY, path)
        self._files.sync_dir(self._directory)

    def _write(self, path: str, parts: Sequence[bytes]) -> None:
        with closing(open_file(self._files, path, create=True)) as file:
            position = 0
            for first in range(0, len(parts), _BLOCKS_AT_ONCE):
                together = b"".join(parts[first : first + _BLOCKS_AT_ONCE])
                file.pwritev([together], position)
                position += len(together)
            file.sync()

    def repair(self, position: int, blocks: Mapping[int, bytes]) -> None:
        """Writes chunks from another replica to their places, by index, and a lost copy of the header again.

        Raises `UnknownSnapshot`, or `DamagedSnapshot` with the chunks that are still damaged; nothing is written unless
        the whole snapshot is sound then.
        """
        stem, header = self._find(position)
        present = self._blocks(stem, header)
        mended = [blocks.get(index, block) for index, block in enumerate(present)]
        # Judged as a whole before a byte is written: chunks that are sound by themselves may be of another image.
        self._check(header, mended)
        if mended != present:
            path = self._path(stem + BODY)
            is_new = not self._files.exists(path)
            with closing(open_file(self._files, path, create=True)) as file:
                for index, (new, old) in enumerate(zip(mended, present, strict=True)):
                    # In place, and only where the disk has something else. A crash half-way leaves damaged what was
                    # damaged.
                    if new != old:
                        file.pwritev([new], index * BLOCK_BYTES)
                file.sync()
            # A body that was missing altogether is a new name, which a power cut takes back without this.
            if is_new:
                self._files.sync_dir(self._directory)
        for suffix in HEADERS:
            # By way of another name: a header that is written over could be lost by a torn write, with the other copy
            # gone already.
            if self._header(stem + suffix) != header:
                self._replace_header(stem + suffix, header)

    def _replace_header(self, name: str, header: SnapshotHeader) -> None:
        path = self._path(name)
        self._write(path + TEMPORARY, [encode_header(header)])
        self._files.rename(path + TEMPORARY, path)
        self._files.sync_dir(self._directory)

    def _check(self, header: SnapshotHeader, blocks: Sequence[bytes]) -> None:
        damaged = damaged_chunks(header, blocks)
        if damaged or root_of(blocks) != header.root:
            raise DamagedSnapshot(header.position, damaged)

    def remove_old(self) -> None:
        """Removes snapshots older than the second newest undamaged one, replaced versions of the same positions, and
        leftovers of crashes. Call it only when the newest snapshot is known to be correct."""
        headers = list(self._headers())
        # Read from end to end: a snapshot that has rotted is no reason to remove an older one that is whole.
        whole = [stem for stem, header in headers if not damaged_chunks(header, self._blocks(stem, header))][:KEPT]
        # Two are kept: if the newest rots, there is another one.
        if len(whole) < KEPT:
            return
        current = {stem.partition("-")[0]: stem for stem, _ in headers}
        for name in self._files.list(self._directory):
            if name.endswith(TEMPORARY) or _is_superseded(name, whole[-1], current):
                self._files.remove(self._path(name))
        self._files.sync_dir(self._directory)

    # -- scrubbing ---------------------------------------------------------------------------------------------------

    def mend_headers(self) -> tuple[int, list[int]]:
        """Writes a damaged copy of a header again from the other one. Returns the number of damaged copies, and the
        positions where both are damaged: those snapshots cannot be used."""
        bad, lost = 0, []
        for position, version in sorted(self._newest_versions().items()):
            paths = [_stem(position, version) + suffix for suffix in HEADERS]
            headers = [self._header(path) for path in paths]
            # Either copy is the truth: both were written with the same bytes, and each proves itself by its hash.
            good = headers[0] or headers[1]
            if good is None:
                lost.append(position)
                continue
            for path in [path for path, header in zip(paths, headers, strict=True) if header is None]:
                self._replace_header(path, good)
                bad += 1
        return bad, lost

    def _newest_versions(self) -> dict[int, int]:
        """Returns the newest version of each position that has a header file, damaged or not; without one, the files
        are leftovers of a crash."""
        names = set(self._files.list(self._directory))
        # Sorted by version, so the dictionary keeps the newest of each position.
        stems = [
            (position, version)
            for position, version in sorted(self._versions())
            if any(_stem(position, version) + suffix in names for suffix in HEADERS)
        ]
        return dict(stems)

    def count_bad(self) -> tuple[int, int]:
        """Returns the number of damaged headers and chunks, and the bytes of all snapshots."""
        bad = size = 0
        for position, version in self._newest_versions().items():
            stem = _stem(position, version)
            copies = [self._header(stem + suffix) for suffix in HEADERS]
            bad += copies.count(None)
            header = copies[0] or copies[1]
            if header is not None:
                bad += len(damaged_chunks(header, self._blocks(stem, header)))
                size += header.size
        return bad, size

    def headers(self) -> list[SnapshotHeader]:
        """Returns the headers of all snapshots, the newest first."""
        return [header for _, header in self._headers()]

    def look_at(self, header: SnapshotHeader, first: int, count: int) -> tuple[list[int], bytes]:
        """Returns the indices of damaged chunks among `count` chunks from `first` on, and the hashes of all these
        chunks in order. Both are empty if the snapshot has been removed."""
        indexes = range(first, min(first + count, header.chunk_count))
        try:
            stem, _ = self._find(header.position)
        except UnknownSnapshot:
            return [], b""
        blocks = self._blocks(stem, header, indexes)
        bad = [index for index, block in zip(indexes, blocks, strict=True) if not is_sound(header, index, block)]
        return bad, b"".join(block[:HASH_BYTES] for block in blocks)

    # -- reading -----------------------------------------------------------------------------------------------------

    def load_newest(self) -> LoadedSnapshots:
        """Loads the newest undamaged snapshot, and reports the newer damaged ones.

        Raises `Overloaded` or `PermissionError` if a file cannot be opened for these reasons, which do not mean damage.
        """
        loaded = LoadedSnapshots()
        self._settle()
        for stem, header in self._headers():
            blocks = self._blocks(stem, header)
            damaged = damaged_chunks(header, blocks)
            if not damaged:
                loaded.snapshot = Snapshot(header, join(blocks))
                break
            loaded.damaged.append(DamagedSnapshot(header.position, damaged))
        return loaded

    def header(self, position: int) -> SnapshotHeader:
        """Returns the header of the snapshot at a position. Raises `UnknownSnapshot`."""
        return self._find(position)[1]

    def sound_chunks(self, header: SnapshotHeader, indexes: range) -> dict[int, bytes]:
        """Returns those of these chunks that are sound on this disk, with their hashes, by index. They may come from a
        body whose own header is lost in both copies, and then belong to any snapshot at this position: the caller has
        to check the root."""
        chunks: dict[int, bytes] = {}
        for position, version in sorted(self._versions(), reverse=True):
            stem = _stem(position, version)
            # A body without a header may be any image at this position. Its chunks are given all the same; the asker
            # proves by the root of all what they are.
            if position == header.position and self._either_header(stem) in (header, None):
                for index, block in zip(indexes, self._blocks(stem, header, indexes), strict=True):
                    if is_sound(header, index, block):
                        chunks.setdefault(index, block)
        return chunks

    def _find(self, position: int) -> tuple[str, SnapshotHeader]:
        for stem, header in self._headers():
            if header.position == position:
                return stem, header
        raise UnknownSnapshot(f"no snapshot at position {position}")

    def _settle(self) -> None:
        """Makes renames durable that a killed process may have left in the kernel's memory only."""
        if not self._files.list(self._directory):
            return
        try:
            self._files.sync_dir(self._directory)
        except OSError as error:
            # A read-only file system has nothing in memory that it could lose.
            if error.errno != errno.EROFS:
                raise

    def _headers(self) -> Iterator[tuple[str, SnapshotHeader]]:
        """Yields, for each position, the newest version with a readable header; the newest position first."""
        last = -1
        for position, version in sorted(self._versions(), reverse=True):
            # The newest version of a position counts; older ones are looked at only if it has no header, as after a
            # crash.
            header = self._either_header(_stem(position, version)) if position != last else None
            if header is not None and header.position == position:
                last = position
                yield _stem(position, version), header

    def _either_header(self, stem: str) -> SnapshotHeader | None:
        return self._header(stem + HEADERS[0]) or self._header(stem + HEADERS[1])

    def _versions(self) -> set[tuple[int, int]]:
        """Returns (position, version) of all snapshot files in the directory."""
        stems = {name.partition(".")[0] for name in self._files.list(self._directory)}
        parts = [stem.split("-") for stem in sorted(stems)]
        return {
            (int(part[0]), int(part[1]))
            for part in parts
            if len(part) == 2 and part[0].isdecimal() and part[1].isdecimal()
        }

    def _blocks(self, stem: str, header: SnapshotHeader, indexes: range | None = None) -> list[bytes]:
        """Returns the blocks with these indices, or all, unverified; empty bytes where one cannot be read."""
        indexes = range(header.chunk_count) if indexes is None else indexes
        try:
            with closing(open_file(self._files, self._path(stem + BODY))) as file:
                return [_pread(file, header.block_bytes(index), index * BLOCK_BYTES) for index in indexes]
        except PermissionError:
            raise
        except OSError:
            # Damage, to be fetched from peers. What is only out of reach (no right, no descriptors) is raised instead:
            # it will be there again.
            return [b""] * len(indexes)

    def _header(self, name: str) -> SnapshotHeader | None:
        try:
            with closing(open_file(self._files, self._path(name))) as file:
                return decode_header(_pread(file, _HEAD_BYTES_MAX, 0))
        except PermissionError:
            raise
        except OSError:
            return None

    def _path(self, name: str) -> str:
        return f"{self._directory}/{name}"


def _pread(file: File, size: int, position: int) -> bytes:
    try:
        return file.pread(size, position)
    except OSError:
        return b""


def _is_superseded(name: str, oldest: str, current: Mapping[str, str]) -> bool:
    """Returns True if a file belongs to a snapshot that is no longer needed: it is older than the one with the file
    name stem `oldest`, or an older version of its position. `current` maps a position to the file name stem of its
    newest version."""
    stem = name.partition(".")[0]
    # Names have fixed widths, so they sort as position and version do.
    return stem < oldest or stem < current.get(stem.partition("-")[0], "")


def _stem(position: int, version: int) -> str:
    return f"{position:020d}-{version:04d}"
