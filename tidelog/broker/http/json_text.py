"""Splits a stream of JSON objects, which follow each other with or without white space, into single objects.

Only strings and braces decide where an object ends; whether it is valid JSON is checked by the decoder. Each byte is
scanned once or twice, in whatever pieces they arrive, and only the bytes of the current object are kept.

The patterns are written so that no byte can match in two ways, which makes backtracking linear, and so that groups
repeat 100 times at most, because `re` remembers each repetition; after that many the caller's loop matches again. They
are not possessive: CPython before 3.11.5 has a bug with nested possessive quantifiers.
"""

from __future__ import annotations

import re

from tidelog.model.errors import InvalidRequest, TooLarge

_BLANK = re.compile(rb"[ \t\r\n]*")
_STRING_REST = rb'[^"\\]*(?:\\.[^"\\]*){0,100}'
_IN_STRING = re.compile(_STRING_REST, re.DOTALL)
_BETWEEN_BRACES = re.compile(rb'[^"{}]*(?:"%b"[^"{}]*){0,100}' % _STRING_REST, re.DOTALL)
_QUOTE, _OPEN, _CLOSE = b'"{}'
_BRACES = b"{}"


class ObjectCutter:
    """Splits bytes into JSON objects: `add` bytes as they arrive, and call `next_object` until it returns None."""

    def __init__(self, object_bytes_max: int) -> None:
        self._object_bytes_max = object_bytes_max
        self._buffer = bytearray()
        self._position = 0
        """Bytes of the buffer that have been scanned."""
        self._depth = 0
        """Number of open braces; 0 between objects."""
        self._in_string = False

    @property
    def is_between_objects(self) -> bool:
        """True unless an object has begun and not ended."""
        return self._depth == 0

    @property
    def bytes_held(self) -> int:
        """Bytes that were added and not returned yet."""
        return len(self._buffer)

    def add(self, data: bytes) -> None:
        """Appends bytes to the buffer."""
        self._buffer += data

    def next_object(self) -> bytes | None:
        """Returns the next complete object; None if it has not arrived completely.

        Raises `TooLarge` if it is longer than allowed and `InvalidRequest` if the next bytes are not an object; after
        either the stream cannot be parsed any further.
        """
        if self._depth == 0 and not self._begin():
            return None
        end = self._find_end()
        if (end or len(self._buffer)) > self._object_bytes_max:
            raise TooLarge(f"a JSON object of more than {self._object_bytes_max} bytes; send smaller records")
        if end is None:
            return None
        text = bytes(memoryview(self._buffer)[:end])
        del self._buffer[:end]
        self._position = 0
        return text

    def _begin(self) -> bool:
        """Drops the white space before the next object and moves the position behind its opening brace. Returns False
        if there is only white space. Raises `InvalidRequest` if no object follows.
        """
        blank = _BLANK.match(self._buffer)
        assert blank is not None
        del self._buffer[: blank.end()]
        if not self._buffer:
            return False
        if self._buffer[0] != _OPEN:
            raise InvalidRequest("the body is not a sequence of JSON objects: one must begin with {")
        self._position = self._depth = 1
        return True

    def _find_end(self) -> int | None:
        """Scans to the brace that closes the object, and returns the position after it; None if it has not arrived."""
        buffer = self._buffer
        position = self._position
        while position < len(buffer):
            if self._in_string:
                position = _end_of(_IN_STRING, buffer, position)
                if position >= len(buffer) - 1 and buffer[position:] != b'"':
                    break  # the string goes on, or its last byte so far is a lone backslash
                if buffer[position] != _QUOTE:
                    continue  # more escapes than one match takes
                self._in_string = False
                position += 1
                continue
            if buffer[position] not in _BRACES:
                position = _end_of(_BETWEEN_BRACES, buffer, position)
                if position == len(buffer):
                    break
            byte = buffer[position]
            position += 1
            if byte == _CLOSE:
                self._depth -= 1
                if self._depth == 0:
                    return position
            elif byte == _OPEN:
                self._depth += 1
            else:
                self._in_string = True
        self._position = position
        return None


def _end_of(pattern: re.Pattern[bytes], buffer: bytearray, position: int) -> int:
    """Returns the position where a match of `pattern` ends. The pattern must match the empty string, too."""
    match = pattern.match(buffer, position)
    assert match is not None
    return match.end()
