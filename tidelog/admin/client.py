"""The admin client: topics, settings, brokers, offsets and consumer groups, over HTTP at any broker.

Reads are retried until they succeed or time out. Changes are retried only after errors that exclude that anything was
changed. If the outcome is unknown, the error's `definite` is False; check the state rather than repeat the change.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Self, Unpack
from urllib.parse import quote

import msgspec

from tidelog.adapters.secret_file import read_secret
from tidelog.adapters.system import SystemEntropy
from tidelog.admin.access import AccessCalls
from tidelog.admin.calls import Listed
from tidelog.admin.groups import GroupCalls
from tidelog.admin.quotas import QuotaCalls
from tidelog.admin.results import (
    BrokerDescription,
    BrokerState,
    ClusterDescription,
    ConfigDescription,
    LevelRaised,
    NewAssignment,
    NewTopic,
    ReassignmentDescription,
    RecoveryDescription,
    TopicDescription,
    TopicPlacement,
    VoterDescription,
)
from tidelog.model.errors import InvalidRequest, NotFound, TidelogError, TopicExists, UnknownTopic
from tidelog.model.ids import TopicPartition
from tidelog.transport.addresses import DEFAULT_BOOTSTRAP
from tidelog.transport.errors import decode_answer
from tidelog.transport.losses import AcceptedLoss, LossesJudged
from tidelog.transport.metadata import TopicMetadata
from tidelog.transport.offsets import OffsetQuery, PartitionOffsets, fetch_offsets
from tidelog.transport.parameters import client_parameters
from tidelog.transport.security import Security, SecurityParameters
from tidelog.transport.session import ClusterSession
from tidelog.transport.verification import BrokerVerification, ReplicaVerification


class _Cluster(msgspec.Struct, frozen=True):
    controller_epoch: int
    metadata_position: int
    voters: tuple[VoterDescription, ...]
    recoveries: tuple[RecoveryDescription, ...] = ()
    feature_level: int = 1


STATE_TIMEOUT_S = 2.0


class AdminClient(GroupCalls, QuotaCalls, AccessCalls):
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

    # -- topics --------------------------------------------------------------------------------------------------

    async def create_topic(
        self,
        name: str,
        *,
        partitions: int | None = None,
        replication_factor: int | None = None,
        replicas_assignments: Mapping[int, Sequence[int]] | None = None,
        configs: Mapping[str, str] | None = None,
        validate_only: bool = False,
        exist_ok: bool = False,
    ) -> TopicPlacement:
        """Creates a topic; all live brokers know it when this returns. With `validate_only` nothing is created.

        With `exist_ok` an existing topic of this name is returned unchanged, whatever its settings. Raises
        `TopicExists`, or `InvalidRequest` for invalid parameters.
        """
        topic = NewTopic(
            topic_name=name,
            partitions_count=partitions,
            replication_factor=replication_factor,
            replicas_assignments=replicas_assignments,
            configs=configs or {},
        )
        return await self._create(topic, validate_only=validate_only, exist_ok=exist_ok)

    async def create_topics(
        self, topics: Sequence[NewTopic], *, validate_only: bool = False, exist_ok: bool = False
    ) -> list[TopicPlacement]:
        """Creates topics one after the other. The first error ends this; topics created before it stay."""
        return [await self._create(topic, validate_only=validate_only, exist_ok=exist_ok) for topic in topics]

    async def _create(self, topic: NewTopic, *, validate_only: bool, exist_ok: bool) -> TopicPlacement:
        try:
            return await self._ask_to_create(topic, validate_only=validate_only)
        except InvalidRequest as error:
            existing = await self._existing(topic.topic_name)
            if existing is None:
                raise
            if not exist_ok:
                raise TopicExists(f"topic {topic.topic_name} exists already") from error
            return TopicPlacement.of(existing)

    async def _existing(self, name: str) -> TopicMetadata | None:
        """Returns the topic of this name; None if there is none or the name is invalid."""
        try:
            topics = (await self._session.metadata(name)).topics
        except InvalidRequest:
            return None
        return next((topic for topic in topics if topic.name == name), None)

    async def _ask_to_create(self, topic: NewTopic, *, validate_only: bool) -> TopicPlacement:
        configs = [{"name": name, "value": value} for name, value in topic.configs.items()]
        document = {**msgspec.structs.asdict(topic), "configs": configs, "validate_only": validate_only}
        given = {name: value for name, value in document.items() if value is not None}
        return decode_answer(TopicPlacement, await self._change("POST", "/topics", given, safe=validate_only))

    async def delete_topic(self, name: str) -> None:
        """Deletes a topic and all its records. Raises `UnknownTopic`."""
        await self._change("DELETE", f"/topics/{quote(name, safe='')}", safe=False)

    async def list_topics(self, *, include_internal: bool = False) -> list[str]:
        """Returns the names of all topics, sorted."""
        metadata = await self._session.all_metadata()
        return sorted(topic.name for topic in metadata.topics if include_internal or not topic.is_internal)

    async def describe_topic(self, name: str) -> TopicDescription:
        """Returns a topic and the state of its partitions. Raises `UnknownTopic`."""
        return (await self.describe_topics([name]))[0]

    async def describe_topics(self, names: Sequence[str] | None = None) -> list[TopicDescription]:
        """Returns these topics in this order, or all topics. Raises `UnknownTopic`."""
        if names is None:
            return [TopicDescription.of(topic) for topic in (await self._session.all_metadata()).topics]
        topics = {topic.name: topic for topic in (await self._session.metadata(*names)).topics}
        missing = [name for name in names if name not in topics]
        if missing:
            raise UnknownTopic(f"topic {missing[0]!r} does not exist")
        return [TopicDescription.of(topics[name]) for name in names]

    async def create_partitions(self, name: str, total: int) -> TopicPlacement:
        """Increases a topic's partitions to `total`. This changes the partitions of keys: records of one key may end up
        in two partitions. Raises `UnknownTopic`, `InvalidRequest`."""
        body = await self._change("PATCH", f"/topics/{quote(name, safe='')}", {"partitions_count": total}, safe=False)
        return decode_answer(TopicPlacement, body)

    # -- settings ------------------------------------------------------------------------------------------------

    async def describe_configs(self, topic: str) -> list[ConfigDescription]:
        """Returns all settings of a topic, with their sources. Raises `UnknownTopic`."""
        return (await self._read(Listed[ConfigDescription], f"/topics/{quote(topic, safe='')}/configs")).data

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

    async def alter_configs(
        self, topic: str, changes: Mapping[str, str | None], *, validate_only: bool = False
    ) -> None:
        """Changes settings of a topic, all or none; None restores the default. Raises `UnknownTopic`,
        `InvalidRequest`."""
        data = [
            {"name": name, "operation": "DELETE"} if value is None else {"name": name, "value": value}
            for name, value in changes.items()
        ]
        document = {"data": data, "validate_only": validate_only}
        await self._change("POST", f"/topics/{quote(topic, safe='')}/configs:alter", document, safe=True)

    # -- cluster -------------------------------------------------------------------------------------------------

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

    # -- replicas that move --------------------------------------------------------------------------------------

    async def rebalance(
        self, *, leaving: Sequence[int] = (), validate_only: bool = False, throttle_bytes_per_s: int | None = None
    ) -> list[NewAssignment]:
        """Starts to spread all replicas evenly over the brokers, with as few moves as possible and none on brokers that
        are `leaving`. Returns the new assignments; with `validate_only`, only computes them. Idempotent.

        `throttle_bytes_per_s` bounds the bytes that each broker sends and receives for all current moves, until they
        are in sync; 0 removes the bound, None keeps the present one. It ends with the last move.

        Raises `NotFound` or `InvalidRequest`; then nothing moves.
        """
        document = {
            "leaving": list(leaving),
            "validate_only": validate_only,
            "throttle_bytes_per_s": throttle_bytes_per_s,
        }
        body = await self._change("POST", "/brokers:rebalance", document, safe=True)
        return decode_answer(Listed[NewAssignment], body).data

    async def alter_reassignments(
        self, moves: Sequence[NewAssignment], *, throttle_bytes_per_s: int | None = None
    ) -> None:
        """Starts to move partitions to other replicas (KIP-455), all or none. `throttle_bytes_per_s` is that of
        `rebalance`.

        Raises `UnknownTopic`, `UnknownPartition`, `InvalidRequest`.
        """
        document = {
            "data": [msgspec.to_builtins(move) for move in moves],
            "throttle_bytes_per_s": throttle_bytes_per_s,
        }
        await self._change("POST", "/topics/-/partitions/-/reassignment", document, safe=True)

    async def list_reassignments(self) -> list[ReassignmentDescription]:
        """Returns the partitions whose replicas are being moved, from the metadata of any broker."""
        return (await self._read(Listed[ReassignmentDescription], "/topics/-/partitions/-/reassignment")).data

    async def cancel_reassignments(self) -> None:
        """Cancels all moves: replicas stay where they were. Raises `InvalidRequest` if records would be lost."""
        await self._change("DELETE", "/topics/-/partitions/-/reassignment", safe=True)

    async def elect_preferred_leaders(self) -> int:
        """Makes the first replica of each partition its leader where it is in sync. Returns the number of changed
        leaders."""
        body = await self._change("POST", "/topics/-/partitions:elect", {"election_type": "preferred"}, safe=True)
        return len(decode_answer(Listed[msgspec.Raw], body).data)

    # -- replicas that rot ---------------------------------------------------------------------------------------

    async def verify_replica(
        self,
        topic: str,
        partition: int,
        broker_id: int,
        *,
        offset: int = 0,
        to: int | None = None,
        names_batches: bool = False,
    ) -> ReplicaVerification:
        """Makes a broker read its replica from `offset` up to `to` or the high watermark and check it. The result may
        end earlier: continue at `next_offset`. Damage that is found gets repaired in the background.

        Raises `UnknownTopic`, `UnknownPartition`, `NotFound` if the broker has no replica, `LeaderNotAvailable` if it
        is down.
        """
        path = f"/topics/{quote(topic, safe='')}/partitions/{partition}/replicas/{broker_id}/verification"
        query = f"?offset={offset}" + ("" if to is None else f"&to={to}") + ("&batches=true" if names_batches else "")
        return await self._read(ReplicaVerification, path + query)

    async def verify_broker(self, broker_id: int, *, after: str = "") -> BrokerVerification:
        """Makes a broker read and check its files other than logs: journals, the metadata log, snapshots, and small
        files kept in two copies. Begins behind the files called `after`, the last name in the result of the call
        before, and may end before the last file (`is_last`).

        Raises `NotFound`, `LeaderNotAvailable` if the broker is down, `Overloaded` during another such check.
        """
        return await self._read(BrokerVerification, f"/brokers/{broker_id}/verification?after={quote(after, safe='')}")

    async def accept_loss(
        self,
        topic: str,
        partition: int,
        offsets: tuple[int, int] | None = None,
        *,
        even_though: Sequence[int] = (),
        votes: bool = False,
        validate_only: bool = False,
    ) -> LossesJudged:
        """Gives up records that are damaged on every replica, at the offsets [start, end) or at all: readers skip them
        from then on, even if a copy turns up later. With `votes`, makes a partition without a majority of voters
        continue from what the surviving replicas have. With `validate_only`, only returns the state of the replicas.
        Idempotent.

        Raises `LossRefused` if nothing is damaged, an intact copy is left, or a broker that may have one cannot be
        asked and is not in `even_though`; with `votes`, if the partition has a leader, can elect one, or has changed.
        Also raises `UnknownTopic`, `UnknownPartition`, `OffsetOutOfRange`, `LeaderNotAvailable`.
        """
        document: dict[str, object] = {"even_though": list(even_though), "votes": votes, "validate_only": validate_only}
        if offsets is not None:
            document |= {"start_offset": offsets[0], "end_offset": offsets[1]}
        path = f"/topics/{quote(topic, safe='')}/partitions/{partition}/losses"
        return decode_answer(LossesJudged, await self._change("POST", path, document, safe=True))

    async def list_losses(self, topic: str | None = None) -> list[AcceptedLoss]:
        """Returns the audit records of given-up losses, of the cluster or of one topic. Raises `UnknownTopic`."""
        name = "-" if topic is None else quote(topic, safe="")
        return (await self._read(Listed[AcceptedLoss], f"/topics/{name}/partitions/-/losses")).data

    # -- offsets -------------------------------------------------------------------------------------------------

    async def list_offsets(
        self, partitions: Sequence[TopicPartition] | Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, PartitionOffsets]:
        """Returns the start and end offsets of partitions; with a mapping to timestamps (ms), also the first offset
        with that time or a later one.

        Entries of partitions whose offsets are unknown have an `error`; the call itself does not fail for them.
        """
        times: Mapping[TopicPartition, int | None] = (
            partitions if isinstance(partitions, Mapping) else dict.fromkeys(partitions)
        )
        queries = [OffsetQuery(topic, partition, time) for (topic, partition), time in times.items()]
        return {entry.key: entry for entry in await fetch_offsets(self._session, queries)}

    async def delete_records(self, topic: str, partition: int, before_offset: int) -> None:
        """Deletes the committed records of a partition before an offset, on all replicas (Kafka: DeleteRecords). When
        it returns, the log start offset is `before_offset` or larger. Idempotent.

        Raises `UnknownTopic`, `UnknownPartition`, `OffsetOutOfRange` beyond the high watermark; and
        `TimedOutAfterAppend` if the records may be deleted later.
        """
        path = f"/topics/{quote(topic, safe='')}/partitions/{partition}/records:delete"
        await self._change("POST", path, {"before_offset": before_offset}, safe=True, tells_timeout=True)
