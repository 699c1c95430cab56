"""Golden scripts: commands, `----`, what came of them. `pytest --rewrite` records anew; the diff is the review.

A command is a line; its output follows the dashes and ends with an empty line. Lines with `#` are prose.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

Handler = Callable[[str, list[str], dict[str, str]], list[str]]
"""Carries out a command with its words and its name=value pairs, and returns the lines that it answers."""


def play(script: str, handle: Handler) -> str:
    """The script, with what its commands answer now."""
    lines: list[str] = []
    is_answer = False
    for line in script.splitlines():
        is_answer = is_answer and bool(line)
        if is_answer:
            continue
        lines.append(line)
        if line and not line.startswith("#"):
            command, *rest = line.split()
            words = [word for word in rest if "=" not in word]
            pairs = dict(word.split("=", 1) for word in rest if "=" in word)
            lines += ["----", *(handle(command, words, pairs) or ["ok"])]
            is_answer = True
    return "\n".join(lines) + "\n"


def check(path: Path, handle: Handler, *, rewrite: bool) -> None:
    """Plays a script and compares, or records."""
    want = path.read_text()
    got = play(want, handle)
    if rewrite:
        path.write_text(got)
    assert got == want or rewrite, f"{path.name} answers differently; read the diff of `pytest --rewrite`:\n{got}"
