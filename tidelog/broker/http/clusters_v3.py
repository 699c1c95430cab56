"""REST v3: the cluster, its brokers, and producer ids.

Additions to Confluent's REST Proxy: the voters of the metadata log, how far the addressed broker has applied it, and
whether a registered broker is live.
"""

from __future__ import annotations

from aiohttp import web
from msgspec import UNSET, Struct, UnsetType

from tidelog.broker.http import params
from tidelog.broker.http.answers import json_answer, no_content
from tidelog.broker.http.body import read_body, read_json
from tidelog.broker.http.call import Call
from tidelog.broker.http.context import Context
from tidelog.broker.http.envelope import Links, ListMetadata, Related, Resource, ResourceList
from tidelog.broker.http.json_body import Body
from tidelog.broker.http.partitions_v3 import ReplicaV3, replica_shown
from tidelog.model.cluster import KAFKA, NO_LEADER, BrokerInfo, ClusterImage, ClusterRecovery, Voter
from tidelog.model.errors import NotFound
from tidelog.model.ids import NodeId


class VoterV3(Struct, frozen=True):
    """A voter of the metadata log: a broker's disk. `host` and `port` are its address for other brokers."""

    voter_id: int
    broker_id: int
    host: str
    port: int
    is_live: bool


class RecoveryV3(Struct, frozen=True):
    """A recovery: the metadata log was started anew by `tidelog cluster recover` from the records that were left, all
    up to the metadata position `kept_position`; the sentences of `given_up` name what was lost. `recovery_id` is empty
    if an older version did it.
    """

    generation: int
    recovery_id: str
    recovered_at_ms: int
    recovered_by: str
    kept_position: int
    given_up: list[str]


class ClusterV3(Resource, frozen=True):
    """A cluster. `controller` links to the active controller's broker, and is left out if there is none;
    `controller_epoch` rises with each new controller. `metadata_position` is how far the answering broker has applied
    the metadata log. `generation` counts how often that log was started anew, and `recoveries` describes the last
    hundred times, oldest first. `clock_offset_ms` is how far the answering broker's clock is ahead of the others', as
    last measured, and `clock_is_off` is true while that exceeds its `clock.skew.ms.max`. `feature_level` is the level
    at which metadata are written (`feature-level:raise`). `insecure_listeners` has a sentence for each listener of the
    answering broker that other machines can reach in plain text or without proving their identity.
    """

    controller_epoch: int
    metadata_position: int
    generation: int
    feature_level: int
    recoveries: list[RecoveryV3]
    voters: list[VoterV3]
    acls: Related
    brokers: Related
    broker_configs: Related
    consumer_groups: Related
    topics: Related
    partition_reassignments: Related
    clock_offset_ms: int
    clock_is_off: bool
    insecure_listeners: list[str]
    controller: Related | UnsetType = UNSET


class FeatureLevelsV3(Struct, frozen=True):
    """The range of feature levels that a broker supports, both ends included."""

    lowest: int
    highest: int


class BrokerV3(Resource, frozen=True):
    """A registered broker; `host` and `port` are its HTTP address, `kafka_host` and `kafka_port` that for Kafka's
    protocol, null if it has none. A fenced broker sends no heartbeats, and leads nothing.

    `broker_epoch` is the position of its registration in the metadata log. `voter_id` is null if it does not vote.
    `feature_levels` are the lowest and the highest level that it supports, null if the answering broker does not know
    them: at feature level 1 of the cluster they are not in the metadata, and only a connected broker tells them.
    """

    broker_id: int
    host: str
    port: int
    rack: str | None
    is_fenced: bool
    is_controller: bool
    broker_epoch: int
    voter_id: int | None
    peer_host: str
    peer_port: int
    feature_levels: FeatureLevelsV3 | None
    kafka_host: str | None
    kafka_port: int | None
    configs: Related
    partition_replicas: Related


class RaiseAsked(Body):
    """The body of a request to raise the cluster's feature level; with `validate_only` nothing is raised."""

    validate_only: bool = False


class LevelRaisedV3(Struct, frozen=True):
    """The cluster's feature level before, and after; with `validate_only` the level that it would have. Equal if it is
    the highest already.
    """

    before: int
    feature_level: int


class ProducerIdV3(Struct, frozen=True):
    """A producer id that is unique in the cluster."""

    producer_id: int
    producer_epoch: int


async def list_clusters(context: Context, call: Call) -> web.StreamResponse:
    """Lists the one cluster that the broker belongs to."""
    links = Links(context, call)
    data = [_cluster(context, links)]
    return json_answer(ResourceList("KafkaClusterList", ListMetadata(links.clusters_url), data))


async def get_cluster(context: Context, call: Call) -> web.StreamResponse:
    """Returns the cluster."""
    return json_answer(_cluster(context, Links(context, call)))


