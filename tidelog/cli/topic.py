"""`tidelog topic`: creates, lists, describes, alters, moves and deletes topics, through the admin client."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import msgspec
import typer

from tidelog.admin import AdminClient, ConfigDescription, TopicDescription, TopicPlacement
from tidelog.cli.connection import ask
from tidelog.cli.options import Bootstrap, Json, TopicName, parse_settings
from tidelog.cli.tables import listed, print_table, show
from tidelog.cli.terminal import UsageError, counted, print_json, say
from tidelog.cli.topic_move import move
from tidelog.model.cluster import PAXOS, CommitProtocol
from tidelog.model.errors import TopicExists, UnknownTopic
from tidelog.model.ids import TopicPartition
from tidelog.transport.addresses import DEFAULT_BOOTSTRAP
from tidelog.transport.metadata import PartitionVoter
from tidelog.transport.offsets import PartitionOffsets

app = typer.Typer(help="Create, list, describe, alter, move and delete topics.", no_args_is_help=True)

TopicConfigs = Annotated[
    list[str] | None, typer.Option("--config", metavar="NAME=VALUE", help="A setting of the topic. Repeatable.")
]


@app.command()
def create(
    topic: TopicName,
    partitions: Annotated[int | None, typer.Option(min=1, metavar="P", help="Default: num.partitions.")] = None,
    replication_factor: Annotated[int | None, typer.Option(min=1, metavar="R", help="Replicas of each.")] = None,
    protocol: Annotated[CommitProtocol | None, typer.Option(help="How partitions commit; fixed for ever.")] = None,
    configs: TopicConfigs = None,
    validate_only: Annotated[bool, typer.Option("--validate-only", help="Only show what would be created.")] = False,
    if_not_exists: Annotated[
        bool, typer.Option("--if-not-exists", help="If there is one of this name, leave it as it is: no error.")
    ] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: Json = False,
) -> None:
    """Create a topic.

    \b
    Examples:
      tidelog topic create flights --partitions 3
      tidelog topic create audit --config retention.ms=-1 --config compression.type=zstd
      tidelog topic create clicks --protocol paxos --config commit.order=key
      tidelog topic create flights --partitions 3 --if-not-exists
      tidelog topic create flights --partitions 3 --validate-only --json
    """
    settings = parse_settings(configs, "--config")
    if protocol is not None and settings.setdefault("commit.protocol", protocol) != protocol:
        raise UsageError("--protocol and --config commit.protocol say different things; keep one")

    async def create_it(admin: AdminClient) -> tuple[TopicPlacement, bool]:
        """Creates the topic; returns its placement, and True if it is new."""
        try:
            created = await admin.create_topic(
                topic,
                partitions=partitions,
                replication_factor=replication_factor,
                configs=settings,
                validate_only=validate_only,
            )
        except TopicExists:
            if not if_not_exists:
                raise
            return await admin.create_topic(topic, validate_only=validate_only, exist_ok=True), False
        return created, True

    placement, is_new = ask(bootstrap, create_it)
    if as_json:
        print_json(msgspec.to_builtins(placement))
    elif validate_only:
        print_table(
            ["partition", "replicas"],
            [[assignment.partition_id, listed(assignment.replicas)] for assignment in placement.assignments],
        )
    else:
        print(f"{f'created topic {topic}' if is_new else f'topic {topic} exists already'}: {shape_of(placement)}")


@app.command("list")
def list_topics(
    with_internal: Annotated[bool, typer.Option("--internal", help="Internal topics as well.")] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: Json = False,
) -> None:
    """List all topics.

    \b
    Examples:
      tidelog topic list
      tidelog topic list --json --bootstrap http://127.0.0.1:8083
    """
    all_topics = ask(bootstrap, AdminClient.describe_topics)
    topics = [topic for topic in all_topics if with_internal or not topic.is_internal]
    show(sorted(topics, key=lambda topic: topic.topic_name), print_topics, as_json=as_json)


@app.command()
def describe(
    topic: TopicName,
    with_configs: Annotated[bool, typer.Option("--configs", help="All settings, also those left alone.")] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: Json = False,
) -> None:
    """Show a topic's partitions and settings.

    \b
    Examples:
      tidelog topic describe flights
      tidelog topic describe flights --configs
    """
    described = ask(bootstrap, lambda admin: _describe(admin, topic))
    if as_json:
        print_json(_document(described))
    else:
        _print_description(described, with_configs=with_configs)


@app.command()
def alter(
    topic: TopicName,
    partitions: Annotated[int | None, typer.Option(min=1, metavar="P", help="New total; topics only grow.")] = None,
    configs: TopicConfigs = None,
    delete_configs: Annotated[
        list[str] | None, typer.Option("--delete-config", metavar="NAME", help="Back to the default. Repeatable.")
    ] = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: Json = False,
) -> None:
    """Change a topic's settings, or give it more partitions.

    Adding partitions changes where keys go: records of one key may end up in two partitions.

    \b
    Examples:
      tidelog topic alter flights --config retention.ms=86400000
      tidelog topic alter flights --delete-config retention.ms
      tidelog topic alter flights --partitions 6
    """
    changes: dict[str, str | None] = {**parse_settings(configs, "--config")}
    for name in delete_configs or ():
        if changes.setdefault(name, None) is not None:
            raise UsageError(f"{name} is both set and deleted; keep one")
    if partitions is None and not changes:
        raise UsageError("nothing to change; give --partitions, --config or --delete-config")

    async def change(admin: AdminClient) -> _Description:
        if changes and partitions is not None:  # a bad setting must not leave the topic half altered
            await admin.alter_configs(topic, changes, validate_only=True)
        if partitions is not None:
            await admin.create_partitions(topic, partitions)
        if changes:
            await admin.alter_configs(topic, changes)
        return await _describe(admin, topic)

    described = ask(bootstrap, change)
    say(_document(described), f"altered topic {topic}", as_json=as_json)


app.command()(move)


@app.command()
def delete(
    topic: TopicName,
    if_exists: Annotated[bool, typer.Option("--if-exists", help="If there is none of this name: no error.")] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: Json = False,
) -> None:
    """Delete a topic and all its records.

    \b
    Examples:
      tidelog topic delete flights
      tidelog topic delete flights --if-exists
    """

    async def remove(admin: AdminClient) -> bool:
        try:
            await admin.delete_topic(topic)
        except UnknownTopic:
            if not if_exists:
                raise
            return False
        return True

    was_there = ask(bootstrap, remove)
    done = f"deleted topic {topic}" if was_there else f"there is no topic {topic}"
    say({"topic_name": topic}, done, as_json=as_json)


class _Description(msgspec.Struct, frozen=True):
    topic: TopicDescription
    offsets: dict[TopicPartition, PartitionOffsets]
    configs: list[ConfigDescription]


async def _describe(admin: AdminClient, name: str) -> _Description:
    topic = await admin.describe_topic(name)
    partitions = [TopicPartition(name, partition.partition_id) for partition in topic.partitions]
    return _Description(topic, await admin.list_offsets(partitions), await admin.describe_configs(name))


def _document(described: _Description) -> dict[str, Any]:
    """Returns the topic in the form of REST v3, with its partitions, their offsets, and its settings."""
    document: dict[str, Any] = msgspec.to_builtins(described.topic)
    for partition, offsets in zip(document["partitions"], described.offsets.values(), strict=True):
        partition |= {"earliest_offset": offsets.log_start_offset, "latest_offset": offsets.high_watermark}
    assignments = [
        {"partition_id": partition.partition_id, "replicas": partition.replicas}
        for partition in described.topic.partitions
    ]
    return {**document, "assignments": assignments, "configs": msgspec.to_builtins(described.configs)}


def _print_description(described: _Description, *, with_configs: bool) -> None:
    topic = described.topic
    print(f"topic {topic.topic_name}: {shape_of(topic)}, protocol {topic.protocol}, id {topic.topic_id}\n")
    is_quorum = topic.protocol == PAXOS
    rows = [
        [
            partition.partition_id,
            partition.leader if partition.leader >= 0 else None,
            partition.leader_epoch,
            listed(partition.replicas),
            listed(partition.isr),
            _voters(partition.voters) if is_quorum else listed(partition.elr) or None,
            offsets.log_start_offset,
            offsets.high_watermark,
        ]
        for partition, offsets in zip(topic.partitions, described.offsets.values(), strict=True)
    ]
    kinds = ["voting", "voter ids"] if is_quorum else ["isr", "elr"]
    print_table(["partition", "leader", "epoch", "replicas", *kinds, "earliest", "latest"], rows)
    configs = [config for config in described.configs if with_configs or config.source == "DYNAMIC_TOPIC_CONFIG"]
    if configs:
        print()
        print_table(["setting", "value", "source"], [[config.name, config.value, config.source] for config in configs])


def print_topics(topics: Sequence[TopicDescription]) -> None:
    """Prints a table of topics, or how to create one."""
    if not topics:
        print("there are no topics; `tidelog topic create TOPIC` makes one")
        return
    rows = [[topic.topic_name, topic.partitions_count, topic.replication_factor, topic.protocol] for topic in topics]
    print_table(["topic", "partitions", "replicas", "protocol"], rows)


def shape_of(topic: TopicDescription | TopicPlacement) -> str:
    """Returns the size of a topic as text: `3 partitions, 2 replicas`."""
    return f"{counted(topic.partitions_count, 'partition')}, {counted(topic.replication_factor, 'replica')}"


def _voters(voters: Sequence[PartitionVoter]) -> str:
    """Returns voters as `1:1,2:2,3:4`, broker and voter id: broker 3 votes as voter 4."""
    return ",".join(f"{voter.broker_id}:{voter.voter_id}" for voter in voters)
