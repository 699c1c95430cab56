"""DescribeCluster: the brokers of the cluster. Each broker names itself as controller, since any broker takes admin
requests."""

from __future__ import annotations

from typing import Any, Final

from tidelog.broker.kafka.call import Call
from tidelog.broker.kafka.listener_parts import Parts
from tidelog.model.access import Caller
from tidelog.model.cluster import KAFKA
from tidelog.model.kafka_codes import KafkaCode

BROKERS: Final = 1
"""The only supported endpoint type; the other one is controllers."""


async def describe_cluster(parts: Parts, _call: Call, request: Any, _caller: Caller) -> dict[str, Any]:
    """Returns the answer to DescribeCluster, as nested dicts with the field names of the library kio."""
    cluster, endpoints = parts.cluster, getattr(request, "endpoint_type", BROKERS)
    brokers = [broker for broker in cluster.image.live_brokers if KAFKA in broker.listeners]
    return {
        "error_code": 0 if endpoints == BROKERS else KafkaCode.INVALID_REQUEST,
        "error_message": None if endpoints == BROKERS else "controllers have no listener of their own: ask brokers",
        "endpoint_type": endpoints,
        "cluster_id": cluster.cluster_id,
        "controller_id": cluster.node_id,
        "brokers": [
            {
                "broker_id": broker.node_id,
                "host": broker.listeners[KAFKA].host,
                "port": broker.listeners[KAFKA].port,
                "rack": broker.rack,
                "is_fenced": broker.is_fenced,
            }
            for broker in brokers
        ],
    }
