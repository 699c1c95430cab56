"""Options that several commands share, with their help and defaults."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from enum import StrEnum
from types import MappingProxyType
from typing import Annotated, Any, Final

import typer

from tidelog.cli.terminal import UsageError

_RATE: Final = re.compile(r"(\d{1,12})(B|KB|MB|GB)?(?:/s)?", re.IGNORECASE | re.ASCII)
UNITS: Final = MappingProxyType({"B": 1, "KB": 1_000, "MB": 1_000_000, "GB": 1_000_000_000})
"""Bytes of each unit in which a rate is given."""


class Acks(StrEnum):
    """The replicas whose acknowledgement a produce request waits for."""

    ALL = "all"
    LEADER = "1"
    NONE = "0"


class Durability(StrEnum):
    """The durability that a replica needs before it acknowledges a batch."""

    FSYNCED = "fsynced"
    REPLICATED = "replicated"


class Codec(StrEnum):
    """The compression of batches."""

    NONE = "none"
    GZIP = "gzip"
    SNAPPY = "snappy"
    LZ4 = "lz4"
    ZSTD = "zstd"


class Way(StrEnum):
    """The protocol by which records are sent and fetched."""

    AUTO = "auto"
    HTTP = "http"
    KAFKA = "kafka"


Bootstrap = Annotated[
    str,
    typer.Option(
        "--bootstrap",
        metavar="URL",
        envvar="TIDELOG_BOOTSTRAP",
        show_envvar=True,
        help="Any broker of the cluster; several with commas.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
Throttle = Annotated[
    str | None,
    typer.Option(
        "--throttle",
        metavar="RATE",
        help="The most that each broker sends, and receives, for replicas that move: 50MB is 50 million bytes a "
        "second, `none` as fast as they can.",
        show_default=False,
    ),
]
Execute = Annotated[
    bool, typer.Option("--execute/--dry-run", help="Do it; or only show what would be done, the default.")
]
TopicName = Annotated[str, typer.Argument(metavar="TOPIC", show_default=False)]
Transport = Annotated[
    Way,
    typer.Option(
        "--transport", help="By Kafka's protocol where the broker listens for it, else over HTTP; or one of them only."
    ),
]
ConfigFile = Annotated[str | None, typer.Option("--config", metavar="FILE", help="Settings in TOML.")]
Settings = Annotated[list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="Any setting. Repeatable.")]
KeySeparator = Annotated[
    str | None,
    typer.Option(metavar="TEXT", help="What stands between key and value; \\t is a tab.", show_default=False),
]


def option(name: str, annotation: Any, default: object) -> inspect.Parameter:
    """Returns a command-line option as a keyword parameter with this name, type and default, to be passed to
    `with_options`."""
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def with_options(command: Callable[..., Any], *options: inspect.Parameter) -> Callable[..., Any]:
    """Adds options to the signature by which typer builds the command line, and returns the command. `command` must be
    a wrapper (`functools.wraps`) that accepts the additional keyword arguments."""
    signature = inspect.signature(command, eval_str=True)
    parameters = [*signature.parameters.values(), *options]
    command.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    del command.__wrapped__  # type: ignore[attr-defined]  # where typer would look for the options
    return command


def parse_rate(text: str | None) -> int | None:
    """Returns `--throttle` in bytes per second, 0 for no throttle; None if it was not given."""
    if text is None or text.lower() == "none":
        return None if text is None else 0
    match = _RATE.fullmatch(text)
    rate = int(match[1]) * UNITS[(match[2] or "B").upper()] if match else 0
    if rate == 0:
        raise UsageError(f"--throttle {text!r} is no rate; give bytes per second as 500KB, 50MB or 1GB, or `none`")
    return rate


def separator_bytes(separator: str | None) -> bytes | None:
    """Returns the separator as bytes, with an escaped tab resolved; None if it was not given. Raises `UsageError` if it
    is empty."""
    if separator == "":
        raise UsageError("--key-separator is empty; give what stands between key and value")
    return None if separator is None else separator.replace("\\t", "\t").encode()


def parse_settings(settings: list[str] | None, option: str) -> dict[str, str]:
    """Parses `name=value` words into a mapping. A malformed word, or a name with two values, is a usage error."""
    parsed: dict[str, str] = {}
    for setting in settings or ():
        name, separator, value = setting.partition("=")
        name = name.strip()
        if not (separator and name):
            raise UsageError(f"{option} {setting}: write it as NAME=VALUE, as in {option} retention.ms=86400000")
        if parsed.setdefault(name, value) != value:
            raise UsageError(f"{option}: {name} is set twice, to {parsed[name]} and to {value}; keep one")
    return parsed
