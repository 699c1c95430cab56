"""REST v3: the cluster, its brokers, and producer ids.

What Confluent's proxy does not show is added: who votes on the metadata log, how far the addressed broker has applied
it, and whether a registered broker counts as live.
"""

from __future__ import annotations

from typing import Final

from aiohttp import web
from msgspec import UNSET, Struct, UnsetType

from tidelog.broker.http import params
from tidelog.broker.http.answers import json_answer, no_content
from tidelog.broker.http.body import read_body, read_json
from tidelog.broker.http.call import Call
from tidelog.broker.http.context import Context
from tidelog.broker.http.envelope import Links, ListMetadata, Related, Resource, ResourceList
from tidelog.broker.http.json_body import Body, json_decoder
from tidelog.broker.http.partitions_v3 import ReplicaV3, replica_shown
from tidelog.model.cluster import KAFKA, NO_LEADER, BrokerInfo, ClusterImage, ClusterRecovery, Voter
from tidelog.model.errors import NotFound
from tidelog.model.ids import NodeId


class VoterV3(Struct, frozen=True):
    """A voter on the metadata log: a broker's disk. `host` and `port` are its peer address."""

    voter_id: int
    broker_id: int
    host: str
    port: int
    is_live: bool


class RecoveryV3(Struct, frozen=True):
    """The metadata log was begun anew, by `tidelog cluster recover`, from what was left of it: all up to the metadata
    position `kept_position`, but what the sentences of `given_up` name. `recovery_id` is empty if an older version did
    it."""

    generation: int
    recovery_id: str
    recovered_at_ms: int
    recovered_by: str
    kept_position: int
    given_up: list[str]


class ClusterV3(Resource, frozen=True):
    """A cluster. `controller` links to the broker that is the controller now, and is left out where none is;
    `controller_epoch` rises with each that becomes it. `metadata_position` is how far the broker that answers has
    applied the metadata log. `generation` is how often that was begun anew, and `recoveries` tell of the last hundred
    times, oldest first. `clock_offset_ms` is how far the clock of the broker that answers is ahead of the others', as
    it was told last, and `clock_is_off` is true while that is over its `clock.skew.ms.max`. `feature_level` is the
    level at which metadata are written (`feature-level:raise`). `insecure_listeners` has a sentence about each listener
    of the broker that answers that strangers on other machines can reach, and that believes them."""

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
    """The feature levels that a broker speaks, both ends included."""

    lowest: int
    highest: int


class BrokerV3(Resource, frozen=True):
    """A registered broker; `host` and `port` are its HTTP address, `kafka_host` and `kafka_port` where Kafka's clients
    find it, null if they do not. A fenced one is not heard of now, and leads nothing.

    `broker_epoch` is the position of its registration in the metadata log. `voter_id` is null if it does not vote.
    `feature_levels` are the lowest and the highest that it speaks, null if the broker that answers does not know: at
    level 1 of the cluster they are not written down, and only a broker that is there can say.
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
    """The body that raises the cluster's feature level; with `validate_only` nothing is raised."""

    validate_only: bool = False


class LevelRaisedV3(Struct, frozen=True):
    """The cluster's feature level before, and now, or as it would be. Equal if it is the highest already."""

    before: int
    feature_level: int


_RAISE: Final = json_decoder(RaiseAsked)


class ProducerIdV3(Struct, frozen=True):
    """A producer id that nobody else has."""

    producer_id: int
    producer_epoch: int


async def list_clusters(context: Context, call: Call) -> web.StreamResponse:
    """The cluster, as a list of one."""
    links = Links(context, call)
    data = [_cluster(context, links)]
    return json_answer(ResourceList("KafkaClusterList", ListMetadata(links.clusters_url), data))


async def get_cluster(context: Context, call: Call) -> web.StreamResponse:
    """The cluster."""
    return json_answer(_cluster(context, Links(context, call)))


async def raise_feature_level(context: Context, call: Call) -> web.StreamResponse:
    """Raises the feature level of the cluster, for good, to the highest that any of its brokers speaks.

    Refused unless all registered brokers speak it."""
    Links(context, call)
    body = await read_json(context, call, _RAISE)
    raised = await context.face.administration.by(call.caller).raise_level(validate_only=body.validate_only)
    return json_answer(LevelRaisedV3(raised.before, raised.level))


async def list_brokers(context: Context, call: Call) -> web.StreamResponse:
    """The registered brokers, live or fenced."""
    links = Links(context, call)
    image = context.face.cluster.image
    data = [_broker(links, context, image.brokers[node_id]) for node_id in sorted(image.brokers)]
    return json_answer(links.list_of("KafkaBroker", data, "brokers"))


async def get_broker(context: Context, call: Call) -> web.StreamResponse:
    """A broker."""
    links = Links(context, call)
    return json_answer(_broker(links, context, broker_of(context, call)))


async def remove_broker(context: Context, call: Call) -> web.StreamResponse:
    """Removes a broker from the cluster, which will not come back; refused as long as it has what others need."""
    Links(context, call)
    await context.face.administration.by(call.caller).remove_broker(broker_of(context, call).node_id)
    return no_content()


async def list_broker_replicas(context: Context, call: Call) -> web.StreamResponse:
    """The replicas on a broker."""
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
    """A producer id that nobody else has."""
    Links(context, call)
    await read_body(context, call, context.limits.json_bytes_max, is_optional=True)
    return json_answer(ProducerIdV3(await context.face.administration.allocate_producer_id(), 0), status=201)


def broker_of(context: Context, call: Call) -> BrokerInfo:
    """Returns the broker of the path. Raises `NotFound` if none is registered under this id."""
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
    """Returns the last one that took office, as long as somebody leads the metadata log; as far as this broker
    knows."""
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
