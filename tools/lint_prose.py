"""Keeps docstrings sentences: the number of fragments among them may only fall.

A fragment begins with a word that stands in for the subject ("Of one broker.", "What is asked for.", "Who leads."), so
that a reader has to open the code to learn what is meant. A sentence has a subject, a verb and a noun of the field:
"The leader of a partition." or "Returns the leader of a partition."

    python -m tools.lint_prose [--list PATH] [--lower]

The ceiling is in `tools/prose_ceiling.txt`; `make fmt` lowers it to what is there. `--list` shows the fragments of one
file or folder, which helps to find the new one.
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).parent.parent
CEILING: Final = ROOT / "tools" / "prose_ceiling.txt"
FRAGMENT: Final = re.compile(
    r"(As|By|Had|Its|Nobody|Of|One|Ours|Somebody|That|Those|What|Where|Which|Who|Whoever|Whose)\b(?!')"
)


class Docstring(NamedTuple):
    """A docstring, of a module, a class, a function or an attribute, and the line where it begins."""

    line: int
    text: str

    @property
    def is_fragment(self) -> bool:
        """True if it begins with a word in place of its subject."""
        return FRAGMENT.match(self.text) is not None


def docstrings(source: str) -> Iterator[Docstring]:
    """Yields the docstrings of a module, those after attributes among them. Raises `SyntaxError`."""
    for node in ast.walk(ast.parse(source)):
        body = getattr(node, "body", None)
        for statement in body if isinstance(body, list) else ():
            match statement:
                case ast.Expr(value=ast.Constant(value=str(text))):
                    yield Docstring(statement.lineno, text.strip())


def fragments(root: Path) -> Iterator[tuple[Path, Docstring]]:
    """Yields the fragments among the docstrings of a file, or of all modules below a folder."""
    for file in [root] if root.is_file() else sorted(root.rglob("*.py")):
        for docstring in docstrings(file.read_text()):
            if docstring.is_fragment:
                yield file, docstring


def verdict(count: int, ceiling: int) -> str | None:
    """Returns what to do if more fragments are found than the ceiling allows, else None."""
    if count <= ceiling:
        return None
    return (
        f"{count} docstrings begin as fragments, {ceiling} are allowed: begin the new ones with a subject and a verb "
        "(python -m tools.lint_prose --list PATH shows those of a file)"
    )


def main() -> int:
    """Prints the number of fragments; the exit status is 1 if it has risen."""
    parser = argparse.ArgumentParser(description="Count docstrings that begin as fragments.")
    parser.add_argument("--list", type=Path, metavar="PATH", help="show the fragments of a file or folder")
    parser.add_argument("--lower", action="store_true", help="lower the ceiling to what is there")
    options = parser.parse_args()
    if options.list is not None:
        for file, docstring in fragments(options.list):
            print(f"{file}:{docstring.line}: {docstring.text.splitlines()[0]}")
        return 0
    count, ceiling = sum(1 for _ in fragments(ROOT / "tidelog")), int(CEILING.read_text())
    if options.lower and count < ceiling:
        CEILING.write_text(f"{count}\n")
    fault = verdict(count, ceiling)
    print(f"prose: {fault or f'{count} fragments among docstrings, {ceiling} allowed'}")
    return 0 if fault is None else 1


if __name__ == "__main__":
    sys.exit(main())
