"""`tidelog group`: lists, describes, resets and deletes consumer groups, through the admin client."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import msgspec
import typer

from tidelog.admin import AdminClient, GroupDescription, GroupListing, LagDescription, TopicOwned
from tidelog.cli.connection import ask
from tidelog.cli.options import Bootstrap, Execute, Json
from tidelog.cli.resets import ResetOptions, parse_chosen
from tidelog.cli.tables import print_table, show
from tidelog.cli.terminal import counted, print_json, printable, say
from tidelog.model.ids import TopicPartition
from tidelog.transport.addresses import DEFAULT_BOOTSTRAP

app = typer.Typer(help="List, describe, reset and delete consumer groups.", no_args_is_help=True)

GroupName = Annotated[str, typer.Argument(metavar="GROUP", show_default=False)]


@app.command("list")
def list_groups(bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, as_json: Json = False) -> None:
    """List all consumer groups.

    \b
    Examples:
      tidelog group list
      tidelog group list --json --bootstrap http://127.0.0.1:8083
    """
    show(ask(bootstrap, AdminClient.list_groups), print_groups, as_json=as_json)


@app.command()
def describe(group: GroupName, bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, as_json: Json = False) -> None:
    """Show a group's members, its committed offset in each partition, and its lag.

    LAG counts offsets up to the high watermark, the end for consumers. A partition without an OFFSET has never been
    committed: its member started where its `auto_offset_reset` says.

    \b
    Examples:
      tidelog group describe billing
      tidelog group describe billing --json | jq '[.lags[].lag] | add'
    """
    described = ask(bootstrap, lambda admin: _describe(admin, group))
    if as_json:
        print_json({**msgspec.to_builtins(described.group), "lags": msgspec.to_builtins(described.lags)})
    else:
        print_description(described)


@app.command()
def reset(
    group: GroupName,
    to_earliest: Annotated[bool, typer.Option("--to-earliest", help="To the first record there is.")] = False,
    to_latest: Annotated[bool, typer.Option("--to-latest", help="To the end: only what comes from now on.")] = False,
    to_offset: Annotated[int | None, typer.Option(metavar="N", min=0, help="To this offset.")] = None,
    to_timestamp: Annotated[
        str | None,
        typer.Option(
            "--to-timestamp",
            "--to-datetime",
            metavar="T",
            help="To the first record not older than 2026-05-01T12:00:00Z, or than milliseconds since 1970.",
        ),
    ] = None,
    by_duration: Annotated[
        str | None, typer.Option(metavar="D", help="To the first record not older than so long ago: PT1H30M, P7D.")
    ] = None,
    shift_by: Annotated[int | None, typer.Option(metavar="N", help="On by N offsets; back, if it is negative.")] = None,
    topics: Annotated[
        list[str] | None,
        typer.Option("--topic", metavar="T[:P,P]", help="A topic, or some of its partitions. Repeatable."),
    ] = None,
    all_topics: Annotated[bool, typer.Option("--all-topics", help="All that the group has offsets of.")] = False,
    execute: Execute = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: Json = False,
) -> None:
    """Reset a group's committed offsets. Shows the changes; makes them only with --execute.

    Rejected while the group has members, because they would continue at their positions: stop its consumers first. All
    offsets are changed, or none. Offsets outside of a partition become its start or end.

    \b
    Examples:
      tidelog group reset billing --to-earliest --topic orders
      tidelog group reset billing --by-duration PT6H --all-topics --execute
      tidelog group reset billing --shift-by -100 --topic orders:0,2 --execute
    """
    options = ResetOptions(to_earliest, to_latest, to_offset, to_timestamp, by_duration, shift_by)
    target = options.parsed()
    chosen = parse_chosen(topics, all_topics=all_topics)
    resets = ask(
        bootstrap,
        lambda admin: admin.reset_group(group, target.to, **target.values, topics=chosen, validate_only=not execute),
    )
    if as_json:
        print_json(msgspec.to_builtins(resets))
        return
    rows = [[reset.topic_name, reset.partition_id, reset.current_offset, reset.new_offset] for reset in resets]
    print_table(["topic", "partition", "offset", "new offset"], rows)
    done = f"reset {counted(len(resets), 'offset')} of group {group}"
    print(f"\n{done}" if execute else "\nnothing was changed; --execute does it")


@app.command()
def delete(group: GroupName, bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, as_json: Json = False) -> None:
    """Delete a group and its committed offsets; rejected while it has members.

    \b
    Example:
      tidelog group delete billing
    """
    ask(bootstrap, lambda admin: admin.delete_group(group))
    say({"consumer_group_id": group}, f"deleted group {group}", as_json=as_json)


def print_groups(groups: Sequence[GroupListing]) -> None:
    """Prints a table of groups, or that there are none."""
    if not groups:
        print("there are no consumer groups")
        return
    rows = [
        [
            group.consumer_group_id,
            group.type.lower(),
            group.state.lower(),
            group.members_count,
            group.partition_assignor or None,
            group.coordinator_id,
        ]
        for group in groups
    ]
    print_table(["group", "type", "state", "members", "assignor", "coordinator"], rows)


class Described(msgspec.Struct, frozen=True):
    """The result of `tidelog group describe`."""

    group: GroupDescription
    lags: list[LagDescription]
    untold: list[tuple[str, int, int | None, str]]
    """Partitions that members own and the group has no committed offset in: topic, partition, end offset, member."""


async def _describe(admin: AdminClient, name: str) -> Described:
    group = await admin.describe_group(name)
    lags = await admin.group_lags(name)
    committed = {(lag.topic_name, lag.partition_id) for lag in lags}
    untold = {
        TopicPartition(owned.topic_name, number): member.consumer_id
        for member in group.consumers
        for owned in member.owned
        for number in owned.partition_ids
        if (owned.topic_name, number) not in committed
    }
    offsets = await admin.list_offsets(sorted(untold))
    rows = [(*partition, offsets[partition].high_watermark, member) for partition, member in untold.items()]
    return Described(group, lags, rows)


def print_description(described: Described) -> None:
    """Prints a line about the group, a table of its members, and a table of its partitions."""
    group, lags = described.group, described.lags
    at_least = "at least " if any(lag.lag is None for lag in lags) else ""
    behind = f"{at_least}{sum(lag.lag or 0 for lag in lags):,} behind" if lags else "no offsets"
    facts = _facts(group)
    said = ", ".join([group.state.lower(), counted(group.members_count, "member"), behind, *facts])
    print(f"group {printable(group.consumer_group_id)}: {said}, coordinator {group.coordinator_id}")
    if group.consumers:
        print()
        _print_members(group)
    rows = [
        [lag.topic_name, lag.partition_id, lag.current_offset, lag.log_end_offset, lag.lag, lag.consumer_id or None]
        for lag in lags
    ] + [[topic, partition, None, end, None, member] for topic, partition, end, member in described.untold]
    if rows:
        print()
        rows.sort(key=lambda row: (str(row[0]), row[1]))
        print_table(["topic", "partition", "offset", "end", "lag", "member"], rows, numbers=["offset", "end", "lag"])


def _facts(group: GroupDescription) -> list[str]:
    if group.is_simple:
        return ["simple"]
    if group.type == "CLASSIC":
        protocol = f"protocol {group.partition_assignor or '-'}"
        return [f"classic {group.protocol_type}".rstrip(), protocol, f"generation {group.group_epoch}"]
    return [f"assignor {group.partition_assignor}", f"epoch {group.group_epoch}"]


def _print_members(group: GroupDescription) -> None:
    is_moving = any(member.owned != member.target for member in group.consumers)
    rows = [
        [
            member.consumer_id,
            member.instance_id,
            member.client_id or None,
            member.client_host or None,
            member.member_epoch,
            _shown(member.owned),
            *([_shown(member.target)] if is_moving else []),
        ]
        for member in group.consumers
    ]
    head = ["member", "instance", "client", "host", "epoch", "partitions", *(["to have"] if is_moving else [])]
    print_table(head, rows)


def _shown(owned: Sequence[TopicOwned]) -> str | None:
    """Returns partitions as text: `orders:0-3,7 payments:0-3`."""
    return " ".join(f"{topic.topic_name}:{_runs(topic.partition_ids)}" for topic in owned) or None


def _runs(numbers: Sequence[int]) -> str:
    runs = list[list[int]]()
    for number in numbers:
        if runs and runs[-1][-1] == number - 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ",".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)