async def raise_feature_level(context: Context, call: Call) -> web.StreamResponse:
    """Raises the feature level of the cluster, irrevocably, to the highest that any of its brokers supports.

    Refused unless all registered brokers support it.
    """
    body = await read_json(context, call, RaiseAsked)
    raised = await context.face.administration.by(call.caller).raise_level(validate_only=body.validate_only)
    return json_answer(LevelRaisedV3(raised.before, raised.level))


async def list_brokers(context: Context, call: Call) -> web.StreamResponse:
    """Lists the registered brokers, live or fenced."""
    links = Links(context, call)
    image = context.face.cluster.image
    data = [_broker(links, context, image.brokers[node_id]) for node_id in sorted(image.brokers)]
    return json_answer(links.list_of("KafkaBroker", data, "brokers"))


async def get_broker(context: Context, call: Call) -> web.StreamResponse:
    """Returns a broker."""
    links = Links(context, call)
    return json_answer(_broker(links, context, broker_of(context, call)))


async def remove_broker(context: Context, call: Call) -> web.StreamResponse:
    """Removes a broker for good from the cluster; refused while it has replicas or votes that the cluster needs."""
    await context.face.administration.by(call.caller).remove_broker(broker_of(context, call).node_id)
    return no_content()


async def list_broker_replicas(context: Context, call: Call) -> web.StreamResponse:
    """Lists the replicas on a broker."""
    links = Links(context, call)
    node_id = broker_of(context, call).node_id
    topics = context.face.cluster.image.topics
    data: list[ReplicaV3] = [
        replica_shown(links, topics[name], partition, node_id)
        for name in sorted(topics)
        for partition in topics[name].partitions
        if node_id in partition.replicas
    ]
    return json_answer(links.list_of("KafkaReplica", data, "brokers", node_id, "partition-replicas"))


async def allocate_producer_id(context: Context, call: Call) -> web.StreamResponse:
    """Allocates a producer id that is unique in the cluster."""
    await read_body(context, call, context.limits.json_bytes_max, is_optional=True)
    return json_answer(ProducerIdV3(await context.face.administration.allocate_producer_id(), 0), status=201)


def broker_of(context: Context, call: Call) -> BrokerInfo:
    """Returns the broker of the path. Raises `NotFound` if none is registered with this id."""
    node_id = NodeId(params.node_number(call.path["broker_id"]))
    brokers = context.face.cluster.image.brokers
    if node_id not in brokers:
        raise NotFound(f"there is no broker {node_id}; the brokers are {', '.join(map(str, sorted(brokers)))}")
    return brokers[node_id]


def _cluster(context: Context, links: Links) -> ClusterV3:
    image, controller = context.face.cluster.image, _controller(context)
    time = context.face.statistics.time
    return ClusterV3(
        *links.resource("KafkaCluster"),
        image.controller_epoch,
        image.position,
        image.generation,
        image.level,
        [_recovery(recovery) for recovery in image.recoveries],
        [_voter(image, voter) for voter in image.voters],
        links.related("acls"),
        links.related("brokers"),
        links.related("broker-configs"),
        links.related("consumer-groups"),
        links.related("topics"),
        links.related("topics", "-", "partitions", "-", "reassignment"),
        time.offset_ms,
        time.is_off,
        list(context.face.cluster.insecure_listeners),
        links.related("brokers", controller) if controller >= 0 else UNSET,
    )


def _controller(context: Context) -> NodeId:
    """Returns the node id of the active controller, as far as this broker knows; -1 if the metadata log has no
    leader.
    """
    cluster = context.face.cluster
    return NO_LEADER if cluster.controller_node is None else cluster.image.controller_id


def _recovery(recovery: ClusterRecovery) -> RecoveryV3:
    given_up = list(recovery.given_up)
    return RecoveryV3(recovery.generation, recovery.recovery_id, recovery.at_ms, recovery.by, recovery.kept, given_up)


def _voter(image: ClusterImage, voter: Voter) -> VoterV3:
    is_live = any(broker.voter_id == voter.voter_id for broker in image.live_brokers)
    return VoterV3(voter.voter_id, voter.node_id, voter.host, voter.port, is_live)


def _broker(links: Links, context: Context, broker: BrokerInfo) -> BrokerV3:
    votes = any(voter.voter_id == broker.voter_id for voter in context.face.cluster.image.voters)
    levels, kafka = context.face.cluster.levels_of(broker), broker.listeners.get(KAFKA)
    return BrokerV3(
        *links.resource("KafkaBroker", "brokers", broker.node_id),
        broker.node_id,
        broker.http.host,
        broker.http.port,
        broker.rack,
        broker.is_fenced,
        broker.node_id == _controller(context),
        broker.epoch,
        broker.voter_id if votes else None,
        broker.peer_host,
        broker.peer_port,
        None if levels is None else FeatureLevelsV3(levels.lowest, levels.highest),
        None if kafka is None else kafka.host,
        None if kafka is None else kafka.port,
        links.related("brokers", broker.node_id, "configs"),
        links.related("brokers", broker.node_id, "partition-replicas"),
    )
