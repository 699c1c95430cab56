"""The fenced blocks of a page, and what its reader does with each.

| block | its reader |
|---|---|
| `bash` | types it in a terminal; all of a page are typed in the same one |
| `python` | types it at the prompt of `python -m asyncio`; all of a page at the same one |
| any language, with `title="count.py"` | saves it under that name |
| `text` | compares it with what the blocks before it printed |
| no language | looks at it: a form, a picture or a tree, nothing that runs |

A comment of HTML before a block changes that: `<!-- not run: reason -->`, `<!-- not compared: reason -->`, and
`<!-- fails -->` for commands that end with an error. `<!-- shell: commands -->` is typed and not shown: the reader of a
reference has a broker already.

    python -m tests.pages.blocks    prints how many blocks there are, by page, and why some are not run
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
PAGES: Final = [
    ROOT / "README.md",
    *sorted(page for page in (ROOT / "docs").rglob("*.md") if page.parent.name != "decisions"),
]
PIECE: Final = re.compile(
    r"^<!-- (?P<word>shell|not run|not compared|fails)(?:: (?P<said>.*?))? -->$"
    r"|^(?P<fence>```+)(?P<language>\w*)(?: title=\"(?P<title>[^\"]+)\")?\n(?P<text>.*?)^(?P=fence)$",
    re.MULTILINE | re.DOTALL,
)


class Use(Enum):
    """The ways in which the reader of a page uses a block."""

    SHELL = "typed in the shell"
    PROMPT = "typed in Python"
    SAVED = "saved as files"
    COMPARED = "compared"
    LOOKED_AT = "looked at"
    NOT_RUN = "not run"


@dataclass(frozen=True)
class Block:
    """A fenced block, or commands in a comment. `reason` says why it is not run; `fails` if its last command has to."""

    use: Use
    text: str
    line: int
    title: str = ""
    reason: str = ""
    fails: bool = False
    is_shown: bool = True


def blocks(page: Path) -> Iterator[Block]:
    """Yields the blocks of a page in its order. Raises `ValueError` for a block that says not what to do with it."""
    source = page.read_text()
    remark: re.Match[str] | None = None
    for piece in PIECE.finditer(source):
        line = source.count("\n", 0, piece.start()) + 1
        if piece["fence"] is not None:
            yield _fenced(piece, remark, f"{page.name}:{line}", line)
            remark = None
        elif piece["word"] == "shell":
            yield Block(Use.SHELL, piece["said"] + "\n", line, is_shown=False)
        elif remark is not None or not (piece["said"] or piece["word"] == "fails"):
            raise ValueError(f"{page.name}:{line}: a comment belongs to one block, and says why")
        else:
            remark = piece
    if remark is not None:
        raise ValueError(f"{page.name}: its last comment belongs to no block")


def _fenced(piece: re.Match[str], remark: re.Match[str] | None, place: str, line: int) -> Block:
    language, title, text = piece["language"], piece["title"] or "", piece["text"]
    if remark is not None and remark["word"].startswith("not"):
        return Block(Use.NOT_RUN, text, line, reason=remark["said"])
    if title:
        return Block(Use.SAVED, text, line, title=title)
    use = {"bash": Use.SHELL, "python": Use.PROMPT, "text": Use.COMPARED, "": Use.LOOKED_AT}.get(language)
    if use is None:
        raise ValueError(f"{place}: what is done with {language!r}? It has no title, nor a reason why it is not run")
    return Block(use, text, line, fails=remark is not None)


def main() -> None:
    """Prints a table of the blocks of each page, and the reasons of those that are not run."""
    total: Counter[Use] = Counter()
    print(f"{'page':40}", *(f"{use.value:>18}" for use in Use))
    for page in PAGES:
        counts = Counter(block.use for block in blocks(page))
        total += counts
        if counts:
            print(f"{page.relative_to(ROOT)!s:40}", *(f"{counts[use]:18}" for use in Use))
    print(f"{'all':40}", *(f"{total[use]:18}" for use in Use))
    for page in PAGES:
        for block in blocks(page):
            if block.reason:
                print(f"{page.relative_to(ROOT)}:{block.line} is not run: {block.reason}")


if __name__ == "__main__":
    main()
