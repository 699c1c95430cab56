"""`tidelog cluster`: who decides in a cluster, who votes, how far each broker is; and plans to even it out."""

from __future__ import annotations

from typing import Any

import msgspec
import typer

from tidelog.admin import AdminClient, ClusterDescription, RecoveryDescription
from tidelog.cli.broker import levels_of, role_of, state_of
from tidelog.cli.cluster_recover import recover
from tidelog.cli.connection import ask
from tidelog.cli.log_losses import shown_time
from tidelog.cli.options import Bootstrap, Json
from tidelog.cli.rebalance import rebalance
from tidelog.cli.rolling_restart import restart
from tidelog.cli.tables import print_table, show
from tidelog.cli.upgrade import upgrade
from tidelog.transport.addresses import DEFAULT_BOOTSTRAP

app = typer.Typer(help="Show the cluster, even out its load, restart and upgrade its brokers.", no_args_is_help=True)
app.command()(rebalance)
app.command()(recover)
app.command()(restart)
app.command()(upgrade)


@app.command()
def describe(bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, as_json: Json = False) -> None:
    """Show controller, feature level, voters, brokers, and what `tidelog cluster recover` gave up.

    Position and lag are how far each broker has applied the metadata log, and how far it is behind the one that is
    furthest; a dash means that it does not answer.

    \b
    Examples:
      tidelog cluster describe
      tidelog cluster describe --json
    """

    async def look(admin: AdminClient) -> _Described:
        cluster = await admin.describe_cluster()
        live = [broker for broker in cluster.brokers if not broker.is_fenced]
        return _Described(cluster, await admin.metadata_positions(live))

    described = ask(bootstrap, look)
    show(described, _print, as_json=as_json, document=_document)


class _Described(msgspec.Struct, frozen=True):
    cluster: ClusterDescription
    positions: dict[int, int | None]

    @property
    def newest(self) -> int:
        """How far the broker is that is furthest."""
        return max(self.cluster.metadata_position, *(found or 0 for found in self.positions.values()))

    def position(self, broker_id: int) -> int | None:
        """How far this broker is; None if it does not say."""
        return self.positions.get(broker_id)

    def lag(self, broker_id: int) -> int | None:
        """How many records this broker is behind; None if it does not say."""
        position = self.position(broker_id)
        return None if position is None else self.newest - position


def _document(described: _Described) -> dict[str, Any]:
    document: dict[str, Any] = {**msgspec.to_builtins(described.cluster), "metadata_position": described.newest}
    document["generation"] = described.cluster.generation
    for broker in document["brokers"]:
        broker["metadata_position"] = described.position(broker["broker_id"])
        broker["metadata_lag"] = described.lag(broker["broker_id"])
    return document


def _print(described: _Described) -> None:
    cluster = described.cluster
    controller = f"broker {cluster.controller_id}" if cluster.controller_id >= 0 else "none at the moment"
    print(f"cluster {cluster.cluster_id}")
    print(f"controller: {controller}, epoch {cluster.controller_epoch}; metadata position {described.newest}")
    print(f"feature level: {cluster.feature_level}\n")
    rows = [
        [
            broker.broker_id,
            broker.address,
            broker.rack,
            state_of(broker),
            role_of(broker),
            broker.broker_epoch,
            described.position(broker.broker_id),
            described.lag(broker.broker_id),
            levels_of(broker),
        ]
        for broker in cluster.brokers
    ]
    head = ["broker", "address", "rack", "state", "role", "epoch", "position", "lag", "levels"]
    print_table(head, rows, numbers=["position", "lag"])
    if cluster.voters:
        epochs = {broker.voter_id: broker.broker_epoch for broker in cluster.brokers}
        print()
        voters = [
            [
                voter.voter_id,
                voter.broker_id,
                f"{voter.host}:{voter.port}" if voter.host else None,
                epochs.get(voter.voter_id),
                "live" if voter.is_live else "silent",
            ]
            for voter in cluster.voters
        ]
        print_table(["voter", "broker", "peer address", "epoch", "state"], voters, numbers=["epoch"])
    for recovery in cluster.recoveries:
        _print_recovery(recovery)


def _print_recovery(recovery: RecoveryDescription) -> None:
    at, kept = shown_time(recovery.recovered_at_ms), recovery.kept_position
    print(
        f"\ngeneration {recovery.generation}, recovery {recovery.recovery_id or '(no id)'}: by {recovery.recovered_by}"
    )
    print(f"at {at}, kept up to metadata position {kept}; given up:")
    for sentence in recovery.given_up:
        print(f"  {sentence}")
