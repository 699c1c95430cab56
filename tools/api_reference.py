"""Prints the page of the Python API, `docs/python-api.md`, from its docstrings: `python -m tools.api_reference`.

What users import is in the `__all__` of these packages. Signatures are those of the source, as `ast` has them.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import textwrap
from collections.abc import Iterator
from itertools import pairwise
from typing import Any, Final, NamedTuple

PACKAGES: Final = ("producer", "consumer", "admin", "log", "testing")
HEAD: Final = """\
# The Python API

Generated from docstrings by `make docs`; do not edit. [The Python client](python-client.md) has the same in
sentences and examples, and [errors](errors.md) has what is raised. Methods that are `async` are awaited.
"""
WIDTH: Final = 110
SEPARATOR: Final = ",\n    "
HIDDEN: Final = {"overload", "setter"}


class Field(NamedTuple):
    """An attribute or a property of a class."""

    name: str
    kind: str
    text: str


def page() -> str:
    """Returns the page's text."""
    return "\n".join([HEAD, *(line for name in PACKAGES for line in _package(f"tidelog.{name}"))])


def _package(name: str) -> Iterator[str]:
    module = importlib.import_module(name)
    yield f"## {name}\n"
    yield _text(module.__doc__)
    for exported in module.__all__:
        yield from _exported(exported, getattr(module, exported))


def _exported(name: str, value: Any) -> Iterator[str]:
    yield f"### {name}\n"
    if not inspect.isclass(value):
        yield f"`{value}`\n"
        return
    yield _text(value.__doc__)
    # What all errors have is on their own page.
    kinds = [value] if issubclass(value, Exception) else value.__mro__[::-1]
    functions = {node.name: node for kind in kinds for node in _functions(kind)}
    if "__init__" in functions:
        yield _signature(name, functions.pop("__init__"))
    fields = list({field.name: field for kind in kinds for field in _fields(kind)}.values())
    if fields:
        yield "| attribute | type | meaning |\n|---|---|---|"
        yield "\n".join(f"| `{field.name}` | {_code(field.kind)} | {field.text} |" for field in fields) + "\n"
    for function in functions.values():
        yield f"#### {name}.{function.name}\n"
        yield _signature(function.name, function)
        yield _text(ast.get_docstring(function))


def _body(kind: type) -> list[ast.stmt]:
    """Returns the statements of a class of ours; those of others have a reference of their own."""
    if not kind.__module__.startswith("tidelog."):
        return []
    (definition,) = ast.parse(textwrap.dedent(inspect.getsource(kind))).body
    assert isinstance(definition, ast.ClassDef)
    return definition.body


def _functions(kind: type) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in _body(kind):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            decorators = {ast.unparse(decorator).rpartition(".")[2] for decorator in node.decorator_list}
            is_public = not node.name.startswith("_") or node.name == "__init__"
            if is_public and not decorators & {*HIDDEN, "property"}:
                yield node


def _fields(kind: type) -> Iterator[Field]:
    body = _body(kind)
    for node, after in pairwise([*body, ast.Pass()]):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and not node.target.id.startswith("_"):
            yield Field(node.target.id, ast.unparse(node.annotation), _after(after))
        if isinstance(node, ast.FunctionDef) and "property" in {ast.unparse(name) for name in node.decorator_list}:
            returns = ast.unparse(node.returns) if node.returns is not None else ""
            if not node.name.startswith("_"):
                yield Field(node.name, returns, " ".join((ast.get_docstring(node) or "").split()))
        if isinstance(node, ast.FunctionDef) and node.name == "__init__":
            yield from _own_fields(node)


def _own_fields(init: ast.FunctionDef) -> Iterator[Field]:
    """Yields the public attributes that `__init__` sets and explains."""
    for node, after in pairwise(init.body):
        target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
        if isinstance(target, ast.Attribute) and not target.attr.startswith("_") and _after(after):
            kind = ast.unparse(node.annotation) if isinstance(node, ast.AnnAssign) else ""
            yield Field(target.attr, kind, _after(after))


def _after(node: ast.stmt) -> str:
    match node:
        case ast.Expr(value=ast.Constant(value=str(text))):
            return " ".join(text.split()).replace("|", "\\|")
    return ""


def _signature(name: str, function: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    arguments = function.args
    for group in (arguments.posonlyargs, arguments.args):
        group[:] = [argument for argument in group if argument.arg not in ("self", "cls")]
    words = "async " if isinstance(function, ast.AsyncFunctionDef) else ""
    returns = f" -> {ast.unparse(function.returns)}" if function.returns and function.name != "__init__" else ""
    line = f"{words}{name}({ast.unparse(arguments)}){returns}"
    if len(line) > WIDTH:
        line = f"{words}{name}(\n    {SEPARATOR.join(_parameters(ast.unparse(arguments)))},\n){returns}"
    return f"```\n{line}\n```\n"


def _parameters(text: str) -> Iterator[str]:
    """Yields the parameters of a signature: what commas part outside of brackets."""
    depth, begin = 0, 0
    for index, letter in enumerate(text):
        depth += (letter in "([{") - (letter in ")]}")
        if letter == "," and depth == 0:
            yield text[begin:index].strip()
            begin = index + 1
    yield text[begin:].strip()


def _text(docstring: str | None) -> str:
    """Returns a docstring as Markdown; its code, which is indented, stays so."""
    lines = inspect.cleandoc(docstring or "").splitlines()
    return "\n".join(lines) + "\n"


def _code(kind: str) -> str:
    return f"`{kind}`".replace("|", "\\|") if kind else ""


if __name__ == "__main__":
    print(page(), end="")
