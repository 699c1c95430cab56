"""The format of a snapshot on disk and in transfers to other replicas.

A snapshot is a state machine's image at one position of its log. All replicas that hold one of the same position hold
the same bytes, so a damaged part can be fetched from any other replica, if it is certainly the same part. Hence
- the *body* is split into chunks, each a block of 4 KiB: a hash, and 4,080 bytes of the body (the last may be shorter).
  The hash covers the snapshot's position and the chunk's index, too: chunks of different snapshots, or indices, cannot
  be taken for each other.
- the *root* is the hash of the chunks' hashes. Two replicas with one root at one position have the same body.
- the *header* has the position, the size of the body, the root and the caller's own bytes, all under a hash. It is
  stored in two files of its own.

Blocks are transferred as they are stored. Hashes are XXH3, 128 bits: against accidents, not against malice.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from xxhash import xxh3_128_digest

from tidelog.model.ports import Buffer

BLOCK_BYTES = 4096
HASH_BYTES = 16
CHUNK_BYTES = BLOCK_BYTES - HASH_BYTES
HEADER_BYTES_MAX = 1 << 20
"""The size limit of the bytes that the caller adds to a header."""
MAGIC = 0x7D15
VERSION = 1
_POSITION_AND_INDEX = struct.Struct("<QQ")  # position, index
_HEAD = struct.Struct("<HHQQ16sI")  # magic, version, position, size, root, length of the caller's bytes


class DamagedSnapshot(Exception):
    """Some chunks of a snapshot are damaged or missing. Another replica can give them, if its snapshot at this position
    has the same root hash."""

    def __init__(self, position: int, chunks: Iterable[int]) -> None:
        self.position = position
        self.chunks = tuple(chunks)
        """The indices of the damaged chunks."""
        super().__init__(f"snapshot at {position}: damaged chunks {', '.join(map(str, self.chunks))}")


@dataclass(frozen=True, slots=True)
class SnapshotHeader:
    """The header of a snapshot, with all that is needed to request its chunks."""

    position: int
    size: int
    """The size of the body, in bytes."""
    root: bytes
    header: bytes
    """The bytes that the caller added."""

    @property
    def chunk_count(self) -> int:
        return -(-self.size // CHUNK_BYTES)

    def block_bytes(self, index: int) -> int:
        """Returns the size of a chunk with its hash, in bytes."""
        return min(BLOCK_BYTES, HASH_BYTES + self.size - index * CHUNK_BYTES)


def split(position: int, body: Buffer) -> list[bytes]:
    """Returns a body's chunks, each preceded by its hash."""
    view = memoryview(body)
    starts = range(0, len(view), CHUNK_BYTES)
    pieces = [bytes(view[start : start + CHUNK_BYTES]) for start in starts]
    return [_hash(position, index, piece) + piece for index, piece in enumerate(pieces)]


def is_sound(header: SnapshotHeader, index: int, block: bytes) -> bool:
    """Returns True if the block is a chunk of some snapshot at that position, with that index. Only the root shows
    whether it belongs to this one."""
    return len(block) == header.block_bytes(index) and block[:HASH_BYTES] == _hash(
        header.position, index, block[HASH_BYTES:]
    )


def root_of(blocks: Sequence[bytes]) -> bytes:
    return xxh3_128_digest(b"".join(block[:HASH_BYTES] for block in blocks))


def damaged_chunks(header: SnapshotHeader, blocks: Sequence[bytes]) -> tuple[int, ...]:
    """Returns the indices of damaged chunks; all of them if each is sound, but they do not have the header's root."""
    assert len(blocks) == header.chunk_count
    bad = tuple(index for index, block in enumerate(blocks) if not is_sound(header, index, block))
    # Each chunk proves its position and index, not which image it is of. Two replicas that differed would have chunks
    # that are all sound, and no whole.
    if bad or root_of(blocks) == header.root:
        return bad
    # Which of them are strangers nobody can tell, so all are asked for again.
    return tuple(range(header.chunk_count))


def join(blocks: Iterable[bytes]) -> bytes:
    """Returns the body of sound blocks, without their hashes."""
    return b"".join(memoryview(block)[HASH_BYTES:] for block in blocks)


def encode_header(header: SnapshotHeader) -> bytes:
    head = _HEAD.pack(MAGIC, VERSION, header.position, header.size, header.root, len(header.header))
    return xxh3_128_digest(head + header.header) + head + header.header


def decode_header(raw: bytes) -> SnapshotHeader | None:
    """Decodes a header; None if it is damaged."""
    if len(raw) < HASH_BYTES + _HEAD.size or raw[:HASH_BYTES] != xxh3_128_digest(raw[HASH_BYTES:]):
        return None
    magic, version, position, size, root, length = _HEAD.unpack_from(raw, HASH_BYTES)
    header = raw[HASH_BYTES + _HEAD.size :]
    if (magic, version, length) != (MAGIC, VERSION, len(header)):
        return None
    return SnapshotHeader(position, size, root, header)


def _hash(position: int, index: int, piece: bytes) -> bytes:
    # Position and index are hashed, though not stored: a block that a misdirected write put elsewhere is not sound
    # there.
    return xxh3_128_digest(_POSITION_AND_INDEX.pack(position, index) + piece)
