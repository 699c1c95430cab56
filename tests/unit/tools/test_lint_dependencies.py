"""The lint of dependencies finds what is declared and never used, and nothing else."""

from __future__ import annotations

from tools.lint_dependencies import distribution, imported_modules, unused


def test_what_a_module_imports() -> None:
    source = "\n".join(
        [
            "import a.b, c",
            "from d.e import f",
            "from . import g",
            "def h():\n    import i",
            "metadata.distribution('j')",
        ]
    )
    assert sorted(imported_modules(source)) == ["a", "c", "d", "i", "j"]


def test_a_requirement_is_known_by_its_normalised_name() -> None:
    assert [distribution(it) for it in ("Google_RE2>=1.1", "uvloop", "ruff>=0.17,<1", "x[y]>1")] == [
        "google-re2",
        "uvloop",
        "ruff",
        "x",
    ]


def test_what_is_declared_and_not_imported_is_found() -> None:
    requirements = ["aiofiles>=1", "google-re2", "ruff>=0.17"]
    assert unused(requirements, ["aiofiles", "re2"]) == ["ruff"]
    assert unused(requirements, ["re2", "os"], "$(BIN)/ruff check") == ["aiofiles"]
