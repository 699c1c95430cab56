"""`tidelog cluster rebalance`: rebalances replicas, shows what would move, or cancels it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import typer

from tidelog.admin import AdminClient, BrokerDescription, TopicDescription
from tidelog.cli.connection import ask
from tidelog.cli.moving import move
from tidelog.cli.options import Bootstrap, Json, Throttle, parse_rate
from tidelog.cli.tables import listed, print_table, show
from tidelog.cli.terminal import UsageError, counted, print_json
from tidelog.model.errors import NotFound
from tidelog.model.ids import TopicPartition
from tidelog.placement.rebalance import Assignment, Plan, plan_rebalance
from tidelog.placement.striped import UsableBroker
from tidelog.transport.addresses import DEFAULT_BOOTSTRAP


def rebalance(
    validate_only: Annotated[bool, typer.Option("--validate-only", help="Only show what would move.")] = False,
    cancel: Annotated[bool, typer.Option("--cancel", help="Call off what moves now.")] = False,
    without: Annotated[
        list[int] | None, typer.Option("--without", metavar="NODE", help="A broker to be emptied. Repeatable.")
    ] = None,
    throttle: Throttle = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: Json = False,
) -> None:
    """Even out the load by moving replicas.

    Spreads replicas and preferred leaders evenly over the brokers, with as few moves as possible. All registered
    brokers count, including fenced ones, which still have their data. The brokers move the replicas: after Ctrl-C the
    moves continue, and the same command watches again. --throttle leaves bandwidth to clients; given again, it changes
    the throttle of the current moves, and it ends with the last of them. With too low a throttle moves never end: it
    must exceed the rate of writes to the moving partitions.

    \b
    Examples:
      tidelog cluster rebalance
      tidelog cluster rebalance --validate-only --without 4 --json
      tidelog cluster rebalance --throttle 50MB
      tidelog cluster rebalance --cancel
    """
    if cancel and (validate_only or without or throttle):
        raise UsageError("--cancel calls off all moves; it takes neither --validate-only nor --without nor --throttle")
    if validate_only and throttle:
        raise UsageError("--validate-only moves nothing, so there is nothing to --throttle")
    if cancel:
        _report(ask(bootstrap, _cancel), "called off", as_json=as_json)
    elif validate_only:
        _show_plan(bootstrap, without or (), as_json=as_json)
    else:
        rate = parse_rate(throttle)
        count = ask(bootstrap, lambda admin: move(admin, leaving=without or (), throttle_bytes_per_s=rate))
        _report(count, "reassigned", as_json=as_json)


async def _cancel(admin: AdminClient) -> int:
    moving = await admin.list_reassignments()
    await admin.cancel_reassignments()
    return len(moving)


def _report(partitions: int, done: str, *, as_json: bool) -> None:
    if as_json:
        print_json({"partitions": partitions, "outcome": done})
    elif partitions:
        print(f"{counted(partitions, 'partition')} {done}")
    else:
        print("nothing to reassign: the load is even" if done == "reassigned" else "nothing was being reassigned")


def _show_plan(bootstrap: str, without: Sequence[int], *, as_json: bool) -> None:
    async def plan(admin: AdminClient) -> Plan:
        return _plan(await admin.list_brokers(), await admin.describe_topics(), without)

    planned = ask(bootstrap, plan)
    show(planned, _print, as_json=as_json, document=_document)


def _plan(brokers: Sequence[BrokerDescription], topics: Sequence[TopicDescription], without: Sequence[int]) -> Plan:
    """Returns the plan of the rebalance. Raises `NotFound` if a broker in `without` does not exist; `InvalidRequest` if
    a partition has more replicas than brokers remain, or only some brokers have a rack."""
    node_ids = [broker.broker_id for broker in brokers]
    for node_id in without:
        if node_id not in node_ids:
            raise NotFound(f"there is no broker {node_id}; the brokers are {', '.join(map(str, node_ids))}")
    current = [
        Assignment(TopicPartition(topic.topic_name, partition.partition_id), partition.replicas)
        for topic in topics
        for partition in topic.partitions
    ]
    usable = [UsableBroker(broker.broker_id, broker.rack) for broker in brokers]
    staying = [broker for broker in usable if broker.node_id not in without]
    return plan_rebalance(current, staying, [broker for broker in usable if broker.node_id in without])


def _document(plan: Plan) -> dict[str, Any]:
    return {
        "replica_moves": plan.replica_moves,
        "leader_changes": plan.leader_changes,
        "reassignments": [
            {
                "topic_name": change.partition.topic,
                "partition_id": change.partition.partition,
                "replicas": change.old,
                "target_replicas": change.new,
                "adding_replicas": change.adding,
                "removing_replicas": change.removing,
            }
            for change in plan.reassignments
        ],
        "brokers": [
            {
                "broker_id": node_id,
                "replicas": plan.before[node_id].replicas,
                "leaders": plan.before[node_id].leaders,
                "target_replicas": plan.after[node_id].replicas,
                "target_leaders": plan.after[node_id].leaders,
            }
            for node_id in plan.before
        ],
    }


def _print(plan: Plan) -> None:
    if not plan.reassignments:
        print("nothing would move: the load is even")
        return
    moves, leaders = counted(plan.replica_moves, "replica"), counted(plan.leader_changes, "preferred leader")
    print(f"{moves} would move, {leaders} would change\n")
    rows = [
        [change.partition.topic, change.partition.partition, listed(change.old), listed(change.new)]
        for change in plan.reassignments
    ]
    print_table(["topic", "partition", "replicas", "would be"], rows)
    print()
    loads = [
        [node_id, before.replicas, plan.after[node_id].replicas, before.leaders, plan.after[node_id].leaders]
        for node_id, before in plan.before.items()
    ]
    print_table(["broker", "replicas", "would be", "leaders", "would be"], loads)
