"""The types of Kafka's protocol, read from a frame and written to one: integers, strings, arrays, tagged fields.

A version of a message is *flexible* from some version on: lengths are varints that are one too high, so that 0 is null,
and each structure ends with tagged fields, which readers skip if they do not know them.

Each length is compared with the bytes that are left before memory of that size is allocated. A length that does not fit
raises `Malformed` and ends the connection, since nothing after it can be parsed. Bytes after a request are ignored, as
in Kafka: some clients write more than a version has.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from tidelog.model.errors import InvalidRequest

INT16: Final = Struct(">h")
INT32: Final = Struct(">i")
INT64: Final = Struct(">q")
FLOAT64: Final = Struct(">d")
UUID_BYTES: Final = 16
VARINT_BYTES_MAX: Final = 5
ENTRIES_MAX: Final = 20_000
"""Maximum array entries of one request, over all its arrays. It bounds the work to read and answer the request."""
NO_TAGS: Final = b"\x00"


class Malformed(InvalidRequest):
    """A frame does not have the format that its header announces; its connection is closed."""


class Reader:
    """Reads the fields of one frame in order. All methods raise `Malformed`."""

    __slots__ = ("end", "entries", "frame", "position")

    def __init__(self, frame: memoryview, position: int = 0) -> None:
        self.frame = frame
        self.position = position
        self.end = len(frame)
        self.entries = 0
        """The number of array entries read so far."""

    def _take(self, size: int) -> int:
        begin = self.position
        if size < 0 or begin + size > self.end:
            raise Malformed(f"{size} bytes are announced at byte {begin} of a frame that has {self.end}")
        self.position = begin + size
        return begin

    def skip(self, size: int) -> int:
        """Skips `size` bytes and returns the position at which they begin."""
        return self._take(size)

    def unpack(self, layout: Struct) -> tuple[int, ...]:
        """Reads consecutive numbers of fixed sizes."""
        return layout.unpack_from(self.frame, self._take(layout.size))

    def int8(self) -> int:
        value = self.frame[self._take(1)]
        return value - 256 if value > 127 else value

    def boolean(self) -> bool:
        return self.frame[self._take(1)] != 0

    def int16(self) -> int:
        value: int = INT16.unpack_from(self.frame, self._take(2))[0]
        return value

    def int32(self) -> int:
        value: int = INT32.unpack_from(self.frame, self._take(4))[0]
        return value

    def int64(self) -> int:
        value: int = INT64.unpack_from(self.frame, self._take(8))[0]
        return value

    def float64(self) -> float:
        value: float = FLOAT64.unpack_from(self.frame, self._take(8))[0]
        return value

    def uuid(self) -> str:
        """Returns the id as 32 hexadecimal digits."""
        begin = self._take(UUID_BYTES)
        return self.frame[begin : begin + UUID_BYTES].hex()

    def uvarint(self) -> int:
        position = self.position
        # Nearly all have one byte.
        if position < self.end and (byte := self.frame[position]) < 0x80:
            self.position = position + 1
            return byte
        value = shift = 0
        for _ in range(VARINT_BYTES_MAX):
            byte = self.frame[self._take(1)]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7
        raise Malformed(f"a number at byte {self.position} has more than {VARINT_BYTES_MAX} bytes")

    def nullable_string(self, *, is_flexible: bool) -> str | None:
        size = self.uvarint() - 1 if is_flexible else self.int16()
        if size < 0:
            return None
        begin = self._take(size)
        try:
            return str(self.frame[begin : begin + size], "utf-8")
        except UnicodeDecodeError:
            raise Malformed(f"the string at byte {begin} is no UTF-8") from None

    def string(self, *, is_flexible: bool) -> str:
        text = self.nullable_string(is_flexible=is_flexible)
        if text is None:
            raise Malformed(f"a string is missing at byte {self.position}")
        return text

    def nullable_span(self, *, is_flexible: bool) -> tuple[int, int] | None:
        """Reads a byte string and returns its start and end positions; None for null."""
        size = self.uvarint() - 1 if is_flexible else self.int32()
        if size < 0:
            return None
        begin = self._take(size)
        return begin, begin + size

    def array(self, entry_bytes_min: int, *, is_flexible: bool) -> int:
        """Reads the length of an array and returns it; -1 for null. Each entry takes at least `entry_bytes_min`
        bytes."""
        count = self.uvarint() - 1 if is_flexible else self.int32()
        if count <= 0:
            return max(count, -1)
        self.entries += count
        if self.entries > ENTRIES_MAX or count * entry_bytes_min > self.end - self.position:
            raise Malformed(
                f"{count} entries are announced at byte {self.position}; at most {ENTRIES_MAX} may be in all"
            )
        return count

    def tags(self, *, is_flexible: bool) -> None:
        """Skips the tagged fields that end a structure of a flexible version."""
        if not is_flexible:
            return
        if self.position < self.end and self.frame[self.position] == 0:  # nearly always
            self.position += 1
            return
        for _ in range(self.uvarint()):
            self.uvarint()
            self._take(self.uvarint())

    def tag(self, number: int) -> memoryview | None:
        """Reads the tagged fields that end a structure. Returns the value of the field `number`, None if it is
        missing."""
        value = None
        for _ in range(self.uvarint()):
            tag, size = self.uvarint(), self.uvarint()
            begin = self._take(size)
            if tag == number:
                value = self.frame[begin : begin + size]
        return value


def uvarint(value: int) -> bytes:
    """Returns an unsigned varint."""
    if value < 0x80:
        return value.to_bytes()
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def string(text: str | None, *, is_flexible: bool) -> bytes:
    """Returns an encoded string, or null for None."""
    if text is None:
        return NO_TAGS if is_flexible else b"\xff\xff"
    data = text.encode()
    return (uvarint(len(data) + 1) if is_flexible else INT16.pack(len(data))) + data


def array(count: int, *, is_flexible: bool) -> bytes:
    """Returns the encoded length of an array with `count` entries."""
    return uvarint(count + 1) if is_flexible else INT32.pack(count)


def int32s(values: tuple[int, ...], *, is_flexible: bool) -> bytes:
    """Returns an encoded array of 32-bit integers."""
    return array(len(values), is_flexible=is_flexible) + b"".join(map(INT32.pack, values))


def tagged(fields: dict[int, bytes]) -> bytes:
    """Returns encoded tagged fields, in the order of their tags."""
    out = uvarint(len(fields))
    for tag in sorted(fields):
        out += uvarint(tag) + uvarint(len(fields[tag])) + fields[tag]
    return out
