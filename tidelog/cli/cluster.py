"""`tidelog cluster`: shows controller, voters and brokers, and how far each broker has applied the metadata log."""

from __future__ import annotations

from typing import Any

import msgspec
import typer

from tidelog.admin import AdminClient, BrokerState, ClusterDescription, RecoveryDescription
from tidelog.cli.broker import levels_of, role_of, state_of
from tidelog.cli.cluster_recover import recover
from tidelog.cli.cluster_watch import wait
from tidelog.cli.connection import ask
from tidelog.cli.log_losses import shown_time
from tidelog.cli.options import Bootstrap, Json
from tidelog.cli.rebalance import rebalance
from tidelog.cli.rolling_restart import restart
from tidelog.cli.tables import print_table, show
from tidelog.cli.upgrade import upgrade
from tidelog.transport.addresses import DEFAULT_BOOTSTRAP

app = typer.Typer(
    help="Show the cluster, wait for it, rebalance, restart and upgrade its brokers.", no_args_is_help=True
)
for _command in (rebalance, recover, restart, upgrade, wait):
    app.command()(_command)


@app.command()
def describe(bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, as_json: Json = False) -> None:
    """Show controller, feature level, voters, brokers, and what `tidelog cluster recover` gave up.

    Position is how far each broker has applied the metadata log, lag how far it is behind the most advanced broker; a
    dash means that it does not respond. Clock is by how many milliseconds its clock is ahead of the other brokers'.

    \b
    Examples:
      tidelog cluster describe
      tidelog cluster describe --json
    """

    async def look(admin: AdminClient) -> _Described:
        cluster = await admin.describe_cluster()
        live = [broker for broker in cluster.brokers if not broker.is_fenced]
        return _Described(cluster, await admin.broker_states(live))

    described = ask(bootstrap, look)
    show(described, _print, as_json=as_json, document=_document)


class _Described(msgspec.Struct, frozen=True):
    cluster: ClusterDescription
    states: dict[int, BrokerState | None]

    @property
    def newest(self) -> int:
        """The metadata position of the most advanced broker."""
        positions = [state.metadata_position for state in self.states.values() if state is not None]
        return max([self.cluster.metadata_position, *positions])

    def position(self, broker_id: int) -> int | None:
        """Returns the applied metadata position of a broker; None if it does not respond."""
        state = self.states.get(broker_id)
        return None if state is None else state.metadata_position

    def lag(self, broker_id: int) -> int | None:
        """Returns the number of metadata records that a broker is behind; None if it does not respond."""
        position = self.position(broker_id)
        return None if position is None else self.newest - position

    def said(self, broker_id: int) -> BrokerState:
        """Returns what a broker reports about itself; an empty report if it does not respond."""
        return self.states.get(broker_id) or BrokerState(-1)


def _document(described: _Described) -> dict[str, Any]:
    document: dict[str, Any] = {**msgspec.to_builtins(described.cluster), "metadata_position": described.newest}
    document["generation"] = described.cluster.generation
    for broker in document["brokers"]:
        broker["metadata_position"] = described.position(broker["broker_id"])
        broker["metadata_lag"] = described.lag(broker["broker_id"])
        said = described.said(broker["broker_id"])
        broker["clock_offset_ms"], broker["clock_is_off"] = said.clock_offset_ms, said.clock_is_off
        broker["insecure_listeners"] = said.insecure_listeners
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
            described.said(broker.broker_id).clock_offset_ms,
            levels_of(broker),
        ]
        for broker in cluster.brokers
    ]
    head = ["broker", "address", "rack", "state", "role", "epoch", "position", "lag", "clock", "levels"]
    print_table(head, rows, numbers=["position", "lag", "clock"])
    for broker in cluster.brokers:
        said = described.said(broker.broker_id)
        if said.clock_is_off:
            print(f"\n{_clock_warning(broker.broker_id, said.clock_offset_ms or 0)}")
        for sentence in said.insecure_listeners:
            print(f"\nbroker {broker.broker_id} is not secure: {sentence}")
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


def _clock_warning(broker_id: int, offset_ms: int) -> str:
    direction = "ahead of" if offset_ms > 0 else "behind"
    return (
        f"broker {broker_id}'s clock is off: {abs(offset_ms):,} ms {direction} the others', over clock.skew.ms.max; it "
        "goes by theirs and deletes nothing by age; check that machine's time service"
    )


def _print_recovery(recovery: RecoveryDescription) -> None:
    at, kept = shown_time(recovery.recovered_at_ms), recovery.kept_position
    print(
        f"\ngeneration {recovery.generation}, recovery {recovery.recovery_id or '(no id)'}: by {recovery.recovered_by}"
    )
    print(f"at {at}, kept up to metadata position {kept}; given up:")
    for sentence in recovery.given_up:
        print(f"  {sentence}")
