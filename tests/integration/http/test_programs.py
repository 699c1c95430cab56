"""Programs in other languages that stream their bodies, as they do when they do not know the length: real runtimes."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from tests.integration.http.conftest import Site
from tests.integration.http.wire import TIMEOUT_S

PROGRAMS: Final = Path(__file__).parent / "programs"
BUILD_S: Final = 300
"""A Go compiler that has not built its standard library yet takes long."""


pytestmark = [pytest.mark.e2e, pytest.mark.timeout(BUILD_S + 60)]


class Said(NamedTuple):
    status: int
    body: str


def _node(name: str, _: Path) -> list[str]:
    if shutil.which("node") is None:
        pytest.skip("node is not installed")
    return ["node", str(PROGRAMS / name)]


def _go(name: str, directory: Path) -> list[str]:
    if shutil.which("go") is None:
        pytest.skip("go is not installed")
    built = directory / "program"
    command = ["go", "build", "-o", str(built), str(PROGRAMS / name)]
    subprocess.run(command, check=True, capture_output=True, timeout=BUILD_S, cwd=directory)
    return [str(built)]


def _python(name: str, _: Path) -> list[str]:
    return [sys.executable, str(PROGRAMS / name)]


PROGRAMS_OF: Final[dict[str, tuple[Callable[[str, Path], list[str]], str]]] = {
    "http.request of Node": (_node, "request.mjs"),
    "fetch of Node": (_node, "fetch.mjs"),
    "io.Pipe of Go": (_go, "pipe.go"),
    "a generator for requests": (_python, "post.py"),
}


@pytest.fixture(scope="module", params=PROGRAMS_OF)
def program(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The command that posts its standard input; it wants a URL and a content type."""
    prepare, name = PROGRAMS_OF[request.param]
    return prepare(name, tmp_path_factory.mktemp("program"))


async def stream(program: list[str], url: str, media_type: str, pieces: list[bytes]) -> Said:
    """Runs the program, and gives it the body piece by piece."""
    pipe = subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*program, url, media_type, stdin=pipe, stdout=pipe, stderr=pipe)
    assert process.stdin is not None
    for piece in pieces:
        process.stdin.write(piece)
        await process.stdin.drain()
        await asyncio.sleep(0.01)  # so that it has something to send, and not yet all
    process.stdin.close()
    async with asyncio.timeout(TIMEOUT_S):
        out, complaints = await process.communicate()
    assert process.returncode == 0, complaints.decode()
    status, _, body = out.decode().partition("\n")
    return Said(int(status), body)


async def test_records_of_v2(site: Site, program: list[str]) -> None:
    url = f"http://{site.address[0]}:{site.address[1]}/topics/t"
    values = [f"value {number}" for number in range(500)]
    text = json.dumps({"records": [{"value": value} for value in values]}).encode()
    pieces = [text[start : start + 2000] for start in range(0, len(text), 2000)]
    said = await stream(program, url, "application/vnd.kafka.text.v2+json", pieces)
    assert (said.status, len(json.loads(said.body)["offsets"])) == (200, 500)
    assert site.values() == [value.encode() for value in values]


async def test_a_stream_of_v3(site: Site, program: list[str]) -> None:
    url = f"http://{site.address[0]}:{site.address[1]}{site.v3}/topics/t/records"
    pieces = [json.dumps({"value": {"type": "JSON", "data": number}}).encode() for number in range(10)]
    said = await stream(program, url, "application/json", pieces)
    receipts = [json.loads(line) for line in said.body.splitlines()]
    assert (said.status, [receipt["offset"] for receipt in receipts]) == (200, list(range(10)))


async def test_a_topic(site: Site, program: list[str]) -> None:
    url = f"http://{site.address[0]}:{site.address[1]}{site.v3}/topics/"
    said = await stream(program, url, "application/json", [b'{"topic_name":', b'"streamed"}'])
    assert (said.status, json.loads(said.body)["topic_name"]) == (201, "streamed")


async def test_a_refusal_is_read(site: Site, program: list[str]) -> None:
    url = f"http://{site.address[0]}:{site.address[1]}/topics/none"
    said = await stream(program, url, "application/vnd.kafka.text.v2+json", [b'{"records":[{"value":"x"}]}'])
    assert (said.status, json.loads(said.body)["error_code"]) == (404, 40401)
