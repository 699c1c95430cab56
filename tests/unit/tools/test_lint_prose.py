"""Fragments are told from sentences, and their number may not rise."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.lint_prose import docstrings, fragments, verdict


@pytest.mark.parametrize(
    ("text", "is_fragment"),
    [
        ("Of one broker.", True),
        ("What is asked for.", True),
        ("Who leads.", True),
        ("One broker's.", True),
        ("Those that wait.", True),
        ("The leader of a partition.", False),
        ("Returns what is asked for.", False),
        ("Offsets of a batch.", False),
        ("Onehot codes.", False),
    ],
)
def test_a_fragment_begins_with_a_word_in_place_of_its_subject(text: str, is_fragment: bool) -> None:
    (docstring,) = docstrings(f'def f():\n    """{text}"""\n')
    assert docstring.is_fragment == is_fragment


def test_docstrings_of_modules_classes_functions_and_attributes_count() -> None:
    source = (
        '"""M."""\nclass C:\n    """C."""\n    a: int\n    """A."""\n    def f(self):\n        """F."""\nX = "none"\n'
    )
    assert sorted(text for _, text in docstrings(source)) == ["A.", "C.", "F.", "M."]


def test_fragments_are_told_with_their_file_and_line(tmp_path: Path) -> None:
    (tmp_path / "m.py").write_text('"""Modules are read."""\n\n\ndef f():\n    """Of none."""\n')
    assert [(file.name, found.line) for file, found in fragments(tmp_path)] == [("m.py", 5)]


def test_more_than_the_ceiling_is_refused() -> None:
    assert verdict(3, 3) is None
    assert verdict(4, 3) is not None
