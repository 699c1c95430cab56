"""ListConfigResources (KIP-1142): lists the resources whose settings DescribeConfigs shows: topics, brokers, and the
loggers of brokers."""

from __future__ import annotations

from typing import Any, Final

from tidelog.broker.kafka.admin.codes import Refused
from tidelog.broker.kafka.admin.configs import BROKER, BROKER_LOGGER, TOPIC
from tidelog.broker.kafka.admin.desk import Desk, Tree, bound
from tidelog.model.access import CLUSTER, Operation
from tidelog.model.kafka_codes import KafkaCode

CLIENT_METRICS, GROUP = 16, 32
EMPTY: Final = frozenset({CLIENT_METRICS, GROUP})
"""Resource types of Kafka that have no resources with settings in this broker: an empty list is returned for them."""
CLIENT_METRICS_ONLY: Final = 0
"""The request version that asks only for client metrics resources."""


async def list_config_resources(desk: Desk, request: Any) -> Tree:
    """Lists the resources of the requested types; topics and brokers if no type is requested."""
    kinds = [CLIENT_METRICS] if desk.call.version == CLIENT_METRICS_ONLY else request.resource_types
    bound(len(kinds))
    try:
        desk.require(Operation.DESCRIBE_CONFIGS, CLUSTER)
        return {"error_code": 0, "config_resources": _resources(desk, {*kinds} or {TOPIC, BROKER, BROKER_LOGGER})}
    except Refused as error:
        return {"error_code": error.code, "config_resources": []}


def _resources(desk: Desk, kinds: set[int]) -> list[Tree]:
    brokers = [*map(str, desk.image.brokers)]
    named = {TOPIC: desk.image.topics, BROKER: brokers, BROKER_LOGGER: brokers}
    if not kinds <= named.keys() | EMPTY:
        raise Refused(KafkaCode.UNSUPPORTED_VERSION, "there is no such type of resources")
    return [
        {"resource_name": name, "resource_type": kind}
        for kind, names in named.items()
        if kind in kinds
        for name in names
    ]
