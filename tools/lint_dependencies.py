"""Refuses dependencies that are declared and never imported: each is code that nobody here reviews, for nothing.

What `pip install tidelog` brings must be imported by the package; what the extra `dev` brings by anything here, or be
a command of the Makefile or a setting of a tool in pyproject.toml.

    python -m tools.lint_dependencies
"""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterable, Iterator
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parent.parent
PACKAGE: Final = ("pyspark_tidelog", "tidelog")
EVERYTHING: Final = (*PACKAGE, "bench", "examples", "tests", "tools")
COMMANDS: Final = ("Makefile", ".pre-commit-config.yaml", "changes/README.md", "docs/hacking.md")
PLUGINS: Final = ("pytest-",)
"""pytest imports its plug-ins by itself."""


def imported_modules(source: str) -> Iterator[str]:
    """Yields the top-level names of a module's imports, and packages whose files it opens by `metadata.distribution`.

    Raises `SyntaxError`.
    """
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.partition(".")[0]
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("metadata.distribution"):
            yield from (str(argument.value) for argument in node.args if isinstance(argument, ast.Constant))


def distribution(requirement: str) -> str:
    """Returns the normalised name of what a requirement asks for."""
    match = re.match(r"[A-Za-z0-9._-]+", requirement)
    assert match is not None
    return re.sub(r"[-_.]+", "-", match[0]).lower()


def unused(requirements: Iterable[str], modules: Iterable[str], commands: str = "") -> list[str]:
    """Returns the distributions of which no module is imported, and which `commands` do not name."""
    providers = packages_distributions()
    imported = {distribution(name) for module in modules for name in providers.get(module, ())}
    names = sorted({distribution(requirement) for requirement in requirements} - imported)
    return [name for name in names if not re.search(rf"\b{re.escape(name)}\b", commands)]


def _modules(folders: Iterable[str]) -> set[str]:
    files = (file for folder in folders for file in (ROOT / folder).rglob("*.py"))
    return {name for file in files for name in imported_modules(file.read_text())}


def main() -> int:
    """Prints the dependencies that nothing uses; the exit status is 1 if there are any."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    shipped = [*project["dependencies"], *extras["security"], *extras["spark"]]
    commands = "\n".join((ROOT / name).read_text() for name in COMMANDS).replace("lint-imports", "import-linter")
    dev = [requirement for requirement in extras["dev"] if not requirement.startswith(PLUGINS)]
    names = [*unused(shipped, _modules(PACKAGE)), *unused(dev, _modules(EVERYTHING), commands)]
    for name in names:
        print(f"pyproject.toml: {name} is declared, and nothing imports it; use it or leave it out")
    print(f"dependencies: {len(shipped) + len(dev)} declared, {len(names)} unused")
    return 1 if names else 0


if __name__ == "__main__":
    sys.exit(main())
