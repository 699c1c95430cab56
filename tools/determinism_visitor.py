"""Finds nondeterminism in one module's syntax tree.

What a name means is judged by how it is imported, annotated and assigned in the same file; no types are inferred. So
the check is fast and never crashes on unfinished code, at the price of missing what travels far, which the simulator's
replay check catches.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from tools import determinism_policy as policy

Function = ast.FunctionDef | ast.AsyncFunctionDef


class Finding(NamedTuple):
    """A line of a module that could make two runs differ, and what to do instead."""

    line: int
    message: str


def findings_in(tree: ast.Module) -> list[Finding]:
    """All findings of a module, by line."""
    visitor = _Visitor(tree)
    visitor.visit(tree)
    return sorted({*visitor.findings, *_module_state(tree)})


class _Visitor(ast.NodeVisitor):
    """Follows imports, uses and iterations, with a stack of the names known to hold sets."""

    def __init__(self, tree: ast.Module) -> None:
        self.findings: list[Finding] = []
        self._imported: dict[str, str] = {}
        self._sets: list[set[str]] = [_set_names(_outside_functions(tree.body))]
        self._order_blind: list[ast.expr] = []

    def _report(self, node: ast.stmt | ast.expr, message: str) -> None:
        self.findings.append(Finding(node.lineno, message))

    # -- imports and uses ----------------------------------------------------------------------------------------

    def visit_If(self, node: ast.If) -> None:
        if _dotted(node.test).rpartition(".")[2] != "TYPE_CHECKING":
            self.generic_visit(node)

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            self._imported[alias.asname or alias.name.partition(".")[0]] = (
                alias.name if alias.asname else alias.name.partition(".")[0]
            )
            self._check_import(node, alias.name)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        for alias in node.names:
            name = f"{node.module}.{alias.name}"
            self._imported[alias.asname or alias.name] = name
            if node.level == 0:
                self._check_import(node, name)

    def _check_import(self, node: ast.stmt, name: str) -> None:
        instead = policy.MODULES.get(name.partition(".")[0])
        if instead and name not in policy.HARMLESS and name not in policy.HARMLESS_PARENTS:
            self._report(node, f"imports {name}: {instead}")

    def visit_Name(self, node: ast.Name) -> None:
        self._check_use(node)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        self._check_use(node)
        self.visit(node.value)

    def _check_use(self, node: ast.Name | ast.Attribute) -> None:
        name = self._resolve(node)
        instead = policy.NAMES.get(name)
        if isinstance(node, ast.Attribute) and self._resolve(node.value) in policy.HARMLESS_PARENTS:
            instead = None if name in policy.HARMLESS else policy.MODULES[name.partition(".")[0]]
        if instead and isinstance(node.ctx, ast.Load):
            self._report(node, f"uses {name}: {instead}")

    def _resolve(self, node: ast.expr) -> str:
        """The full dotted name that an expression stands for, as far as the imports tell; "" if it is none."""
        head, dot, rest = _dotted(node).partition(".")
        return f"{self._imported.get(head, head)}{dot}{rest}"

    def visit_Expr(self, node: ast.Expr) -> None:
        match node.value:
            case ast.Await(value=ast.Call(func=function) as call) if self._resolve(function) == "asyncio.wait":
                self._visit_arguments(call)  # waiting is fine; what is not is its result, which is thrown away here
            case _:
                self.generic_visit(node)

    def _visit_arguments(self, node: ast.Call) -> None:
        for argument in (*node.args, *node.keywords):
            self.visit(argument)

    def visit_Call(self, node: ast.Call) -> None:
        function = self._resolve(node.func)
        if function in policy.ORDER_BLIND or (function in policy.ORDER_KEEPING and node in self._order_blind):
            self._order_blind += node.args
        elif function in policy.ORDER_KEEPING:
            for argument in node.args:
                self._check_order(argument)
        elif function == "random.Random" and not node.args:
            self._report(node, policy.SEEDLESS)
        if isinstance(node.func, ast.Attribute):
            self._check_method(node, node.func)
        self.generic_visit(node)

    def _check_method(self, node: ast.Call, method: ast.Attribute) -> None:
        if instead := policy.METHODS.get(method.attr):
            self._report(node, f"uses {method.attr}: {instead}")
        if method.attr == "pop" and not node.args:
            self._check_order(method.value)
        if method.attr == "join":
            for argument in node.args:
                self._check_order(argument)

    def visit_Global(self, node: ast.Global) -> None:
        self._report(node, policy.GLOBAL)

    # -- the order of sets ---------------------------------------------------------------------------------------

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        attributes = {name for name in _set_names(ast.walk(node)) if name.startswith("self.")}
        self._sets.append(attributes | {f"self.{name}" for name in _set_names(node.body)})
        self.generic_visit(node)
        self._sets.pop()

    def visit_FunctionDef(self, node: Function) -> None:
        arguments = (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)
        parameters = {argument.arg for argument in arguments if _is_set_type(argument.annotation)}
        self._sets.append(parameters | _set_names(ast.walk(node)))
        self.generic_visit(node)
        self._sets.pop()

    visit_AsyncFunctionDef = visit_FunctionDef

    def _check_order(self, node: ast.expr) -> None:
        if _is_set(node, self._sets):
            self._report(node, policy.SET_ORDER)

    def visit_For(self, node: ast.For | ast.AsyncFor) -> None:
        self._check_order(node.iter)
        self.generic_visit(node)

    def visit_ListComp(self, node: ast.ListComp | ast.DictComp | ast.GeneratorExp) -> None:
        if node not in self._order_blind:
            for generator in node.generators:
                self._check_order(generator.iter)
        self.generic_visit(node)

    visit_DictComp = visit_GeneratorExp = visit_ListComp

    def visit_Starred(self, node: ast.Starred) -> None:
        self._check_order(node.value)
        self.generic_visit(node)

    def visit_Set(self, node: ast.Set) -> None:
        for element in node.elts:  # {*a, *b} is a set again: no order comes out of it
            self.visit(element.value if isinstance(element, ast.Starred) else element)


# -- what is a set ----------------------------------------------------------------------------------------------------


def _is_set(node: ast.expr, set_names: Iterable[set[str]] = ()) -> bool:
    match node:
        case ast.Set() | ast.SetComp() | ast.Call(func=ast.Name(id="set" | "frozenset")):
            return True
        case ast.Call(func=ast.Attribute(value=value, attr=method)) if method in policy.SET_METHODS:
            return _is_set(value, set_names)
        case ast.BinOp(left=left, op=ast.BitAnd() | ast.BitOr() | ast.Sub() | ast.BitXor(), right=right):
            return _is_set(left, set_names) or _is_set(right, set_names)
        case ast.Name() | ast.Attribute():
            return any(_dotted(node) in names for names in set_names)
    return False


def _is_set_type(annotation: ast.expr | None) -> bool:
    if isinstance(annotation, ast.Subscript):
        annotation = annotation.value
    return annotation is not None and _dotted(annotation).rpartition(".")[2] in policy.SET_TYPES


def _set_names(nodes: Iterable[ast.AST]) -> set[str]:
    """Names (`x`, `self.x`) that are annotated as sets, or assigned sets and nothing else."""
    sets: set[str] = set()
    others: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.AnnAssign) and _is_set_type(node.annotation):
            sets.add(_dotted(node.target))
        elif isinstance(node, ast.Assign):
            (sets if _is_set(node.value) else others).update(map(_dotted, node.targets))
    return sets - others - {""}


# -- state of a module ------------------------------------------------------------------------------------------------


def _module_state(tree: ast.Module) -> Iterator[Finding]:
    mutated = _mutated_names(tree)
    for statement in _outside_functions(tree.body):
        if isinstance(statement, ast.Assign | ast.AnnAssign) and statement.value is not None:
            targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
            for name in map(_dotted, targets):
                constant = name.isupper() and name not in mutated and _is_complete(statement.value)
                if _is_mutable(statement.value) and not constant and not name.startswith("__"):
                    yield Finding(statement.lineno, f"{name} {policy.STATE}")


def _is_mutable(value: ast.expr) -> bool:
    if isinstance(value, ast.Call):
        return _dotted(value.func).rpartition(".")[2] in policy.CONTAINERS | policy.BUILDERS
    return isinstance(value, ast.Dict | ast.List | ast.Set | ast.DictComp | ast.ListComp | ast.SetComp)


def _is_complete(value: ast.expr) -> bool:
    """False for a container that is empty, or made to be filled later."""
    match value:
        case ast.Call(func=function, args=args, keywords=keywords):
            return _dotted(function) in policy.BUILDERS and bool(args or keywords)
        case ast.Dict(values=items) | ast.List(elts=items):
            return bool(items)
    return True


def _mutated_names(tree: ast.Module) -> set[str]:
    """Names whose contents something in the module changes."""
    names: set[str] = set()
    for node in ast.walk(tree):
        match node:
            case ast.Subscript(value=value, ctx=ast.Store() | ast.Del()) | ast.AugAssign(target=value):
                names.add(_dotted(value))
            case ast.Call(func=ast.Attribute(value=value, attr=method)) if method in policy.MUTATORS:
                names.add(_dotted(value))
    return names


def _outside_functions(body: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """The statements that run when a module is imported, also those inside `if` and `try`; not those of classes."""
    for node in body:
        if isinstance(node, ast.stmt | ast.ExceptHandler | ast.match_case) and not isinstance(
            node, Function | ast.ClassDef
        ):
            yield node
            yield from _outside_functions(ast.iter_child_nodes(node))


def _dotted(node: ast.expr) -> str:
    """`a.b.c` for names and attributes of names; "" for any other expression."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and (prefix := _dotted(node.value)):
        return f"{prefix}.{node.attr}"
    return ""
