"""The Python snippets of the pages for clients run as they stand, one after the other, as the pages say."""

from __future__ import annotations

import ast
import asyncio
import inspect
import re
from pathlib import Path
from typing import Any

import pytest

from tidelog.testing import LocalCluster

pytestmark = pytest.mark.process

DOCS = Path(__file__).parents[3] / "docs"
DEFAULT = "http://127.0.0.1:8082"


@pytest.mark.parametrize(("page", "count"), [("python-client.md", 5), ("replicated-log.md", 5)])
async def test_the_snippets_run(cluster: LocalCluster, page: str, count: int) -> None:
    snippets = re.findall(r"```python\n(.*?)```", (DOCS / page).read_text(), re.DOTALL)
    assert len(snippets) == count
    names: dict[str, Any] = {"asyncio": asyncio}  # as `python -m asyncio` has it
    for snippet in snippets:
        code = compile(snippet.replace(DEFAULT, cluster.bootstrap), page, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        result = eval(code, names)
        if inspect.isawaitable(result):
            await result
