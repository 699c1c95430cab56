"""`tidelog start`: one broker, until SIGTERM or Ctrl-C.

This module only reads the settings; `tidelog.broker.assembly` runs the broker. A misspelt setting is reported before
anything of the broker is imported.
"""

from __future__ import annotations

import os
import sys
from functools import partial
from typing import Annotated

import typer

from tidelog.cli.imports import imported
from tidelog.cli.options import ConfigFile, Settings, parse_settings
from tidelog.cli.terminal import EXIT_ERROR, UsageError, print_error
from tidelog.config.errors import ConfigError
from tidelog.config.load import load_config
from tidelog.config.schema import BrokerConfig
from tidelog.model.errors import TidelogError


def start(
    config: ConfigFile = None,
    data_dir: Annotated[str | None, typer.Option(metavar="DIR", help="log.dir: where the data is.")] = None,
    http: Annotated[str | None, typer.Option(metavar="HOST:PORT", help="http.listener: for clients.")] = None,
    peer: Annotated[str | None, typer.Option(metavar="HOST:PORT", help="peer.listener: for other brokers.")] = None,
    kafka: Annotated[str | None, typer.Option(metavar="HOST:PORT", help="kafka.listener: for Kafka's clients.")] = None,
    node_id: Annotated[str | None, typer.Option(metavar="N", help="node.id: this broker's number.")] = None,
    rack: Annotated[str | None, typer.Option(metavar="RACK", help="broker.rack: where it stands.")] = None,
    tls: Annotated[
        str | None,
        typer.Option(
            metavar="DIR", help="Speak TLS to clients and brokers, with what `tidelog tls` made for this broker in DIR."
        ),
    ] = None,
    settings: Settings = None,
    join: Annotated[
        str | None, typer.Option(metavar="URL", help="cluster.join: a broker of a cluster to join.")
    ] = None,
) -> None:
    """Run a broker, until SIGTERM or Ctrl-C.

    Without options: data in ./tidelog-data, HTTP on 127.0.0.1:8082, Kafka's clients on 127.0.0.1:9092. The broker
    prints one line when it is ready: tidelog: ready http://HOST:PORT cluster=ID node=N kafka=HOST:PORT

    An option takes precedence over the environment (TIDELOG_LOG_DIR for log.dir), that over the file, that over the
    default; `tidelog config docs` explains all settings.

    \b
    Examples:
      tidelog start
      tidelog start --data-dir /var/lib/tidelog --http 127.0.0.1:9000 --kafka 127.0.0.1:9001
      tidelog start --config tidelog.toml --set log.retention.ms=86400000
      tidelog start --node-id 1 --tls tls --http 0.0.0.0:8082
      tidelog start --node-id 4 --data-dir d4 --http 127.0.0.1:8085 --peer 127.0.0.1:9195 --join http://127.0.0.1:8082
    """
    encrypted = {} if tls is None else _encrypted(tls, node_id)
    named = {
        **encrypted,
        "log.dir": data_dir,
        "http.listener": http,
        "kafka.listener": kafka,
        "peer.listener": peer,
        "node.id": node_id,
        "broker.rack": rack,
        "cluster.join": join,
    }
    try:
        loaded = load_config(config, os.environ, _flags(named, parse_settings(settings, "--set")))
    except ConfigError as error:
        raise UsageError(error.message) from None
    raise typer.Exit(_run(loaded))


def _encrypted(directory: str, node_id: str | None) -> dict[str, str | None]:
    """Returns the settings that `--tls` stands for. The node id may also come from the environment or a
    settings file."""
    if node_id is None:
        raise UsageError("--tls needs --node-id, which says whose certificate it is")
    return {
        "http.security.protocol": "SSL",
        "security.inter.broker.protocol": "SSL",
        "ssl.keystore.location": f"{directory}/broker-{node_id}.pem",
        "ssl.truststore.location": f"{directory}/ca.pem",
    }


def _flags(named: dict[str, str | None], settings: dict[str, str]) -> dict[str, str]:
    """Returns the settings on the command line by dotted name. A setting with two values is a usage error."""
    flags = dict(settings)
    for name, value in named.items():
        if value is not None and flags.setdefault(name, value) != value:
            raise UsageError(f"{name} is set twice on the command line, to {value} and to {flags[name]}; keep one")
    return flags


def _run(config: BrokerConfig) -> int:
    """Imports the broker, which takes most of the start time, and runs it; returns the exit status."""
    assembly = imported("tidelog.broker.assembly")
    try:
        status: int = assembly.run(config, partial(print, flush=True))
    except TidelogError as error:
        print_error(error)
        return EXIT_ERROR
    except OSError as error:
        print(f"error: the broker cannot start: {error}", file=sys.stderr)
        return EXIT_ERROR
    return status
