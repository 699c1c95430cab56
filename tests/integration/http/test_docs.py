"""The commands of docs/http-api.md do what the page says, in its order."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from tests.integration.http.conftest import Site
from tests.integration.http.wire import Reply

PAGE = (Path(__file__).parents[3] / "docs" / "http-api.md").read_text()
COMMANDS = [line for block in re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL) for line in block.splitlines()]


class Curl:
    """As much of curl as the page uses. Files are kept in memory."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._files: dict[str, bytes] = {}

    async def run(self, command: str) -> Reply:
        url = f"http://{self._site.address[0]}:{self._site.address[1]}"
        words = shlex.split(command.replace("$URL", url).replace("$CLUSTER", self._site.broker.cluster_id))
        assert words.pop(0) == "curl"
        method, target, body, headers, output = "", "", None, {}, ""
        while words:
            match words.pop(0):
                case "-s" | "-N":
                    pass
                case "-X":
                    method = words.pop(0)
                case "-H":
                    name, _, value = words.pop(0).partition(": ")
                    headers[name] = value
                case "-d" | "--data":
                    body = words.pop(0).encode()
                case "--data-binary":
                    body = self._files[words.pop(0).removeprefix("@")]
                case "-o":
                    output = words.pop(0)
                case word:
                    assert word.startswith(url), f"curl {word} is not known here"
                    target = word.removeprefix(url)
        reply = await self._site.ask(method or ("GET" if body is None else "POST"), target, body, headers)
        self._files[output] = reply.body
        return reply


async def test_every_command_succeeds(site: Site) -> None:
    curl = Curl(site)
    assert len(COMMANDS) > 20
    for command in COMMANDS:
        reply = await curl.run(command)
        assert reply.status < 300, (command, reply.body)
    keyed = [command for command in COMMANDS if "Idempotency-Key" in command]
    first, again = [(await curl.run(command)).json()["offsets"] for command in keyed]
    assert first == again
    assert len(site.stored("flights", 1)) >= len(site.stored("flights", 0)) > 0  # the batches that were carried over
