"""Refuses regular expressions that some promised Python has wrong.

CPython 3.11.0 to 3.11.4, which Debian 12 has among them, matches possessive quantifiers (`a*+`, `a++`, `a?+`, `a{2}+`)
and atomic groups (`(?>...)`) wrongly when one stands within another: they take too little, or what is not theirs.

    python -m tools.lint_regexes

Patterns are built from pieces, so every string of a module that imports `re` is read as one, except docstrings.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parent.parent
FOLDERS: Final = ("bench", "examples", "pyspark_tidelog", "tests", "tidelog", "tools")
ESCAPE_OR_CLASS: Final = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]", re.DOTALL)
REFUSED: Final = re.compile(r"[*+?}]\+|\(\?>")


def is_refused(pattern: str) -> bool:
    """Returns whether the pattern has a possessive quantifier or an atomic group."""
    return REFUSED.search(ESCAPE_OR_CLASS.sub("_", pattern)) is not None


def refused_lines(source: str) -> Iterator[int]:
    """Yields the lines of a module's refused patterns. Raises `SyntaxError`."""
    nodes = list(ast.walk(ast.parse(source)))
    if not any(isinstance(node, ast.Import) and any(alias.name == "re" for alias in node.names) for node in nodes):
        return
    texts = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}  # docstrings, and strings nobody uses
    for node in nodes:
        if not isinstance(node, ast.Constant) or id(node) in texts:
            continue
        value = node.value.decode("latin-1") if isinstance(node.value, bytes) else node.value
        if isinstance(value, str) and is_refused(value):
            yield node.lineno


def main() -> int:
    """Prints the refused patterns of the whole tree, one a line; the exit status is 1 if there are any."""
    files = sorted(file for folder in FOLDERS for file in (ROOT / folder).rglob("*.py"))
    findings = [(file.relative_to(ROOT), line) for file in files for line in refused_lines(file.read_text())]
    for path, line in findings:
        print(f"{path}:{line}: a possessive quantifier or atomic group: Python 3.11.0 to 3.11.4 matches them wrongly")
    print(f"regexes: {len(files)} files, {len(findings)} findings")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
