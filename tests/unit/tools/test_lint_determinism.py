"""Each thing the lint forbids is found, its harmless cousin is not, and exceptions cost a reason."""

from __future__ import annotations

import textwrap

import pytest

from tools.lint_determinism import ROOT, checked_files, lint_source

STATE = "is mutable module state"
ORDER = "depends on the order of a set"


def findings(source: str) -> list[tuple[int, str]]:
    return [(finding.line, finding.message) for finding in lint_source(textwrap.dedent(source))]


def messages(source: str) -> list[str]:
    return [message for _, message in findings(source)]


# -- the outside world -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("import time", "imports time: take a Clock"),
        ("import os.path as path", "imports os.path: go through the Files port"),
        ("from time import monotonic", "imports time.monotonic: take a Clock"),
        ("from random import choice", "imports random.choice: take an Entropy"),
        ("from random import *", "imports random.*: take an Entropy"),
        ("from pathlib import Path", "imports pathlib.Path: go through the Files port"),
        ("import uuid", "imports uuid: take an Entropy"),
        ("import secrets", "imports secrets: take an Entropy"),
        ("import socket", "imports socket: leave sockets to the event loop"),
        ("import threading", "imports threading: take a BlockingRunner"),
        ("from concurrent.futures import ThreadPoolExecutor", "imports concurrent.futures.ThreadPoolExecutor: take a"),
        ("import subprocess", "imports subprocess: only programs start processes"),
        ("def f():\n  import time", "imports time: take a Clock"),
        ("open('x')", "uses open: go through the Files port"),
        ("import io\nio.open('x')", "uses io.open: go through the Files port"),
        ("f = open", "uses open: go through the Files port"),
        ("import random\nrandom.random()", "uses random.random: take an Entropy"),
        ("import random as dice\ndice.shuffle([])", "uses random.shuffle: take an Entropy"),
        ("import random\nrandom.Random()", "makes a Random without a seed"),
        ("from random import Random\nRandom()", "makes a Random without a seed"),
        ("import pathlib\npathlib.Path('x')", "uses pathlib.Path: go through the Files port"),
        ("import datetime\ndatetime.datetime.now()", "uses datetime.datetime.now: take a Clock"),
        ("from datetime import datetime\ndatetime.utcnow()", "uses datetime.datetime.utcnow: take a Clock"),
        ("from datetime import date as day\nday.today()", "uses datetime.date.today: take a Clock"),
        ("import asyncio\nasync def f(): done, rest = await asyncio.wait([])", "uses asyncio.wait: it returns sets"),
        ("import asyncio\nasync def f(): await asyncio.wait(list({1, 2}))", "depends on the order of a set"),
        ("from asyncio import as_completed\nas_completed([])", "uses asyncio.as_completed: its order is chance"),
        ("import asyncio\nasyncio.to_thread(f)", "uses asyncio.to_thread: take a BlockingRunner"),
        ("loop.run_in_executor(None, f)", "uses run_in_executor: take a BlockingRunner"),
        ("get_loop().run_in_executor(None, f)", "uses run_in_executor: take a BlockingRunner"),
        ("hash('x')", "uses hash: it differs from run to run"),
    ],
)
def test_the_outside_world_is_found(source: str, found: str) -> None:
    (message,) = messages(source)
    assert message.startswith(found)


@pytest.mark.parametrize(
    "source",
    [
        "import asyncio\nasyncio.get_running_loop().time()",
        "import asyncio\nasyncio.wait_for(x, 1)\nasyncio.sleep(1)",
        "import asyncio\nasync def f(tasks): await asyncio.wait(tasks, timeout=1)",
        "from random import Random\nRandom(7).random()",
        "import random\ndef f(dice: random.Random): return dice.random()",
        "from pathlib import PurePosixPath\nPurePosixPath('a') / 'b'",
        "from datetime import datetime\ndatetime.fromtimestamp(0, None)",
        "files.open('x')\nself.time()",
        "from tidelog.model.ports import Clock",
        "from . import time",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n  import socket",
        "time = 5\ntime + 1",
        "class C:\n  open: int",
    ],
)
def test_what_only_looks_like_it_is_not(source: str) -> None:
    assert findings(source) == []


