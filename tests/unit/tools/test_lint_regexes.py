"""The lint of regular expressions finds what the oldest Python has wrong, and nothing else."""

from __future__ import annotations

import pytest

from tools.lint_regexes import is_refused, refused_lines


@pytest.mark.parametrize("pattern", ["a" + end for end in ("*+", "++b", "?+", "{2,3}+", "|(?>b)", "[x]++")])
def test_possessive_quantifiers_and_atomic_groups_are_refused(pattern: str) -> None:
    assert is_refused(pattern)


@pytest.mark.parametrize("pattern", [r"a\++", r"[*+?}]+", "[]*+]", r"(?P<n>a+)+", "a*?", r"\\+", "(?=a)", "(?<=a+)b"])
def test_others_are_not(pattern: str) -> None:
    assert not is_refused(pattern)


def test_every_piece_of_a_pattern_is_read() -> None:
    source = "\n".join(["'''C++'''", "import re", "A = rb'x*" + "+'", "B = re.compile(A + rb'[*+]')"])
    assert list(refused_lines(source)) == [3]


def test_modules_without_patterns_are_left_alone() -> None:
    assert list(refused_lines("LANGUAGE = 'C+" + "+'")) == []
