"""`tidelog start`: one broker, until SIGTERM or Ctrl-C.

Only the settings are read here; `tidelog.broker.assembly` does the rest. Settings come first, so that a misspelt one
is reported before anything of the broker is imported, let alone opened.
"""

from __future__ import annotations

import importlib
import os
import sys
from functools import partial
from typing import Annotated

import typer

from tidelog.config.errors import ConfigError
from tidelog.config.load import load_config
from tidelog.config.schema import BrokerConfig
from tidelog.model.errors import TidelogError

EXIT_ERROR = 1
EXIT_USAGE = 2


def start(
    config: Annotated[str | None, typer.Option("--config", metavar="FILE", help="Settings in TOML.")] = None,
    data_dir: Annotated[str | None, typer.Option(metavar="DIR", help="log.dir: where the data is.")] = None,
    http: Annotated[str | None, typer.Option(metavar="HOST:PORT", help="http.listener: for clients.")] = None,
    peer: Annotated[str | None, typer.Option(metavar="HOST:PORT", help="peer.listener: for other brokers.")] = None,
    node_id: Annotated[str | None, typer.Option(metavar="N", help="node.id: this broker's number.")] = None,
    rack: Annotated[str | None, typer.Option(metavar="RACK", help="broker.rack: where it stands.")] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="Any setting. Repeatable.")
    ] = None,
    join: Annotated[str | None, typer.Option(metavar="URL", help="Not in this version.")] = None,
) -> None:
    """Run a broker, until SIGTERM or Ctrl-C.

    Without options: data in ./tidelog-data, HTTP on 127.0.0.1:8082. The broker prints one line when it is ready:
    tidelog: ready http://HOST:PORT cluster=ID node=N

    An option wins over the environment (TIDELOG_LOG_DIR for log.dir), that over the file, that over the default;
    `tidelog config docs` explains all settings.

    \b
    Examples:
      tidelog start
      tidelog start --data-dir /var/lib/tidelog --http 0.0.0.0:8082
      tidelog start --config tidelog.toml --set log.retention.ms=86400000
    """
    named = {
        "log.dir": data_dir,
        "http.listener": http,
        "peer.listener": peer,
        "node.id": node_id,
        "broker.rack": rack,
    }
    try:
        if join is not None:
            raise ConfigError(
                "--join: in this version a cluster has one broker, so there is nothing to join; leave it out"
            )
        loaded = load_config(config, os.environ, _flags(named, settings or []))
    except ConfigError as error:
        print(f"error: {error.message}", file=sys.stderr)
        raise typer.Exit(EXIT_USAGE) from None
    raise typer.Exit(_run(loaded))


def _flags(named: dict[str, str | None], settings: list[str]) -> dict[str, str]:
    """The settings of the command line by dotted name. `ConfigError` if one has no value, or has two."""
    flags = {name: value for name, value in named.items() if value is not None}
    for setting in settings:
        name, separator, value = setting.partition("=")
        name = name.strip()
        if not (separator and name):
            raise ConfigError(f"--set {setting}: write it as name=value, as in --set log.retention.ms=86400000")
        if flags.get(name, value) != value:
            raise ConfigError(f"{name} is set twice on the command line, to {flags[name]} and to {value}; keep one")
        flags[name] = value
    return flags


def _run(config: BrokerConfig) -> int:
    """Imports the broker, which is most of what starting costs, and runs it."""
    assembly = importlib.import_module("tidelog.broker.assembly")
    try:
        status: int = assembly.run(config, partial(print, flush=True))
    except TidelogError as error:
        print(f"error: {error.message}", file=sys.stderr)
        return EXIT_ERROR
    except OSError as error:
        print(f"error: the broker cannot start: {error}", file=sys.stderr)
        return EXIT_ERROR
    return status