# -- sets ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "source",
    [
        "for x in {1, 2}: pass",
        "for x in {y for y in z}: pass",
        "for x in set(y): pass",
        "for x in frozenset(y): pass",
        "for x in set(y) - z: pass",
        "for x in y | set(z): pass",
        "for x in set(y).union(z): pass",
        "X = [y for y in set(z)]",
        "X = {y: 1 for y in set(z)}",
        "X = list(y for y in set(z))",
        "X = list(set(y))",
        "X = tuple({1, 2})",
        "X = next(iter(set(y)))",
        "X = ','.join({a, b})",
        "X = [*set(y)]",
        "X = set(y).pop()",
        "for i, x in enumerate(set(y)): pass",
        "def f(isr: set[int]):\n  for x in isr: pass",
        "def f(isr: frozenset[int]):\n  return [x for x in isr]",
        "async def f(isr: collections.abc.Set[int]):\n  for x in isr: pass",
        "def f():\n  isr = set()\n  for x in isr: pass",
        "def f():\n  isr: set[int] = g()\n  return isr.pop()",
        "class C:\n  isr: frozenset[int]\n  def f(self):\n    for x in self.isr: pass",
        "class C:\n  def __init__(self):\n    self.isr = set()\n  def f(self):\n    for x in self.isr: pass",
        "NAMES = frozenset(x)\ndef f():\n  for x in NAMES: pass",
    ],
)
def test_the_order_of_a_set_is_found(source: str) -> None:
    assert {message[: len(ORDER)] for message in messages(source)} == {ORDER}


@pytest.mark.parametrize(
    "source",
    [
        "for x in sorted({1, 2}): pass",
        "for x in sorted(y for y in set(z)): pass",
        "X = max(set(y)) + len({1}) + sum(y for y in set(z))",
        "X = sorted(map(int, {y for y in z}))",
        "X = any(y > 1 for y in set(z))",
        "X = {y + 1 for y in set(z)}",
        "X = {*set(y), *set(z)}",
        "X = y in {1, 2}",
        "for x in {'a': 1}: pass",
        "def f():\n  names = set(x)\n  names = sorted(names)\n  for x in names: pass",
        "def f():\n  names = set()\ndef g(names: list[str]):\n  for x in names: pass",
        "class C:\n  isr: set[int]\nclass D:\n  def f(self):\n    for x in self.isr: pass",
        "def f(queue: list[int]):\n  return queue.pop()",
    ],
)
def test_what_does_not_depend_on_it_is_not(source: str) -> None:
    assert findings(source) == []


# -- state of a module -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "source",
    [
        "cache = {}",
        "CACHE = {}",
        "CACHE: dict[str, int] = {}",
        "CACHE = dict()",
        "names = ['a']",
        "seen = set()",
        "QUEUE = collections.deque([1])",
        "LOCK = asyncio.Lock()",
        "NEXT = itertools.count(1)",
        "SCRATCH = bytearray(10)",
        "REQUESTS = prometheus_client.Counter('requests', 'all')",
        "NAMES = ['a']\nNAMES.append('b')",
        "NAMES = {'a': 1}\ndef f(): NAMES['b'] = 2",
        "NAMES = {'a': 1}\ndel NAMES['a']",
        "NAMES = ['a']\nNAMES += ['b']",
        "if x:\n  CACHE = {}",
        "try:\n  pass\nexcept ImportError:\n  CACHE = {}",
    ],
)
def test_mutable_module_state_is_found(source: str) -> None:
    (message,) = messages(source)
    assert STATE in message


@pytest.mark.parametrize(
    "source",
    [
        "NAMES = ['a', 'b']",
        "_TABLE = {'a': 1}\nx = _TABLE['a']",
        "TABLE = {x: x for x in range(3)}",
        "TABLE = dict(a=1)",
        "__all__ = ['a']",
        "NAMES = ('a', 'b')\nKINDS = frozenset({'a'})",
        "limit = 5\nlogger = structlog.get_logger()",
        "def f():\n  cache = {}\n  cache['a'] = 1",
        "class C:\n  def __init__(self):\n    self.cache = {}",
    ],
)
def test_constants_are_not(source: str) -> None:
    assert findings(source) == []


def test_a_global_is_found() -> None:
    assert findings("x = 1\ndef f():\n  global x\n  x = 2")[0][0] == 3


# -- exceptions ------------------------------------------------------------------------------------------------------


def test_an_exception_needs_a_reason_and_something_to_except() -> None:
    assert findings("import time  # determinism: only for the name of a unit") == []
    assert len(findings("import time  # determinism:")) == 1
    assert "without a reason" in messages("x = 1\nimport time  # determinism: ")[0]
    assert "from nothing" in messages("x = 1  # determinism: no need")[0]
    assert findings("x = '# determinism: not a comment'") == []


def test_findings_come_in_the_order_of_the_lines() -> None:
    source = """\
        import time
        cache = {}
        for x in {1}: open(x)
    """
    assert [line for line, _ in findings(source)] == [1, 2, 3, 3]


def test_adapters_are_left_alone_and_everything_else_is_checked() -> None:
    checked = [file.relative_to(ROOT).as_posix() for file in checked_files(ROOT)]
    assert "tidelog/model/ids.py" in checked
    assert "tidelog/config/schema.py" in checked
    assert "tidelog/config/load.py" not in checked
    assert not [path for path in checked if path.startswith(("tidelog/adapters/", "tidelog/cli/"))]
