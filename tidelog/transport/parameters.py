"""Keyword parameters of the clients: Kafka's names, old aliases, and a helpful error for unknown names.

A constructor's signature has Kafka's names only, for readers, editors and type checkers. `client_parameters` wraps it:
an alias is replaced by the parameter's name, and the error for an unknown name suggests the closest one. The parameters
for TLS and authentication, common to all clients, are defined once (`security.py`): constructors take them as
`**security`.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from difflib import get_close_matches
from typing import Any, Concatenate, Final, ParamSpec, TypeVar

from tidelog.transport.security import ALIASES, Security

P = ParamSpec("P")
Client = TypeVar("Client")
NEAR: Final = 0.5
"""Minimum similarity of a suggested parameter name, from 0 to 1 for equal names (`difflib`)."""


def client_parameters(
    **aliases: str,
) -> Callable[[Callable[Concatenate[Client, P], None]], Callable[Concatenate[Client, P], None]]:
    """Decorates the `__init__` of a client so that it accepts old names: each keyword is an alias, its value the
    parameter's name.

    A call with both names, or with an unknown parameter, raises `TypeError`.
    """

    def decorate(init: Callable[Concatenate[Client, P], None]) -> Callable[Concatenate[Client, P], None]:
        signature = _spelled_out(inspect.signature(init))
        parameters = list(signature.parameters.values())[1:]
        names = [parameter.name for parameter in parameters if parameter.kind is not parameter.VAR_POSITIONAL]
        all_aliases = {**ALIASES, **aliases}

        @functools.wraps(init)
        def wrapped(client: Client, /, *args: P.args, **kwargs: P.kwargs) -> None:
            if not names_known.issuperset(kwargs):
                _rename(type(client).__name__, kwargs, names, all_aliases)
            init(client, *args, **kwargs)

        names_known = frozenset(names)
        wrapped.__signature__ = signature  # type: ignore[attr-defined]  # where `inspect` and `help` look
        return wrapped

    return decorate


def _spelled_out(signature: inspect.Signature) -> inspect.Signature:
    """Returns the signature with `**security` replaced by the security parameters."""
    parameters = dict(signature.parameters)
    if parameters.pop("security", None) is None:
        return signature
    secure = [
        parameter.replace(kind=parameter.KEYWORD_ONLY) for parameter in inspect.signature(Security).parameters.values()
    ]
    return signature.replace(parameters=[*parameters.values(), *secure])


def _rename(client: str, arguments: dict[str, Any], names: list[str], aliases: dict[str, str]) -> None:
    for name in [name for name in arguments if name not in names]:
        if name not in aliases:
            raise TypeError(f"{client} has no parameter {name!r}; {_nearest(name, names)}")
        if aliases[name] in arguments:
            raise TypeError(f"{client}: {name} is an alias of {aliases[name]}; give one of them")
        arguments[aliases[name]] = arguments.pop(name)


def _nearest(name: str, names: Iterable[str]) -> str:
    """Returns a hint for an unknown parameter: the one whose words are most similar, in any order, or else all
    parameters."""
    by_words = {_words(parameter): parameter for parameter in names}
    near = get_close_matches(_words(name), by_words, n=1, cutoff=NEAR)
    return f"did you mean {by_words[near[0]]!r}?" if near else f"there are {', '.join(sorted(by_words.values()))}"


def _words(name: str) -> str:
    return " ".join(sorted(name.lower().replace(".", "_").split("_")))
