"""How a command's client connects: `--command-config` and `--command-property`, as Kafka's commands have them.

Every command with `--bootstrap` gets the two here, so that none lists them. What they say is kept in the context of the
call, where whoever makes a client finds it (`client_arguments`), beside who is calling, which the environment says.
"""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from pathlib import Path
from typing import Annotated, Any, Final, cast

import typer

from tidelog.cli.options import parse_settings
from tidelog.cli.terminal import UsageError
from tidelog.model.errors import InvalidRequest
from tidelog.transport.security import SecurityParameters, overridden, parse_security

COMMENTS: Final = ("#", "!")
LOGIN_VARIABLES: Final[Mapping[str, str]] = {
    "TIDELOG_TOKEN_FILE": "token_file",
    "TIDELOG_USERNAME": "sasl_username",
    "TIDELOG_PASSWORD_FILE": "sasl_password_file",
}
"""These variables say who is calling: the arguments of clients that they stand for."""

_Config = Annotated[
    str | None,
    typer.Option(
        "--command-config",
        metavar="FILE",
        envvar="TIDELOG_COMMAND_CONFIG",
        show_envvar=True,
        help="How to connect: lines of NAME=VALUE, such as ssl.ca.location=tls/ca.pem.",
        show_default=False,
    ),
]
_Properties = Annotated[
    list[str] | None,
    typer.Option("--command-property", metavar="NAME=VALUE", help="One such line. Repeatable.", show_default=False),
]
_OPTIONS: Final = (
    inspect.Parameter("command_config", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=_Config),
    inspect.Parameter("command_property", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=_Properties),
)
_CHOSEN: Final[ContextVar[SecurityParameters]] = ContextVar("security")


def with_security(app: typer.Typer) -> typer.Typer:
    """Gives the options to all commands of a word that ask a broker."""
    for command in app.registered_commands:
        assert command.callback is not None
        command.callback = secured(command.callback)
    for group in app.registered_groups:
        if group.typer_instance is not None:
            with_security(group.typer_instance)
    return app


def secured(command: Callable[..., Any]) -> Callable[..., Any]:
    """The command with the options, if it has a `--bootstrap`."""
    signature = inspect.signature(command, eval_str=True)
    if "bootstrap" not in signature.parameters or _OPTIONS[0].name in signature.parameters:
        return command

    @functools.wraps(command)
    def run(*args: Any, command_config: str | None, command_property: list[str] | None, **kwargs: Any) -> Any:
        token = _CHOSEN.set(_chosen(command_config, command_property))
        try:
            return command(*args, **kwargs)
        finally:
            _CHOSEN.reset(token)

    parameters = [*signature.parameters.values(), *_OPTIONS]
    run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]  # where typer looks
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    del run.__wrapped__  # where typer would look for the options
    return run


def client_arguments() -> SecurityParameters:
    """The arguments of a client's constructor that this command was given; who is calling says the environment, unless
    the command says it."""
    chosen = _CHOSEN.get(SecurityParameters())
    if not chosen.keys().isdisjoint(LOGIN_VARIABLES.values()):
        return chosen
    login = {argument: os.environ[name] for name, argument in LOGIN_VARIABLES.items() if os.environ.get(name)}
    return cast("SecurityParameters", {**chosen, **login})


def _chosen(file: str | None, properties: list[str] | None) -> SecurityParameters:
    given = {} if file is None else _from_file(file)
    try:
        return parse_security(overridden(given, parse_settings(properties, "--command-property")))
    except InvalidRequest as error:
        raise UsageError(error.message) from None


def _from_file(file: str) -> dict[str, str]:
    try:
        lines = [line.strip() for line in Path(file).read_text(encoding="utf-8").splitlines()]
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"--command-config: cannot read {file}: {getattr(error, 'strerror', None) or error}") from None
    words = [line for line in lines if line and not line.startswith(COMMENTS)]
    return {name: value.strip() for name, value in parse_settings(words, f"{file}:").items()}
