"""The admin client: topics, settings, brokers, offsets, consumer groups, over HTTP at any broker.

Reads are repeated until they succeed or time runs out. Changes are repeated only after errors that say nothing was
changed; where the outcome is unknown the error says so (`definite` is False), and looking is better than repeating.
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
from tidelog.admin.calls import Listed, decoded
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
    """Manages topics, consumer groups and quotas, and looks at a cluster. An async context manager; or call `start`
    and `stop`.

    `bootstrap_servers` are URLs or `host:port` of any brokers of the cluster, as a comma list or a list;
    `request_timeout_ms` bounds each call; `client_id` is whose quota counts, beside the user's. `security_protocol` and
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
        """Closes. Idempotent."""
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
        """Creates a topic; every live broker knows it when this returns. With `validate_only` nothing is created.

        With `exist_ok` a topic of this name is returned as it is, whatever else was asked for. Raises `TopicExists`, or
        `InvalidRequest` if it cannot be made as asked.
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
        """Creates topics one after the other; the first error ends it, and what was created before stays."""
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
        """Returns the topic of this name, if there is one; a name that no topic can have finds none."""
        try:
            found = (await self._session.metadata(name)).topics
        except InvalidRequest:
            return None
        return next((topic for topic in found if topic.name == name), None)

    async def _ask_to_create(self, topic: NewTopic, *, validate_only: bool) -> TopicPlacement:
        configs = [{"name": name, "value": value} for name, value in topic.configs.items()]
        asked = {**msgspec.structs.asdict(topic), "configs": configs, "validate_only": validate_only}
        given = {name: value for name, value in asked.items() if value is not None}
        return decoded(TopicPlacement, await self._change("POST", "/topics", given, safe=validate_only))

    async def delete_topic(self, name: str) -> None:
        """Deletes a topic and all its records. Raises `UnknownTopic`."""
        await self._change("DELETE", f"/topics/{quote(name, safe='')}", safe=False)

    async def list_topics(self, *, include_internal: bool = False) -> list[str]:
        """The names of all topics, sorted."""
        metadata = await self._session.all_metadata()
        return sorted(topic.name for topic in metadata.topics if include_internal or not topic.is_internal)

    async def describe_topic(self, name: str) -> TopicDescription:
        """A topic and the state of its partitions. Raises `UnknownTopic`."""
        return (await self.describe_topics([name]))[0]

    async def describe_topics(self, names: Sequence[str] | None = None) -> list[TopicDescription]:
        """These topics, in this order, or all there are. Raises `UnknownTopic`."""
        if names is None:
            return [TopicDescription.of(topic) for topic in (await self._session.all_metadata()).topics]
        found = {topic.name: topic for topic in (await self._session.metadata(*names)).topics}
        missing = [name for name in names if name not in found]
        if missing:
            raise UnknownTopic(f"topic {missing[0]!r} does not exist")
        return [TopicDescription.of(found[name]) for name in names]

    async def create_partitions(self, name: str, total: int) -> TopicPlacement:
        """Grows a topic to `total` partitions. Adding partitions changes where keys go: records of one key may end up
        in two partitions. Raises `UnknownTopic`, `InvalidRequest`."""
        body = await self._change("PATCH", f"/topics/{quote(name, safe='')}", {"partitions_count": total}, safe=False)
        return decoded(TopicPlacement, body)

    # -- settings ------------------------------------------------------------------------------------------------

    async def describe_configs(self, topic: str) -> list[ConfigDescription]:
        """All settings of a topic, with their sources. Raises `UnknownTopic`."""
        return (await self._read(Listed[ConfigDescription], f"/topics/{quote(topic, safe='')}/configs")).data

    async def describe_broker_configs(self, broker_id: int) -> list[ConfigDescription]:
        """All settings of a broker, asked of itself. Raises `NotFound`."""
        address = await self._address_of(broker_id)
        return (await self._read(Listed[ConfigDescription], f"/brokers/{broker_id}/configs", address=address)).data

    async def alter_broker_config(self, broker_id: int, name: str, value: str | None) -> None:
        """Sets a setting of a broker until it ends; None goes back to what it was told when it was started. Only
        `log.level` can be changed. Raises `NotFound`, `InvalidRequest`."""
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
        """Sets settings of a topic, all or none; None goes back to the default. Raises `UnknownTopic`,
        `InvalidRequest`."""
        data = [
            {"name": name, "operation": "DELETE"} if value is None else {"name": name, "value": value}
            for name, value in changes.items()
        ]
        asked = {"data": data, "validate_only": validate_only}
        await self._change("POST", f"/topics/{quote(topic, safe='')}/configs:alter", asked, safe=True)

    # -- cluster -------------------------------------------------------------------------------------------------

    async def describe_cluster(self) -> ClusterDescription:
        """The cluster: controller, voters, brokers."""
        found = await self._read(_Cluster, "")
        brokers = await self.list_brokers()
        controllers = [broker.broker_id for broker in brokers if broker.is_controller]
        return ClusterDescription(
            self._session.cluster_id,
            controllers[0] if controllers else -1,
            found.controller_epoch,
            found.metadata_position,
            found.voters,
            tuple(brokers),
            found.recoveries,
            found.feature_level,
        )

    async def raise_feature_level(self, *, validate_only: bool = False) -> LevelRaised:
        """Raises the cluster's feature level to the highest that any of its brokers speaks: for good. Repeating it does
        no harm. Raises `UnsupportedLevel`, which names the brokers that do not speak it."""
        body = await self._change("POST", "/feature-level:raise", {"validate_only": validate_only}, safe=True)
        return decoded(LevelRaised, body)

    async def list_brokers(self) -> list[BrokerDescription]:
        """The registered brokers, live and fenced, by node id."""
        return [self._reached(broker) for broker in (await self._read(Listed[BrokerDescription], "/brokers")).data]

    async def describe_broker(self, broker_id: int) -> BrokerDescription:
        """A registered broker. Raises `NotFound`."""
        return self._reached(await self._read(BrokerDescription, f"/brokers/{broker_id}"))

    def _reached(self, broker: BrokerDescription) -> BrokerDescription:
        return msgspec.structs.replace(broker, scheme=self._session.scheme)

    async def broker_states(self, brokers: Sequence[BrokerDescription]) -> dict[int, BrokerState | None]:
        """How each of these brokers is, asked of itself; None where none answers."""
        states = await asyncio.gather(*(self._broker_state(broker) for broker in brokers))
        return {broker.broker_id: state for broker, state in zip(brokers, states, strict=True)}

    async def _broker_state(self, broker: BrokerDescription) -> BrokerState | None:
        try:
            return await self._read(BrokerState, "", address=broker.address, timeout_s=STATE_TIMEOUT_S)
        except TidelogError:
            return None

    async def remove_broker(self, broker_id: int) -> None:
        """Removes a broker from the cluster for good. Raises `NotFound`, or `InvalidRequest` with what must be done
        first: it holds replicas, or too few voters would be left."""
        await self._change("DELETE", f"/brokers/{broker_id}", safe=False)

    # -- replicas that move --------------------------------------------------------------------------------------

    async def rebalance(
        self, *, leaving: Sequence[int] = (), validate_only: bool = False, throttle_bytes_per_s: int | None = None
    ) -> list[NewAssignment]:
        """Begins to spread all replicas evenly over the brokers, with as few moves as possible, and none on brokers
        that are `leaving`. What begins to move; with `validate_only`, what would. A repetition finds nothing to do.

        With `throttle_bytes_per_s`, no broker sends or receives more than that for all replicas that move now, until
        they are in sync; 0 takes a throttle off, None leaves it. It ends with the last move.

        Raises `NotFound` or `InvalidRequest`; then nothing moves.
        """
        asked = {
            "leaving": list(leaving),
            "validate_only": validate_only,
            "throttle_bytes_per_s": throttle_bytes_per_s,
        }
        body = await self._change("POST", "/brokers:rebalance", asked, safe=True)
        return decoded(Listed[NewAssignment], body).data

    async def alter_reassignments(
        self, moves: Sequence[NewAssignment], *, throttle_bytes_per_s: int | None = None
    ) -> None:
        """Begins to move partitions to other replicas (KIP-455), all or none; the throttle is that of `rebalance`.

        Raises `UnknownTopic`, `UnknownPartition`, `InvalidRequest`.
        """
        asked = {
            "data": [msgspec.to_builtins(move) for move in moves],
            "throttle_bytes_per_s": throttle_bytes_per_s,
        }
        await self._change("POST", "/topics/-/partitions/-/reassignment", asked, safe=True)

    async def list_reassignments(self) -> list[ReassignmentDescription]:
        """The partitions whose replicas move now. Their state is in the metadata, so any broker knows."""
        return (await self._read(Listed[ReassignmentDescription], "/topics/-/partitions/-/reassignment")).data

    async def cancel_reassignments(self) -> None:
        """Calls off all moves: replicas stay where they were. Raises `InvalidRequest` if records would be lost."""
        await self._change("DELETE", "/topics/-/partitions/-/reassignment", safe=True)

    async def elect_preferred_leaders(self) -> int:
        """Has the first replica of each partition lead where it is in sync; how many partitions changed leaders."""
        body = await self._change("POST", "/topics/-/partitions:elect", {"election_type": "preferred"}, safe=True)
        return len(decoded(Listed[msgspec.Raw], body).data)

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
        """Has a broker read and check its replica from `offset` on, up to `to` or the high watermark, or less far: go
        on at `next_offset`. What is found damaged is repaired soon.

        Raises `UnknownTopic`, `UnknownPartition`, `NotFound` if it holds none, `LeaderNotAvailable` if it is down.
        """
        path = f"/topics/{quote(topic, safe='')}/partitions/{partition}/replicas/{broker_id}/verification"
        query = f"?offset={offset}" + ("" if to is None else f"&to={to}") + ("&batches=true" if names_batches else "")
        return await self._read(ReplicaVerification, path + query)

    async def verify_broker(self, broker_id: int, *, after: str = "") -> BrokerVerification:
        """Has a broker read and check what it keeps besides logs: journals, the metadata log, snapshots, facts in two
        copies. Goes on behind the name `after`, and may come less far than the end.

        Raises `NotFound`, `LeaderNotAvailable` if it is down, `Overloaded` while somebody else has it verified.
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
        """Gives up what is damaged on every replica, of the offsets [start, end) or of all: readers pass it from now
        on, whatever turns up later. With `votes`, has a partition that nobody can lead go on from what its replicas
        have. With `validate_only`, only tells what they have. Repeating it does no harm.

        Raises `LossRefused` if nothing is damaged, a good copy is left, or a broker that may have one cannot be asked
        and is not among `even_though`; with `votes`, if the partition has a leader or can elect one, or has changed.
        Raises `UnknownTopic`, `UnknownPartition`, `OffsetOutOfRange`, `LeaderNotAvailable` besides.
        """
        asked: dict[str, object] = {"even_though": list(even_though), "votes": votes, "validate_only": validate_only}
        if offsets is not None:
            asked |= {"start_offset": offsets[0], "end_offset": offsets[1]}
        path = f"/topics/{quote(topic, safe='')}/partitions/{partition}/losses"
        return decoded(LossesJudged, await self._change("POST", path, asked, safe=True))

    async def list_losses(self, topic: str | None = None) -> list[AcceptedLoss]:
        """Returns what was given up, in the cluster or of one topic: the audit records. Raises `UnknownTopic`."""
        name = "-" if topic is None else quote(topic, safe="")
        return (await self._read(Listed[AcceptedLoss], f"/topics/{name}/partitions/-/losses")).data

    # -- offsets -------------------------------------------------------------------------------------------------

    async def list_offsets(
        self, partitions: Sequence[TopicPartition] | Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, PartitionOffsets]:
        """Returns the first and last offsets of partitions; with a mapping to timestamps (ms), also the first offset of
        that time.

        Entries of partitions that cannot be told have an `error`; the call itself does not fail for them.
        """
        times: Mapping[TopicPartition, int | None] = (
            partitions if isinstance(partitions, Mapping) else dict.fromkeys(partitions)
        )
        queries = [OffsetQuery(topic, partition, time) for (topic, partition), time in times.items()]
        return {found.key: found for found in await fetch_offsets(self._session, queries)}

    async def delete_records(self, topic: str, partition: int, before_offset: int) -> None:
        """Deletes the committed records of a partition before an offset, on all replicas (Kafka: DeleteRecords); when
        it returns, the partition begins there, or later. A repetition does no harm.

        Raises `UnknownTopic`, `UnknownPartition`, `OffsetOutOfRange` beyond the high watermark; and
        `TimedOutAfterAppend` if they may be deleted later.
        """
        path = f"/topics/{quote(topic, safe='')}/partitions/{partition}/records:delete"
        await self._change("POST", path, {"before_offset": before_offset}, safe=True, tells_timeout=True)
