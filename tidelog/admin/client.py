"""The admin client: topics, settings, brokers, offsets and consumer groups, over HTTP at any broker.

Reads are retried until they succeed or time out. Changes are retried only after errors that exclude that anything was
changed. If the outcome is unknown, the error's `definite` is False; check the state rather than repeat the change.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Self, Unpack
from urllib.parse import quote

import msgspec

from tidelog.adapters.secret_file import read_secret
from tidelog.adapters.system import SystemEntropy
from tidelog.admin.access import AccessCalls
from tidelog.admin.calls import Listed
from tidelog.admin.groups import GroupCalls
from tidelog.admin.quotas import QuotaCalls
from tidelog.admin.replicas import ReplicaCalls
from tidelog.admin.results import (
    BrokerDescription,
    BrokerState,
    ClusterDescription,
    ConfigDescription,
    LevelRaised,
    RecoveryDescription,
    VoterDescription,
)
from tidelog.admin.topics import TopicCalls
from tidelog.model.errors import NotFound, TidelogError
from tidelog.transport.addresses import DEFAULT_BOOTSTRAP
from tidelog.transport.errors import decode_answer
from tidelog.transport.parameters import client_parameters
from tidelog.transport.security import Security, SecurityParameters
from tidelog.transport.session import ClusterSession


class _Cluster(msgspec.Struct, frozen=True):
    controller_epoch: int
    metadata_position: int
    voters: tuple[VoterDescription, ...]
    recoveries: tuple[RecoveryDescription, ...] = ()
    feature_level: int = 1


STATE_TIMEOUT_S = 2.0


class AdminClient(TopicCalls, ReplicaCalls, GroupCalls, QuotaCalls, AccessCalls):
    """Manages topics, brokers, consumer groups, quotas and access. An async context manager; or call `start` and
    `stop`.

    `bootstrap_servers` are URLs or `host:port` of some brokers of the cluster, comma-separated or as a list;
    `request_timeout_ms` bounds each call; `client_id` is the client's name for quotas and logs. `security_protocol` and
    `ssl_*` are those of the `Producer`.
    """

    @client_parameters(bootstrap="bootstrap_servers")
    def __init__(
        self,
        bootstrap_servers: str | Sequence[str] = DEFAULT_BOOTSTRAP,
        *,
        request_timeout_ms: float = 30_000,
        client_id: str = "",
        **security: Unpack[SecurityParameters],
    ) -> None:
        secure = Security(**security)
        super().__init__(
            ClusterSession(
                bootstrap_servers,
                request_timeout_s=request_timeout_ms / 1000,
                connections_max=8,
                client_id=client_id,
                entropy=SystemEntropy(),
                credentials=secure.credentials(read_secret),
                security=secure,
            )
        )

    async def start(self) -> None:
        """Connects. Raises `ConnectFailed` if no broker of the bootstrap list can be reached."""
        await self._session.open()

    async def stop(self) -> None:
        """Closes the connections. Idempotent."""
        await self._session.close()

    close = stop

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def describe_cluster(self) -> ClusterDescription:
        """Returns the cluster's controller, voters and brokers."""
        cluster = await self._read(_Cluster, "")
        brokers = await self.list_brokers()
        controllers = [broker.broker_id for broker in brokers if broker.is_controller]
        return ClusterDescription(
            self._session.cluster_id,
            controllers[0] if controllers else -1,
            cluster.controller_epoch,
            cluster.metadata_position,
            cluster.voters,
            tuple(brokers),
            cluster.recoveries,
            cluster.feature_level,
        )

    async def raise_feature_level(self, *, validate_only: bool = False) -> LevelRaised:
        """Raises the cluster's feature level, irreversibly, to the highest that any of its brokers supports.
        Idempotent. Raises `UnsupportedLevel` with the brokers that do not support it."""
        body = await self._change("POST", "/feature-level:raise", {"validate_only": validate_only}, safe=True)
        return decode_answer(LevelRaised, body)

    async def list_brokers(self) -> list[BrokerDescription]:
        """Returns the registered brokers, live and fenced, by node id."""
        return [self._reached(broker) for broker in (await self._read(Listed[BrokerDescription], "/brokers")).data]

    async def describe_broker(self, broker_id: int) -> BrokerDescription:
        """Returns a registered broker. Raises `NotFound`."""
        return self._reached(await self._read(BrokerDescription, f"/brokers/{broker_id}"))

    def _reached(self, broker: BrokerDescription) -> BrokerDescription:
        return msgspec.structs.replace(broker, scheme=self._session.scheme)

    async def broker_states(self, brokers: Sequence[BrokerDescription]) -> dict[int, BrokerState | None]:
        """Returns the state of each of these brokers, requested from the broker itself; None for one that does not
        respond."""
        states = await asyncio.gather(*(self._broker_state(broker) for broker in brokers))
        return {broker.broker_id: state for broker, state in zip(brokers, states, strict=True)}

    async def _broker_state(self, broker: BrokerDescription) -> BrokerState | None:
        try:
            return await self._read(BrokerState, "", address=broker.address, timeout_s=STATE_TIMEOUT_S)
        except TidelogError:
            return None

    async def remove_broker(self, broker_id: int) -> None:
        """Removes a broker from the cluster permanently. Raises `NotFound`, or `InvalidRequest` with the steps to take
        first if it holds replicas or too few voters would remain."""
        await self._change("DELETE", f"/brokers/{broker_id}", safe=False)

    async def describe_broker_configs(self, broker_id: int) -> list[ConfigDescription]:
        """Returns all settings of a broker, requested from the broker itself. Raises `NotFound`."""
        address = await self._address_of(broker_id)
        return (await self._read(Listed[ConfigDescription], f"/brokers/{broker_id}/configs", address=address)).data

    async def alter_broker_config(self, broker_id: int, name: str, value: str | None) -> None:
        """Changes a setting of a running broker until it restarts; None restores the value that it was started with.
        Only `log.level` can be changed. Raises `NotFound`, `InvalidRequest`."""
        address = await self._address_of(broker_id)
        path = f"/brokers/{broker_id}/configs/{quote(name, safe='')}"
        await self._change("PUT", path, {"value": value}, safe=True, address=address)

    async def _address_of(self, broker_id: int) -> str:
        for broker in (await self._session.metadata()).brokers:
            if broker.node_id == broker_id:
                return broker.address
        raise NotFound(f"there is no live broker {broker_id}")
