"""A terminal notices what a page says and its blocks do not do; and no block is forgotten."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.pages.blocks import Use, blocks
from tests.pages.terminal import PageFailed, Terminal, can_be_apart, shape

PAGE = """\
<!-- shell: touch ready -->

```bash
ls
```

```text
ready
```

```toml title="broker.toml"
node.id = 1
```

<!-- not run: it asks for a password -->
```bash
passwd
```

```
tidelog COMMAND
```

<!-- fails -->
```bash
false
```
"""


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    (tmp_path / "reader").mkdir()
    (tmp_path / "notes").mkdir()
    terminal = Terminal(tmp_path / "reader", tmp_path / "notes")
    yield terminal
    terminal.close()


def test_each_block_has_its_use(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(PAGE)
    found = list(blocks(page))
    uses = [Use.SHELL, Use.SHELL, Use.COMPARED, Use.SAVED, Use.NOT_RUN, Use.LOOKED_AT, Use.SHELL]
    assert [block.use for block in found] == uses
    assert [block.is_shown for block in found] == [False, *[True] * 6]
    assert (found[3].title, found[4].reason, found[6].fails) == ("broker.toml", "it asks for a password", True)


@pytest.mark.parametrize(
    "text", ["```toml\na = 1\n```\n", "<!-- not run -->\n```bash\n```\n", "<!-- fails -->\n", "<!-- fails -->\n" * 2]
)
def test_a_block_without_a_use_is_an_error(tmp_path: Path, text: str) -> None:
    page = tmp_path / "page.md"
    page.write_text(text)
    with pytest.raises(ValueError, match=r"^page\.md"):
        list(blocks(page))


def test_the_shape_of_a_line_is_its_words() -> None:
    assert shape("flights: 1,024 records, 0.0 MB in  0.02 s") == shape("flights: 3 records, 10 MB in 1 s")
    assert shape("member bdceab7f0750e4e6461d1f7dd047fe7c  -") == shape("member ee8a05f9cc649c8822a2d9cf6053aa31 -")
    assert shape("3 replicas") != shape("3 replica")


def test_a_shell_is_one_for_all_blocks(terminal: Terminal) -> None:
    terminal.type("PLACE=$PWD; mkdir there; cd there\n")
    terminal.type('test "$PWD" = "$PLACE/there"\necho $((40 + 2)) records\n')
    terminal.compare("17 records\n")
    with pytest.raises(PageFailed, match="not printed:\n17 batches"):
        terminal.compare("17 batches\n", within_s=0.2)


def test_a_failure_is_noticed(terminal: Terminal) -> None:
    terminal.type("false\n", fails=True)
    with pytest.raises(PageFailed, match="ended with 0"):
        terminal.type("true\n", fails=True)
    with pytest.raises(PageFailed, match="no such record"):
        terminal.type("echo no such record; false\ntrue\n")


def test_what_python_complains_about_is_noticed(terminal: Terminal) -> None:
    terminal.type_python("import asyncio\nawait asyncio.sleep(0, 41) + 1\n")
    terminal.compare("42\n")
    with pytest.raises(PageFailed, match="NameError"):
        terminal.type_python("nothing\n")


@pytest.mark.skipif(not can_be_apart(), reason="this machine refuses namespaces to users")
def test_a_terminal_has_its_own_ports_and_processes(terminal: Terminal) -> None:
    terminal.type("python3 -m http.server 8082 --bind 127.0.0.1 2> log &\nps ax | wc -l\n")
    terminal.type("for i in 1 2 3 4 5; do curl -s http://127.0.0.1:8082/ && break; sleep 1; done\n")
