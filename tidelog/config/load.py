"""Loading of a broker's settings from their four sources: flag > environment > file > default.

Only this module reads a settings file. The environment is passed in by the caller, so that a test or a simulated broker
can have its own. Every error names the source of the value.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from pydantic import ValidationError

from tidelog.config.errors import ConfigError, problems
from tidelog.config.names import ENVIRONMENT_PREFIX, name_in_environment, names_of, suggestion
from tidelog.config.schema import BrokerConfig

CLIENT_VARIABLES: Final = frozenset(
    {
        "TIDELOG_BOOTSTRAP",
        "TIDELOG_COMMAND_CONFIG",
        "TIDELOG_TOKEN_FILE",
        "TIDELOG_USERNAME",
        "TIDELOG_PASSWORD_FILE",
    }
)
"""Environment variables with the prefix TIDELOG_ that are read by clients, not by brokers."""

_SERVICE_LINK: Final = re.compile(
    r"TIDELOG_(\w+_)?(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)"
    r"|(?P<address>TIDELOG_(\w+_)?PORT)"
)
"""Pattern of the environment variables that Kubernetes sets in every container of a namespace with a service called
`tidelog` or `tidelog-...`."""


class Given(NamedTuple):
    """A value and the source that it came from."""

    value: object
    source: str


def load_config(file: str | None, environ: Mapping[str, str], flags: Mapping[str, str]) -> BrokerConfig:
    """Returns the broker's settings from a TOML file (if any), the environment and `flags` (by dotted name).

    Raises `ConfigError`, naming the source and the setting, for an unreadable file, an unknown name or a bad value.
    """
    given = given_settings(file, environ, flags)
    values = {name: entry.value for name, entry in given.items()}
    try:
        return BrokerConfig.model_validate(values)
    except ValidationError as error:
        sources = {name: entry.source for name, entry in given.items()}
        raise ConfigError("; ".join(_explain(sources, *problem) for problem in problems(error, values))) from None


def given_settings(file: str | None, environ: Mapping[str, str], flags: Mapping[str, str]) -> dict[str, Given]:
    """Returns the settings that were given, by dotted name, each from its strongest source; values are not validated
    yet. Raises `ConfigError` for an unreadable file or an unknown name."""
    given: dict[str, Given] = {}
    from_flags = {name: Given(value, "command line") for name, value in flags.items()}
    for source in (_from_file(file) if file is not None else {}, _from_environment(environ), from_flags):
        _refuse_unknown(source)
        given.update(source)
    return given


def _from_file(file: str) -> dict[str, Given]:
    try:
        tables = tomllib.loads(Path(file).read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"cannot read the settings file {file}: {error.strerror or error}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file} is not a TOML file: {error}") from None
    given: dict[str, Given] = {}
    for name, value in _flatten(tables):
        if name in given:
            raise ConfigError(f"{file}: {name} is set twice, once as a quoted name and once in a table; keep one")
        given[name] = Given(value, file)
    return given


def _flatten(table: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, object]]:
    """Yields dotted names and values: `[log] segment.bytes = 1`, `log.segment.bytes = 1` and `"log.segment.bytes" = 1`
    are the same."""
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from _flatten(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _from_environment(environ: Mapping[str, str]) -> dict[str, Given]:
    return {
        name_in_environment(variable): Given(value, f"environment variable {variable}")
        for variable, value in environ.items()
        if variable.startswith(ENVIRONMENT_PREFIX)
        and variable not in CLIENT_VARIABLES
        and not _is_service_link(variable, value)
    }


def _is_service_link(variable: str, value: str) -> bool:
    """Returns True if Kubernetes set the variable. One like `TIDELOG_PORT` counts only if its value is a URL; otherwise
    an operator set it and meant a setting."""
    link = _SERVICE_LINK.fullmatch(variable)
    return link is not None and (link["address"] is None or "://" in value)


def _refuse_unknown(source: Mapping[str, Given]) -> None:
    names = names_of(BrokerConfig)
    for name, given in source.items():
        if name not in names:
            raise ConfigError(f"{given.source}: there is no setting {name}; {suggestion(name, BrokerConfig)}")


def _explain(sources: Mapping[str, str], name: str, problem: str) -> str:
    return f"{sources[name]}: {name} = {problem}" if name else problem
