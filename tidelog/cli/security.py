"""The connection options of commands: `--command-config` and `--command-property`, as in Kafka's commands.

Every command with `--bootstrap` gets these two options here. Their values are kept in a context variable, from which
the creation of a client takes them (`client_arguments`), together with the credentials from the environment.
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

from tidelog.cli.options import option, parse_settings, with_options
from tidelog.cli.terminal import UsageError
from tidelog.model.errors import InvalidRequest
from tidelog.transport.security import SecurityParameters, overridden, parse_security

COMMENTS: Final = ("#", "!")
LOGIN_VARIABLES: Final[Mapping[str, str]] = {
    "TIDELOG_TOKEN_FILE": "token_file",
    "TIDELOG_USERNAME": "sasl_username",
    "TIDELOG_PASSWORD_FILE": "sasl_password_file",
}
"""The environment variables for credentials, and the client arguments that they set."""

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
    option("command_config", _Config, None),
    option("command_property", _Properties, None),
)
_CHOSEN: Final[ContextVar[SecurityParameters]] = ContextVar("security")


def with_security(app: typer.Typer) -> typer.Typer:
    """Adds the connection options to all commands of a group that connect to brokers."""
    for command in app.registered_commands:
        assert command.callback is not None
        command.callback = secured(command.callback)
    for group in app.registered_groups:
        if group.typer_instance is not None:
            with_security(group.typer_instance)
    return app


def secured(command: Callable[..., Any]) -> Callable[..., Any]:
    """Returns the command with the connection options, if it has a `--bootstrap`."""
    parameters = inspect.signature(command).parameters
    if "bootstrap" not in parameters or _OPTIONS[0].name in parameters:
        return command

    @functools.wraps(command)
    def run(*args: Any, command_config: str | None, command_property: list[str] | None, **kwargs: Any) -> Any:
        token = _CHOSEN.set(_chosen(command_config, command_property))
        try:
            return command(*args, **kwargs)
        finally:
            _CHOSEN.reset(token)

    return with_options(run, *_OPTIONS)


def client_arguments() -> SecurityParameters:
    """Returns the security arguments for the command's client: from its options, and credentials from the environment
    unless the options have them."""
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
