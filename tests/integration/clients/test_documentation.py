"""The snippets of docs/python-client.md run as they stand, one after the other, as the page says."""

from __future__ import annotations

import ast
import inspect
import re
from pathlib import Path
from typing import Any

import pytest

from tidelog.testing import LocalCluster

pytestmark = pytest.mark.process

PAGE = Path(__file__).parents[3] / "docs" / "python-client.md"
SNIPPETS = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
DEFAULT = "http://127.0.0.1:8082"


async def test_the_snippets_run(cluster: LocalCluster) -> None:
    assert len(SNIPPETS) == 4
    names: dict[str, Any] = {}
    for snippet in SNIPPETS:
        code = compile(
            snippet.replace(DEFAULT, cluster.bootstrap), PAGE.name, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
        )
        result = eval(code, names)
        if inspect.isawaitable(result):
            await result
