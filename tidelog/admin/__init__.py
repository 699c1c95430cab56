"""Managing a cluster from Python: `async with AdminClient() as admin: await admin.create_topic("t", partitions=12)`."""

from tidelog.admin.client import AdminClient
from tidelog.admin.group_results import (
    ConsumerDescription,
    GroupDescription,
    GroupListing,
    LagDescription,
    OffsetReset,
    TopicOwned,
)
from tidelog.admin.results import (
    BrokerDescription,
    ClusterDescription,
    ConfigDescription,
    ConfigSynonym,
    NewAssignment,
    NewTopic,
    PartitionDescription,
    ReassignmentDescription,
    RecoveryDescription,
    TopicDescription,
    TopicPlacement,
    VoterDescription,
)
from tidelog.transport.verification import ReplicaVerification

__all__ = [
    "AdminClient",
    "BrokerDescription",
    "ClusterDescription",
    "ConfigDescription",
    "ConfigSynonym",
    "ConsumerDescription",
    "GroupDescription",
    "GroupListing",
    "LagDescription",
    "NewAssignment",
    "NewTopic",
    "OffsetReset",
    "PartitionDescription",
    "ReassignmentDescription",
    "RecoveryDescription",
    "ReplicaVerification",
    "TopicDescription",
    "TopicOwned",
    "TopicPlacement",
    "VoterDescription",
]
