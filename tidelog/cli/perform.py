"""The execution of the statements of `tidelog admin`."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence

import msgspec

from tidelog.admin import AdminClient, BrokerDescription
from tidelog.cli import statements
from tidelog.cli.broker import print_brokers
from tidelog.cli.group import print_groups
from tidelog.cli.moving import move
from tidelog.cli.tables import show
from tidelog.cli.terminal import CommandError, counted, print_json, say
from tidelog.cli.topic import print_topics, shape_of
from tidelog.model.errors import NotFound

POLL_S = 0.25


class Performer:
    """Executes statements and prints the results: as text, or (`as_json`) one JSON document each.

    Waits at most `wait_s` seconds for named brokers that are missing. Added brokers get their share of the replicas;
    removed ones are emptied first. `throttle_bytes_per_s` applies to both.
    """

    def __init__(self, admin: AdminClient, *, as_json: bool, wait_s: float, throttle_bytes_per_s: int | None) -> None:
        self._admin = admin
        self._as_json = as_json
        self._wait_s = wait_s
        self._throttle = throttle_bytes_per_s

    async def perform(self, statement: statements.Statement) -> None:
        """Executes a statement. Raises `TidelogError` as the brokers do, or `CommandError`."""
        if isinstance(statement, statements.CreateTopic):
            await self._create_topic(statement)
        elif isinstance(statement, statements.DropTopic):
            await self._admin.delete_topic(statement.name)
            say({"topic_name": statement.name}, f"dropped topic {statement.name}", as_json=self._as_json)
        elif isinstance(statement, statements.CreateCluster):
            await self._create_cluster(statement.node_ids)
        elif isinstance(statement, statements.AddBrokers):
            await self._add(statement.node_ids)
        elif isinstance(statement, statements.RemoveBrokers):
            await self._remove(statement.node_ids)
        else:
            await self._show(statement)

    # -- topics --------------------------------------------------------------------------------------------------

    async def _create_topic(self, statement: statements.CreateTopic) -> None:
        placement = await self._admin.create_topic(
            statement.name,
            partitions=statement.partitions,
            replication_factor=statement.replicas,
            configs={} if statement.protocol is None else {"commit.protocol": statement.protocol},
        )
        text = f"created topic {statement.name}: {shape_of(placement)}"
        say(msgspec.to_builtins(placement), text, as_json=self._as_json)

    async def _show(self, statement: statements.Show) -> None:
        if statement.what is statements.Shown.TOPICS:
            topics = [topic for topic in await self._admin.describe_topics() if not topic.is_internal]
            show(topics, print_topics, as_json=self._as_json)
        elif statement.what is statements.Shown.BROKERS:
            show(await self._admin.list_brokers(), print_brokers, as_json=self._as_json)
        else:
            show(await self._admin.list_groups(), print_groups, as_json=self._as_json)

    # -- brokers -------------------------------------------------------------------------------------------------

    async def _create_cluster(self, node_ids: Sequence[int]) -> None:
        """Waits until the cluster consists of exactly these brokers. Brokers found a cluster when they start; no client
        can do it."""
        others = [broker.broker_id for broker in await self._admin.list_brokers() if broker.broker_id not in node_ids]
        if others:
            raise CommandError(
                f"the cluster has {_named(others)} as well; name all its brokers, or say "
                f"`alter cluster remove brokers {_named(others)}`"
            )
        brokers = await self._wait_for(node_ids)
        cluster = await self._admin.describe_cluster()
        text = f"cluster {cluster.cluster_id} consists of {_named([broker.broker_id for broker in brokers])}"
        say(msgspec.to_builtins(cluster), text, as_json=self._as_json)

    async def _add(self, node_ids: Sequence[int]) -> None:
        await self._wait_for(node_ids)
        reassigned = await move(self._admin, throttle_bytes_per_s=self._throttle)
        brokers = [broker for broker in await self._admin.list_brokers() if broker.broker_id in node_ids]
        show(brokers, print_brokers, as_json=self._as_json)
        if not self._as_json:
            print(
                f"\n{counted(reassigned, 'partition')} reassigned" if reassigned else "\nthere was nothing to reassign"
            )

    async def _remove(self, node_ids: Sequence[int]) -> None:
        members = [broker.broker_id for broker in await self._admin.list_brokers()]
        for node_id in node_ids:
            if node_id not in members:
                raise NotFound(f"the cluster has no {_named([node_id])}; it has {_named(members)}")
        if len(node_ids) < len(members):
            await move(self._admin, leaving=node_ids, throttle_bytes_per_s=self._throttle)
        for node_id in node_ids:
            await self._admin.remove_broker(node_id)
            if not self._as_json:
                print(f"removed broker-{node_id}")
        if self._as_json:
            print_json(msgspec.to_builtins(await self._admin.list_brokers()))

    async def _wait_for(self, node_ids: Sequence[int]) -> list[BrokerDescription]:
        """Waits until these brokers are live, and returns them. Prints how to start the missing ones, and those that
        have arrived.

        Raises `CommandError` after the time limit.
        """
        deadline_s = asyncio.get_running_loop().time() + self._wait_s
        missing: list[int] | None = None
        while True:
            brokers = await self._admin.list_brokers()
            live = [broker.broker_id for broker in brokers if not broker.is_fenced]
            absent = [node_id for node_id in node_ids if node_id not in live]
            if missing is None and absent:
                _explain(absent, brokers)
            for node_id in missing or ():
                if node_id not in absent:
                    _say(f"broker-{node_id} is in the cluster")
            missing = absent
            if not missing:
                return [broker for broker in brokers if broker.broker_id in node_ids]
            if asyncio.get_running_loop().time() >= deadline_s:
                raise CommandError(f"{_named(missing)} did not come within {self._wait_s:g} s (--wait)")
            await asyncio.sleep(POLL_S)


def how_to_found(node_ids: Sequence[int]) -> str:
    """Returns the commands that found a new cluster of these brokers: they form it when all have been started."""
    voters = ",".join(f"{node_id}@HOST:PEERPORT" for node_id in node_ids)
    return (
        f"to found a cluster, start each of {_named(node_ids)} with: tidelog start --node-id N --data-dir DIR "
        f"--http HOST:PORT --peer HOST:PEERPORT --set cluster.voters={voters}"
    )


def _explain(absent: Sequence[int], brokers: Sequence[BrokerDescription]) -> None:
    """Prints how to start the absent brokers, which only their machines can do."""
    by_id = {broker.broker_id: broker for broker in brokers}
    address = next(broker.address for broker in brokers if not broker.is_fenced)
    for node_id in absent:
        if node_id in by_id:
            _say(f"broker-{node_id} belongs to the cluster but is not heard of; start it again where its data is")
        else:
            _say(
                f"waiting for broker-{node_id}; start it with: tidelog start --node-id {node_id} --join {address} "
                "--data-dir DIR --http HOST:PORT --peer HOST:PORT"
            )


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _named(node_ids: Sequence[int]) -> str:
    return ", ".join(f"broker-{node_id}" for node_id in node_ids)
