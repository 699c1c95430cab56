"""Facts that no other replica could give back, in two copies on one disk.

There are two files, written one after the other, each made durable before the next is written, and the worse one
first: so after any crash one undamaged copy is left, and if both are undamaged, one of them may rot. The copy with the
higher sequence counts.

A copy is a header (magic, version, sequence, length, CRC32C seeded with the identity of the facts' owner) and
a JSON object, so that later versions can add facts.
"""

from __future__ import annotations

import struct
from contextlib import closing
from dataclasses import dataclass
from typing import Generic, TypeVar

import msgspec
from crc32c import crc32c

from tidelog.model.ports import Files
from tidelog.storage.open_files import open_file

VERSION = 1
COPY_BYTES = 512
"""Size unit of a copy in bytes: it is filled up to a multiple, nearly always to just this."""
COPY_BYTES_MAX = 4096
_HEAD = struct.Struct("<HHQHI")  # magic, version, sequence, length, crc

Facts = TypeVar("Facts", bound=msgspec.Struct)


@dataclass(slots=True)
class LoadedCopies(Generic[Facts]):
    info: Facts
    sequence: int
    bad_copies: int
    """Number of the two copies that cannot be used; the next write repairs one."""


class TwoCopyStore(Generic[Facts]):
    """Reads and writes the two copies of a set of facts (a struct of type `Facts`)."""

    def __init__(
        self, files: Files, directory: str, names: tuple[str, str], facts: type[Facts], *, magic: int, seed: int = 0
    ) -> None:
        """`directory` is empty for the root of the data directory; `magic` identifies the kind of facts; `seed` starts
        the CRC."""
        self._files = files
        # The copy to write first comes first.
        self._paths = [f"{directory}/{name}" if directory else name for name in names]
        self._directory = directory
        self._facts = facts
        self._magic = magic
        self._seed = seed
        self._sequence = 0

    def load(self) -> LoadedCopies[Facts] | None:
        """Returns the newest sound copy; None if there is none (nothing was stored yet, or both are lost).

        Raises `Overloaded` or `PermissionError` if a copy cannot be opened for these reasons, which do not mean that it
        is lost.
        """
        copies = {path: self._read(path) for path in self._paths}
        sound_copies = {path: copy for path, copy in copies.items() if copy is not None}
        # The worse copy is written first, so that the better one stays whole whatever becomes of that write.
        self._paths.sort(key=lambda path: sound_copies[path][0] if path in sound_copies else -1)
        if not sound_copies:
            return None
        self._sequence, info = sound_copies[self._paths[-1]]
        # A copy with a lower sequence is sound, and still bad: if the newer one rotted, old facts would come back, an
        # old promise among them.
        good = sum(1 for sequence, _ in sound_copies.values() if sequence == self._sequence)
        return LoadedCopies(info, self._sequence, len(self._paths) - good)

    def count_bad(self) -> int:
        """Returns the number of copies that cannot be used. Raises `Overloaded` or `PermissionError` if a copy cannot
        be opened for these reasons."""
        return sum(self._read(path) is None for path in self._paths)

    def store(self, info: Facts) -> None:
        """Writes both copies, each durable before the next. Blocking. Raises `OSError`: one copy may be new then."""
        self._sequence += 1
        block = self._encode(self._sequence, info)
        # One after the other, each synced: at any moment one whole copy is on the disk, the old one or the new one.
        for path in list(self._paths):
            self._write(path, block)
            self._paths.remove(path)
            self._paths.append(path)  # should the next write fail, it is the other copy's turn again

    def begin(self, info: Facts) -> None:
        """Writes the first two copies, each durable. The caller has to make their names durable. Blocking. Raises
        `OSError`."""
        self._sequence += 1
        for path in self._paths:
            self._write(path, self._encode(self._sequence, info), is_new=False)

    def write_again(self) -> None:
        """Writes the same bytes to each sound copy again, and syncs it: what was read may be in the page cache only,
        after a process died between a write and its fsync. A write that fails half-way does no harm. Blocking. Raises
        `OSError`."""
        for path in self._paths:
            raw = self._read_raw(path)
            if self._decode(raw) is not None:
                self._write(path, raw)

    def mend(self, info: Facts) -> int:
        """Reads both copies, and writes a bad or older one again from the other; if both are bad, writes `info`.
        Returns the number of bad copies. A good copy is only overwritten by a newer one. Blocking. Raises `Overloaded`
        or `PermissionError` if a copy cannot be opened for these reasons, `OSError` if a write fails."""
        raws = {path: self._read_raw(path) for path in self._paths}
        sound_copies = {path: copy for path, raw in raws.items() if (copy := self._decode(raw)) is not None}
        # Both are bad at once. The process that has them open knows what they said, and nobody else does.
        if not sound_copies:
            self.store(info)
            return len(raws)
        newest = max(sound_copies, key=lambda path: sound_copies[path][0])
        for path in raws:
            if path not in sound_copies or sound_copies[path][0] < sound_copies[newest][0]:
                self._write(path, raws[newest])
        return len(raws) - len(sound_copies)

    def _write(self, path: str, block: bytes, *, is_new: bool | None = None) -> None:
        """Writes a copy durably. With `is_new` its name is made durable as well; by default if the file did not
        exist."""
        if is_new is None:
            is_new = not self._files.exists(path)
        with closing(self._files.open(path, create=True)) as file:
            file.pwritev([block], 0)
            # A failed fsync is not retried here: the copy counts as unknown, and the next write begins with it.
            file.sync()
        if is_new:
            self._files.sync_dir(self._directory)

    def _encode(self, sequence: int, info: Facts) -> bytes:
        payload = msgspec.json.encode(info)
        head = (self._magic, VERSION, sequence, len(payload))
        crc = crc32c(payload, crc32c(_HEAD.pack(*head, 0), self._seed))
        block = _HEAD.pack(*head, crc) + payload
        assert len(block) <= COPY_BYTES_MAX
        return block.ljust(-(-len(block) // COPY_BYTES) * COPY_BYTES, b"\0")

    def _read(self, path: str) -> tuple[int, Facts] | None:
        return self._decode(self._read_raw(path))

    def _read_raw(self, path: str) -> bytes:
        """Returns a copy's bytes; empty if they cannot be read."""
        try:
            with closing(open_file(self._files, path)) as file:
                return file.pread(COPY_BYTES_MAX, 0)
        except PermissionError:
            raise
        except OSError:
            return b""

    def _decode(self, raw: bytes) -> tuple[int, Facts] | None:
        if len(raw) < _HEAD.size:
            return None
        magic, version, sequence, length, crc = _HEAD.unpack_from(raw)
        payload = raw[_HEAD.size : _HEAD.size + length]
        if (magic, version) != (self._magic, VERSION) or len(payload) != length:
            return None
        if crc != crc32c(payload, crc32c(_HEAD.pack(magic, version, sequence, length, 0), self._seed)):
            return None
        try:
            return sequence, msgspec.json.decode(payload, type=self._facts)
        except msgspec.DecodeError:
            return None
