"""The snippets of the pages for users run as they are typed: Python in `python -m asyncio`, commands in a shell.

Only the brokers' addresses are others, since tests share a machine.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import groupby
from pathlib import Path

import pytest

from tidelog.admin import AdminClient
from tidelog.producer import Producer
from tidelog.testing import LocalCluster
from tidelog.testing.commands import READY
from tidelog.testing.ports import free_ports, is_free

pytestmark = pytest.mark.process

ROOT = Path(__file__).parents[3]
DEFAULT = "http://127.0.0.1:8082"
TIMEOUT_S = 120
ENVIRONMENT = {
    **{name: value for name, value in os.environ.items() if not name.startswith("TIDELOG_")},
    "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
    "PYTHONPATH": str(ROOT),
}

needs_blocks_from_a_pipe = pytest.mark.skipif(
    sys.version_info >= (3, 13), reason="Python 3.13's `python -m asyncio` takes indented blocks from a terminal only"
)

Begin = Callable[..., "subprocess.Popen[str]"]


def snippets(page: str) -> list[tuple[str, str]]:
    """The language and text of each fenced block; commands have none."""
    return re.findall(r"^```(\w*)\n(.*?)^```", (ROOT / page).read_text(), re.DOTALL | re.MULTILINE)


def typed(blocks: list[str]) -> str:
    """Returns what `python -m asyncio` has to complain about, when these are typed one after the other."""
    ran = subprocess.run(
        [sys.executable, "-m", "asyncio"],
        input="\n".join(blocks) + "\n",
        capture_output=True,
        text=True,
        env=ENVIRONMENT,
        timeout=TIMEOUT_S,
        check=True,
    )
    return ran.stderr if "Error" in ran.stderr or "Traceback" in ran.stderr else ""


def run_in_shell(commands: str, directory: Path, bootstrap: str) -> str:
    """Returns what the commands print. Each must end well."""
    ran = subprocess.run(
        ["/bin/sh", "-e", "-c", commands],
        capture_output=True,
        text=True,
        cwd=directory,
        env={**ENVIRONMENT, "TIDELOG_BOOTSTRAP": bootstrap},
        timeout=TIMEOUT_S,
        check=False,
    )
    assert (ran.returncode, "error" in ran.stderr) == (0, False), ran.stdout + ran.stderr
    return ran.stdout


@needs_blocks_from_a_pipe
def test_what_python_complains_about_is_noticed() -> None:
    assert "IndentationError" in typed(["if True:\n    1\n\n    2\n"])
    assert "AssertionError" in typed(["import asyncio\n", "assert await asyncio.sleep(0, False)\n"])
    assert not typed(["async def f():\n    return 1\n", "assert await f() == 1\n"])


@needs_blocks_from_a_pipe
@pytest.mark.parametrize(
    ("page", "count"), [("docs/python-client.md", 5), ("docs/replicated-log.md", 5), ("docs/groups.md", 2)]
)
async def test_the_snippets_of_a_page_run(cluster: LocalCluster, tmp_path: Path, page: str, count: int) -> None:
    if page == "docs/groups.md":  # its reader has a topic with records
        async with AdminClient(cluster.bootstrap) as admin, Producer(cluster.bootstrap) as producer:
            await admin.create_topic("flights", exist_ok=True)
            await producer.send_and_wait("flights", b"EWR to IAH")
    runnable = [
        (language, text.replace(DEFAULT, cluster.bootstrap))
        for language, text in snippets(page)
        if language == "python" or (not language and text.startswith("tidelog "))
    ]
    assert len(runnable) == count
    for language, some in groupby(runnable, key=lambda snippet: snippet[0]):
        texts = [text for _, text in some]
        if language == "python":
            assert not typed(texts)
        else:
            run_in_shell("".join(texts), tmp_path, cluster.bootstrap)


# -- the readme ----------------------------------------------------------------------------------------------------


@pytest.fixture
def begin(tmp_path: Path) -> Iterator[Begin]:
    """Begins a command in `tmp_path`, and stops it in the end."""
    with ExitStack() as stack:

        def begin(command: str, **variables: str) -> subprocess.Popen[str]:
            process = subprocess.Popen(
                command.split(), stdout=subprocess.PIPE, text=True, cwd=tmp_path, env={**ENVIRONMENT, **variables}
            )
            stack.enter_context(process)
            stack.callback(process.wait, TIMEOUT_S)
            stack.callback(process.terminate)
            return process

        yield begin


def ready(process: subprocess.Popen[str]) -> str:
    """The address in the next ready line."""
    assert process.stdout is not None
    found = READY.fullmatch(process.stdout.readline().rstrip("\n"))
    assert found is not None
    return found["url"]


def readme(first_line: str) -> str:
    """The block that begins so."""
    [text] = [text for _, text in snippets("README.md") if text.startswith(first_line)]
    return text


@pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl")
def test_the_five_minutes_of_the_readme(begin: Begin, tmp_path: Path) -> None:
    *install, start = readme("python3 -m venv").splitlines()
    assert install[0].endswith(".venv/bin/pip install -e .") and start == "tidelog start"
    listeners = {"TIDELOG_HTTP_LISTENER": "127.0.0.1:0", "TIDELOG_PEER_LISTENER": "127.0.0.1:0"}
    address = ready(begin(start, **listeners))
    assert (tmp_path / "tidelog-data").is_dir()
    printed = run_in_shell(readme("tidelog topic create flights").replace(DEFAULT, address), tmp_path, address)
    assert '"offset":0' in printed and '"key":"UA"' in printed
    assert printed.splitlines()[-1].endswith("EWR to IAH")
    script = readme("import asyncio").replace(DEFAULT, address)
    ran = subprocess.run(
        [sys.executable, "-c", script], env=ENVIRONMENT, timeout=TIMEOUT_S, check=True, capture_output=True, text=True
    )
    assert ran.stdout.split()[1] == "0" and not ran.stderr


def test_the_three_brokers_of_the_readme(begin: Begin, tmp_path: Path) -> None:
    port = next(port for port in iter(lambda: free_ports(1)[0], 0) if all(map(is_free, range(port, port + 3))))
    dev = begin(f"{readme('tidelog dev').strip()} --base-port {port}")
    first, second, _ = (ready(dev) for _ in range(3))
    commands = readme("tidelog topic create trips").replace("http://127.0.0.1:8083", second)
    printed = run_in_shell(commands, tmp_path, first)
    assert printed.startswith("created topic trips: 6 partitions, 3 replicas\n")
    assert "start" in printed.splitlines()[-1] and "--node-id 1" in printed.splitlines()[-1]
