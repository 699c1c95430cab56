"""`tidelog topic move`: moves the replicas of one partition to the brokers that the user names."""

from __future__ import annotations

import re
from typing import Annotated

import msgspec
import typer

from tidelog.admin import AdminClient, NewAssignment
from tidelog.cli.connection import ask
from tidelog.cli.moving import watch
from tidelog.cli.options import Bootstrap, Json, Throttle, TopicName, parse_rate
from tidelog.cli.terminal import UsageError, say
from tidelog.transport.addresses import DEFAULT_BOOTSTRAP


def move(
    topic: TopicName,
    partition: Annotated[int, typer.Argument(min=0, metavar="PARTITION", show_default=False)],
    to: Annotated[
        str,
        typer.Option(
            metavar="NODES", help="The brokers, separated by commas; the first is to lead.", show_default=False
        ),
    ],
    throttle: Throttle = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: Json = False,
) -> None:
    """Move a partition's replicas to other brokers.

    New replicas copy the partition while clients go on; those on other brokers are deleted when all new ones are in
    sync. The brokers do it: after Ctrl-C the move continues. `tidelog cluster rebalance --cancel` calls it off.

    \b
    Examples:
      tidelog topic move flights 0 --to 3,2
      tidelog topic move flights 0 --to 3,2,4 --throttle 50MB
    """
    if not re.fullmatch(r"\d{1,9}(,\d{1,9})*", to, re.ASCII):
        raise UsageError(f"--to {to!r} is no list of brokers; give their node ids, as 3,2")
    assignment = NewAssignment(topic, partition, tuple(map(int, to.split(","))))
    rate = parse_rate(throttle)

    async def move_it(admin: AdminClient) -> None:
        await admin.alter_reassignments([assignment], throttle_bytes_per_s=rate)
        await watch(admin, 1)
        await admin.elect_preferred_leaders()

    ask(bootstrap, move_it)
    say(msgspec.to_builtins(assignment), f"{topic}-{partition} is on brokers {to}", as_json=as_json)
