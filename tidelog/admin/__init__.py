"""Managing a cluster from Python: `async with AdminClient() as admin: await admin.create_topic("t", partitions=12)`."""

from tidelog.admin.client import AdminClient
from tidelog.admin.results import (
    BrokerDescription,
    ClusterDescription,
    ConfigDescription,
    ConfigSynonym,
    NewAssignment,
    NewTopic,
    PartitionDescription,
    ReassignmentDescription,
    ReplicaVerification,
    TopicDescription,
    TopicPlacement,
    VoterDescription,
)

__all__ = [
    "AdminClient",
    "BrokerDescription",
    "ClusterDescription",
    "ConfigDescription",
    "ConfigSynonym",
    "NewAssignment",
    "NewTopic",
    "PartitionDescription",
    "ReassignmentDescription",
    "ReplicaVerification",
    "TopicDescription",
    "TopicPlacement",
    "VoterDescription",
]
