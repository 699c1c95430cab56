"""`tidelog broker`: lists, describes and removes brokers, through the admin client."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import msgspec
import typer

from tidelog.admin import AdminClient, BrokerDescription, ConfigDescription, TopicDescription
from tidelog.cli.connection import ask
from tidelog.cli.options import Bootstrap, Json
from tidelog.cli.tables import print_table, show
from tidelog.cli.terminal import counted, say
from tidelog.config.describe import LOG_LEVEL
from tidelog.model.errors import TidelogError
from tidelog.transport.addresses import DEFAULT_BOOTSTRAP

app = typer.Typer(help="List, describe and remove brokers.", no_args_is_help=True)

NodeId = Annotated[int, typer.Argument(metavar="NODE", min=0, show_default=False, help="The broker's node id.")]


Level = Annotated[
    str | None,
    typer.Argument(metavar="LEVEL", show_default=False, help="debug, info, warning or error. By default it is shown."),
]


@app.command("list")
def list_brokers(bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, as_json: Json = False) -> None:
    """List all brokers, live and fenced.

    A fenced broker is registered but sends no heartbeats; it leads nothing meanwhile.

    \b
    Examples:
      tidelog broker list
      tidelog broker list --json --bootstrap http://127.0.0.1:8083
    """
    show(ask(bootstrap, AdminClient.list_brokers), print_brokers, as_json=as_json)


@app.command()
def describe(node_id: NodeId, bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, as_json: Json = False) -> None:
    """Show a broker, its replicas, and its settings.

    Settings with their defaults are left out, except with --json. A broker that does not respond cannot show its
    settings.

    \b
    Example:
      tidelog broker describe 2
    """

    async def look(admin: AdminClient) -> _Description:
        broker = await admin.describe_broker(node_id)
        replicas = _replicas_on(node_id, await admin.describe_topics())
        return _Description(broker, replicas, await _configs(admin, broker))

    described = ask(bootstrap, look)
    show(described, _print_description, as_json=as_json, document=_document)


@app.command()
def remove(node_id: NodeId, bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, as_json: Json = False) -> None:
    """Remove a broker from the cluster permanently.

    It is refused while the broker holds replicas, which `tidelog cluster rebalance --without 4` moves, or its vote is
    needed. Its process, if still running, stops by itself; its data is kept.

    \b
    Example:
      tidelog broker remove 4
    """
    ask(bootstrap, lambda admin: admin.remove_broker(node_id))
    say({"broker_id": node_id}, f"removed broker {node_id}", as_json=as_json)


@app.command("log-level")
def log_level(
    node_id: NodeId, level: Level = None, bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, as_json: Json = False
) -> None:
    """Show a broker's log level, or change it until the broker restarts.

    \b
    Examples:
      tidelog broker log-level 2
      tidelog broker log-level 2 debug
    """

    async def look(admin: AdminClient) -> str:
        if level is not None:
            await admin.alter_broker_config(node_id, LOG_LEVEL, level)
            return level
        configs = await admin.describe_broker_configs(node_id)
        return next(config.value or "" for config in configs if config.name == LOG_LEVEL)

    effective = ask(bootstrap, look)
    say({"broker_id": node_id, LOG_LEVEL: effective}, f"broker {node_id} logs from {effective} on", as_json=as_json)


def print_brokers(brokers: Sequence[BrokerDescription]) -> None:
    """Prints a table of brokers."""
    rows = [
        [broker.broker_id, broker.address, broker.rack, state_of(broker), role_of(broker), broker.broker_epoch]
        for broker in brokers
    ]
    print_table(["broker", "address", "rack", "state", "role", "epoch"], rows)


def levels_of(broker: BrokerDescription) -> str | None:
    """Returns the feature levels that a broker supports, as text; None if unknown."""
    levels = broker.feature_levels
    return None if levels is None else f"{levels.lowest}-{levels.highest}"


def state_of(broker: BrokerDescription) -> str:
    """Returns `live` or `fenced`."""
    return "fenced" if broker.is_fenced else "live"


def role_of(broker: BrokerDescription) -> str | None:
    """Returns the broker's role: controller, voter, or None."""
    if broker.is_controller:
        return "controller"
    return "voter" if broker.voter_id is not None else None


class _Replica(msgspec.Struct, frozen=True):
    topic_name: str
    partition_id: int
    is_leader: bool
    is_in_sync: bool


class _Description(msgspec.Struct, frozen=True):
    broker: BrokerDescription
    replicas: list[_Replica]
    configs: list[ConfigDescription] | None
    """The broker's settings; None if it does not respond."""


def _replicas_on(node_id: int, topics: Sequence[TopicDescription]) -> list[_Replica]:
    return [
        _Replica(topic.topic_name, partition.partition_id, partition.leader == node_id, node_id in partition.isr)
        for topic in topics
        for partition in topic.partitions
        if node_id in partition.replicas
    ]


async def _configs(admin: AdminClient, broker: BrokerDescription) -> list[ConfigDescription] | None:
    if broker.is_fenced:
        return None
    try:
        return await admin.describe_broker_configs(broker.broker_id)
    except TidelogError:
        return None


def _document(described: _Description) -> dict[str, Any]:
    """Returns the broker in the form of REST v3, with its replicas and settings."""
    return {
        **msgspec.to_builtins(described.broker),
        "partition_replicas": msgspec.to_builtins(described.replicas),
        "configs": msgspec.to_builtins(described.configs),
    }


def _print_description(described: _Description) -> None:
    broker = described.broker
    leading = sum(replica.is_leader for replica in described.replicas)
    facts = [
        ("address", broker.address),
        ("Kafka address", broker.kafka_address),
        ("peer address", f"{broker.peer_host}:{broker.peer_port}" if broker.peer_host else None),
        ("rack", broker.rack),
        ("state", state_of(broker)),
        ("role", role_of(broker)),
        ("epoch", broker.broker_epoch),
        ("voter id", broker.voter_id),
        ("holds", f"{counted(len(described.replicas), 'replica')}, leader of {leading:,}"),
    ]
    print(f"broker {broker.broker_id}\n")
    print_table(["what", "value"], [(name, None if value is None else str(value)) for name, value in facts])
    if described.replicas:
        print()
        rows = [
            [
                replica.topic_name,
                replica.partition_id,
                "leader" if replica.is_leader else "follower",
                "yes" if replica.is_in_sync else "no",
            ]
            for replica in described.replicas
        ]
        print_table(["topic", "partition", "role", "in sync"], rows)
    changed = [config for config in described.configs or () if config.source != "DEFAULT_CONFIG"]
    if changed:
        print()
        print_table(["setting", "value", "source"], [[config.name, config.value, config.source] for config in changed])
    if described.configs is None:
        print("\nits settings cannot be shown: it does not answer")
