from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryFile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.cli import lines
from tidelog.cli.lines import LineReader
from tidelog.model.errors import TooLarge


async def read_all(fd: int) -> list[bytes]:
    return [line async for some in LineReader(fd) for line in some]


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    """The reading and the writing end; a test may close either."""
    ends = os.pipe()
    yield ends
    for end in ends:
        with suppress(OSError):
            os.close(end)


@pytest.fixture
def short_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "CHUNK_BYTES", 7)


@pytest.mark.usefixtures("short_chunks")
async def test_a_file_that_needs_many_reads(tmp_path: Path) -> None:
    path = tmp_path / "rows"
    path.write_bytes(b"first\r\n\nthe third one is longer than a chunk\nlast")
    with path.open("rb") as file:
        assert await read_all(file.fileno()) == [b"first\r", b"", b"the third one is longer than a chunk", b"last"]


@given(st.lists(st.binary(max_size=20).filter(lambda line: b"\n" not in line)), st.booleans())
def test_lines_come_back_byte_for_byte(content: list[bytes], ends_with_newline: bool) -> None:
    text = b"\n".join(content) + (b"\n" if content and ends_with_newline else b"")
    wanted = text.split(b"\n")
    if not wanted[-1]:
        wanted.pop()
    with TemporaryFile() as file:
        file.write(text)
        file.seek(0)
        assert asyncio.run(read_all(file.fileno())) == wanted


async def test_lines_of_a_pipe_come_as_they_are_written(pipe: tuple[int, int]) -> None:
    reading, writing = pipe
    lines_read = aiter(LineReader(reading))
    os.write(writing, b"one\ntw")
    assert await anext(lines_read) == [b"one"]
    os.write(writing, b"o\nthree\nfour")
    assert await anext(lines_read) == [b"two", b"three"]
    os.close(writing)
    assert await anext(lines_read) == [b"four"]
    with pytest.raises(StopAsyncIteration):
        await anext(lines_read)


async def test_stop_ends_a_wait_and_drops_what_is_no_whole_line(pipe: tuple[int, int]) -> None:
    reading, writing = pipe
    os.write(writing, b"one\ntw")
    reader = LineReader(reading)
    found: list[list[bytes]] = []

    async def read() -> None:
        async for some in reader:
            found.append(some)
            asyncio.get_running_loop().call_soon(reader.stop)

    await asyncio.wait_for(read(), 10)
    assert found == [[b"one"]]


async def test_a_pipe_stays_blocking_for_whoever_else_has_it(pipe: tuple[int, int]) -> None:
    reading, writing = pipe
    os.close(writing)
    await read_all(reading)
    assert os.get_blocking(reading)


async def test_what_can_be_no_line_is_refused(pipe: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "LINE_BYTES_MAX", 100)
    reading, writing = pipe
    os.write(writing, b"x" * 101)
    with pytest.raises(TooLarge, match="longer than 100 bytes"):
        await asyncio.wait_for(read_all(reading), 10)


async def test_a_plain_file_is_not_read_in_the_event_loops_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read(fd: int, count: int) -> bytes:
        raise AssertionError("whoever waits for a disk must not stop the event loop")

    path = tmp_path / "rows"
    path.write_bytes(b"a\nb\n")
    with path.open("rb") as file:
        monkeypatch.setattr("tidelog.cli.lines.os.read", read)
        assert await read_all(file.fileno()) == [b"a", b"b"]
