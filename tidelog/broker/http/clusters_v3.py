"""REST v3: the cluster, its brokers, and producer ids."""

from __future__ import annotations

from aiohttp import web
from msgspec import Struct

from tidelog.broker.http import params
from tidelog.broker.http.answers import json_answer
from tidelog.broker.http.body import read_body
from tidelog.broker.http.context import Call, Context
from tidelog.broker.http.envelope import ListMetadata, Metadata, Place, Related, ResourceList
from tidelog.broker.http.partitions_v3 import ReplicaV3, replica_shown
from tidelog.model.cluster import BrokerInfo
from tidelog.model.errors import NotFound
from tidelog.model.ids import NodeId


class ClusterV3(Struct, frozen=True):
    """A cluster. `controller` links to the broker that is the controller now, if one is."""

    kind: str
    metadata: Metadata
    cluster_id: str
    controller: Related | None
    brokers: Related
    topics: Related


class BrokerV3(Struct, frozen=True):
    """A live broker; `host` and `port` are its HTTP address."""

    kind: str
    metadata: Metadata
    cluster_id: str
    broker_id: int
    host: str
    port: int
    rack: str | None
    configs: Related
    partition_replicas: Related


class ProducerIdV3(Struct, frozen=True):
    """A producer id that nobody else has."""

    producer_id: int
    producer_epoch: int


async def list_clusters(context: Context, call: Call) -> web.StreamResponse:
    """The cluster, as a list of one."""
    place = Place(context, call)
    data = [_cluster(context, place)]
    return json_answer(ResourceList("KafkaClusterList", ListMetadata(place.clusters_url()), data))


async def get_cluster(context: Context, call: Call) -> web.StreamResponse:
    """The cluster."""
    return json_answer(_cluster(context, Place(context, call)))


async def list_brokers(context: Context, call: Call) -> web.StreamResponse:
    """The live brokers."""
    place = Place(context, call)
    brokers = context.broker.image.brokers
    data = [_broker(place, brokers[node_id]) for node_id in sorted(brokers)]
    return json_answer(place.list_of("KafkaBroker", data, "brokers"))


async def get_broker(context: Context, call: Call) -> web.StreamResponse:
    """A broker."""
    place = Place(context, call)
    return json_answer(_broker(place, broker_of(context, call)))


async def list_broker_replicas(context: Context, call: Call) -> web.StreamResponse:
    """The replicas on a broker."""
    place = Place(context, call)
    node_id = broker_of(context, call).node_id
    topics = context.broker.image.topics
    data: list[ReplicaV3] = [
        replica_shown(place, topics[name], partition, node_id)
        for name in sorted(topics)
        for partition in topics[name].partitions
        if node_id in partition.replicas
    ]
    return json_answer(place.list_of("KafkaReplica", data, "brokers", node_id, "partition-replicas"))


async def allocate_producer_id(context: Context, call: Call) -> web.StreamResponse:
    """A producer id that nobody else has."""
    Place(context, call)
    await read_body(context, call, context.limits.json_bytes_max, is_optional=True)
    return json_answer(ProducerIdV3(await context.broker.allocate_producer_id(), 0), status=201)


def broker_of(context: Context, call: Call) -> BrokerInfo:
    """The broker of the path. `NotFound` if there is no such live broker."""
    node_id = NodeId(params.node_number(call.path["broker_id"]))
    brokers = context.broker.image.brokers
    if node_id not in brokers:
        raise NotFound(f"there is no broker {node_id}; the live ones are {', '.join(map(str, sorted(brokers)))}")
    return brokers[node_id]


def _cluster(context: Context, place: Place) -> ClusterV3:
    controller_id = context.broker.image.controller_id
    return ClusterV3(
        "KafkaCluster",
        place.metadata(),
        place.cluster_id,
        place.related("brokers", controller_id) if controller_id >= 0 else None,
        place.related("brokers"),
        place.related("topics"),
    )


def _broker(place: Place, broker: BrokerInfo) -> BrokerV3:
    return BrokerV3(
        "KafkaBroker",
        place.metadata("brokers", broker.node_id),
        place.cluster_id,
        broker.node_id,
        broker.host,
        broker.port,
        broker.rack,
        place.related("brokers", broker.node_id, "configs"),
        place.related("brokers", broker.node_id, "partition-replicas"),
    )
