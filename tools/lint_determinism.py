"""Keeps nondeterminism out of tidelog, except where it is let in on purpose.

The simulator replays a whole cluster from one number. That holds only if no code asks the machine for a time, a random
number, a file or a thread behind its back, if nothing depends on the order of a set, and if two brokers in one process
share no state. `determinism_policy` lists what is forbidden, and in which files it is not.

    python -m tools.lint_determinism

A line that must be an exception says so with `# determinism: <reason>`; an exception without a reason, or without
anything to except, is a finding of its own.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tools.determinism_policy import ADAPTERS
from tools.determinism_visitor import Finding, findings_in

ROOT: Final = Path(__file__).parent.parent
EXCEPTION: Final = re.compile(r"#\s*determinism:\s*(.*)")


def lint_source(source: str) -> list[Finding]:
    """The findings of one module, less its exceptions with a reason. Raises `SyntaxError`."""
    return sorted(_judge(findings_in(ast.parse(source)), dict(_exceptions(source))))


def _exceptions(source: str) -> Iterator[tuple[int, str]]:
    """Lines that carry an exception, with its reason."""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT and (match := EXCEPTION.match(token.string)):
            yield token.start[0], match[1].strip()


def _judge(findings: list[Finding], exceptions: dict[int, str]) -> Iterator[Finding]:
    excepted = {finding.line for finding in findings}
    for finding in findings:
        if finding.line not in exceptions:
            yield finding
    for line, reason in exceptions.items():
        if not reason:
            yield Finding(line, "is an exception without a reason: write `# determinism: <reason>`")
        elif line not in excepted:
            yield Finding(line, "is an exception from nothing: remove the comment")


def checked_files(root: Path) -> list[Path]:
    """The modules of the package that are not adapters, in order."""
    files = sorted((root / "tidelog").rglob("*.py"))
    return [file for file in files if not file.relative_to(root).as_posix().startswith(ADAPTERS)]


def main() -> int:
    """Prints the findings of the whole package, one a line; the exit status is 1 if there are any."""
    files = checked_files(ROOT)
    findings = [(file.relative_to(ROOT), finding) for file in files for finding in lint_source(file.read_text())]
    for path, finding in findings:
        print(f"{path}:{finding.line}: {finding.message}")
    print(f"determinism: {len(files)} files, {len(findings)} findings")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
