"""`tidelog dev`: a local cluster for trying things out: real brokers as child processes, until Ctrl-C.

Each broker is an ordinary `tidelog start`, and its log file starts with that command, so that a killed broker can be
restarted by hand. The command itself restarts nothing.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Annotated, Final

import typer

from tidelog.cli.options import Settings, parse_settings
from tidelog.cli.supervisor import Child, supervise
from tidelog.cli.terminal import CommandError, UsageError
from tidelog.testing.commands import HOST, start_command, voters_setting
from tidelog.testing.ports import free_ports, is_free

KAFKA_PORT_DISTANCE: Final = 1010
"""Distance from a broker's HTTP port to its Kafka port, where free: 8082 and 9092."""
PEER_PORT_DISTANCE: Final = 1110
"""Distance from a broker's HTTP port to its peer port, where free: 8082 and 9192 are the defaults of `tidelog
start`."""


def dev(
    brokers: Annotated[int, typer.Option(min=1, max=9, metavar="N", help="How many.")] = 3,
    directory: Annotated[Path, typer.Option("--dir", metavar="DIR", help="Where their data is.")] = Path("tidelog-dev"),
    base_port: Annotated[int, typer.Option(min=1, max=65_526, metavar="PORT", help="HTTP port of broker 1.")] = 8082,
    settings: Settings = None,
) -> None:
    """Run a cluster on this machine, until Ctrl-C.

    Broker i has node id i, its HTTP port is base port + i - 1, its Kafka port 1010 above that (or another one, if that
    is taken or kafka.listener is set), its data is in DIR/broker-i, and its log in DIR/broker-i.log, which begins with
    the command to restart this broker by hand. When all are ready, each prints one line: tidelog: ready
    http://HOST:PORT cluster=ID node=N kafka=HOST:PORT

    A broker that dies is reported and not restarted. --set applies a setting to all brokers. The next `tidelog dev`
    with the same DIR continues with the same data.

    \b
    Examples:
      tidelog dev
      tidelog dev --brokers 1 --dir /tmp/try --base-port 9000
      tidelog dev --brokers 5 --set log.retention.ms=3600000
    """
    directory = directory.absolute()
    given = parse_settings(settings, "--set")
    children = [Child(*words) for words in _plan(directory, brokers, base_port, given)]
    raise typer.Exit(asyncio.run(supervise(children)))


# -- who and where ------------------------------------------------------------------------------------------------


def _plan(
    directory: Path, brokers: int, base_port: int, settings: dict[str, str]
) -> Iterator[tuple[int, list[str], Path]]:
    """Yields the node id, command line and log file of each broker."""
    peer_ports = _peer_ports(directory, brokers, base_port)
    peers = [f"{HOST}:{port}" for port in peer_ports]
    shared = {"cluster.voters": voters_setting(peers), **settings}
    kafka_ports = _near(brokers, base_port, KAFKA_PORT_DISTANCE, excluded=peer_ports)
    has_kafka = not settings.keys() & {"kafka.listener", "kafka_listener", "http.authentication"}
    for node_id, peer in enumerate(peers, start=1):
        data_dir = directory / f"broker-{node_id}"
        http = f"{HOST}:{base_port + node_id - 1}"
        kafka = f"{HOST}:{kafka_ports[node_id - 1]}" if has_kafka else None
        command = start_command(node_id, data_dir, http, peer=peer, settings=shared, kafka=kafka)
        yield node_id, command, directory / f"broker-{node_id}.log"


def _peer_ports(directory: Path, brokers: int, base_port: int) -> list[int]:
    """Returns the peer ports of the brokers, chosen once per directory, because they are stored in the brokers'
    data."""
    notes = directory / "dev.json"
    try:
        directory.mkdir(parents=True, exist_ok=True)
        if notes.exists():
            return _noted(notes, brokers)
        ports = _near(brokers, base_port, PEER_PORT_DISTANCE)
        notes.write_text(json.dumps({"peer_ports": ports}) + "\n")
    except OSError as error:
        raise CommandError(f"{directory} cannot be used: {error}") from None
    return ports


def _noted(notes: Path, brokers: int) -> list[int]:
    try:
        ports = json.loads(notes.read_text())["peer_ports"]
        assert isinstance(ports, list) and all(isinstance(port, int) for port in ports)
    except (ValueError, KeyError, TypeError, AssertionError):
        raise CommandError(f"{notes} is not what `tidelog dev` wrote; choose another --dir") from None
    if len(ports) != brokers:
        raise UsageError(
            f"{notes.parent} holds a cluster of {len(ports)}: say --brokers {len(ports)}, or choose another --dir"
        )
    return ports


def _near(brokers: int, base_port: int, distance: int, excluded: Collection[int] = ()) -> list[int]:
    """Returns ports at this distance above the HTTP ports if they are free, else any free ports."""
    taken = {*range(base_port, base_port + brokers), *excluded}
    ports = [base_port + number + distance for number in range(brokers)]
    if ports[-1] <= 65_535 and not set(ports) & taken and all(map(is_free, ports)):
        return ports
    return free_ports(brokers, excluded=taken)
