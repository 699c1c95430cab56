"""The drawing of a recorded terminal: an SVG file, of which each line appears when it did.

Rich draws the window and the text. What is added is a style sheet that keeps each line hidden until its time: Rich
names the line in the `clip-path` of each piece of text, so a selector finds it. The animation runs once, and leaves the
whole recording. Who has asked for less motion, or whose program animates nothing, sees that at once.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from html import escape
from io import StringIO
from typing import Final

from rich.console import Console
from rich.text import Text

from tools.pictures.recording import Line

PAUSE_S_MAX: Final = 1.5
"""Longer waits are cut."""
READING_S: Final = 1.0
"""The least time between what was printed and the next command."""
TYPED: Final = re.compile(r"^\$ .+$", re.MULTILINE)
REMARK: Final = re.compile(r"^\$ # .+$", re.MULTILINE)
LINE_END: Final = re.compile(r"<text [^>]*>\n</text>")
FORMAT: Final = """\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" aria-labelledby="t">
<title id="t">%(title)s</title>
<style>
.{unique_id}-matrix {{ font: {char_height}px ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace; }}
.{unique_id}-title {{ font: bold 18px system-ui, sans-serif; }}
{styles}
@keyframes appear {{ from {{ opacity: 0; }} }}
.{unique_id}-matrix text {{ white-space: pre; animation: appear 1ms backwards; }}
%(delays)s
@media (prefers-reduced-motion: reduce) {{ .{unique_id}-matrix text {{ animation: none; }} }}
</style>
<defs>
<clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}"/>
</clipPath>
{lines}
</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix" xml:space="preserve">
{matrix}
</g>
</g>
</svg>
"""


def draw(name: str, title: str, lines: Sequence[Line], columns: int) -> str:
    """Returns the SVG file of a recording; `name` tells its parts from those of other pictures on the same page."""
    console = Console(record=True, width=columns, file=StringIO(), force_terminal=True, color_system="truecolor")
    delays: list[str] = []
    for line, at_s in zip(lines, shown_at_s(lines), strict=True):
        for row in _rows(_styled(line.text), columns):
            place = f'.{name}-matrix [clip-path="url(#{name}-line-{len(delays)})"]'
            delays.append(f"{place} {{{{ animation-delay: {at_s:.2f}s; }}}}")
            console.print(row, no_wrap=True, highlight=False)
    console.print()  # Rich clips all lines but the last
    code_format = FORMAT % {"title": escape(title), "delays": "\n".join(delays)}
    drawn = console.export_svg(title=title, code_format=code_format, unique_id=name)
    return LINE_END.sub("", drawn).replace("&#160;", " ")  # what is copied from the picture can be run


def shown_at_s(lines: Sequence[Line]) -> Iterator[float]:
    """Yields when each line is shown: as it was recorded, but that waits are short, and that there is time to read."""
    shown_s, before_s = 0.0, lines[0].at_s if lines else 0.0
    for number, line in enumerate(lines):
        is_typed = TYPED.match(_styled(line.text).plain) is not None
        waited_s = min(line.at_s - before_s, PAUSE_S_MAX)
        shown_s += max(waited_s, READING_S if is_typed and number else 0.0)
        before_s = line.at_s
        yield shown_s


def _styled(text: str) -> Text:
    """Returns a line as it looks; what was typed stands out, and remarks do from commands."""
    styled = Text.from_ansi(text)
    styled.highlight_regex(TYPED, "bold")
    styled.highlight_regex(REMARK, "italic cyan")
    return styled


def _rows(text: Text, columns: int) -> list[Text]:
    """Returns the rows of the screen that a line takes."""
    return list(text.divide(range(columns, len(text), columns)))
