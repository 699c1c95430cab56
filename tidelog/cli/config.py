"""`tidelog config`: shows, explains and checks a broker's settings."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from tidelog.cli.options import ConfigFile, Json, Settings, parse_settings
from tidelog.cli.tables import print_table
from tidelog.cli.terminal import print_json, say
from tidelog.config.describe import as_text
from tidelog.config.load import given_settings, load_config
from tidelog.config.names import field_name, names_of
from tidelog.config.reference import reference
from tidelog.config.schema import BrokerConfig

app = typer.Typer(help="Settings: show, explain and check them.", no_args_is_help=True)


@app.command()
def show(config: ConfigFile = None, settings: Settings = None, as_json: Json = False) -> None:
    """Show the effective settings and the source of each.

    These are the settings of `tidelog start` with the same options, here and now.

    \b
    Examples:
      tidelog config show
      tidelog config show --config tidelog.toml --set log.dir=/data --json
    """
    flags = parse_settings(settings, "--set")
    given = given_settings(config, os.environ, flags)
    loaded = load_config(config, os.environ, flags)
    rows = [
        {
            "name": name,
            "value": as_text(getattr(loaded, field_name(name))),
            "source": given[name].source if name in given else "default",
        }
        for name in names_of(BrokerConfig)
    ]
    if as_json:
        print_json(rows)
        return
    print_table(["setting", "value", "source"], [[row["name"], row["value"], row["source"]] for row in rows])


@app.command()
def docs() -> None:
    """Print the reference of all settings, in Markdown.

    \b
    Example:
      tidelog config docs | less
    """
    print(reference(), end="")


@app.command()
def check(file: Annotated[str, typer.Argument(metavar="FILE")], as_json: Json = False) -> None:
    """Check a settings file.

    Every name must be known and every value valid. The environment is ignored.

    \b
    Example:
      tidelog config check tidelog.toml
    """
    count = len(given_settings(file, {}, {}))
    load_config(file, {}, {})
    text = f"{file}: {count} {'setting' if count == 1 else 'settings'}, all right"
    say({"file": file, "settings": count}, text, as_json=as_json)
