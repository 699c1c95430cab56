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
from tidelog.admin.quotas import QuotaDescription
from tidelog.admin.results import (
    BrokerDescription,
    BrokerState,
    ClusterDescription,
    ConfigDescription,
    ConfigSynonym,
    FeatureLevels,
    LevelRaised,
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
    "BrokerState",
    "ClusterDescription",
    "ConfigDescription",
    "ConfigSynonym",
    "ConsumerDescription",
    "FeatureLevels",
    "GroupDescription",
    "GroupListing",
    "LagDescription",
    "LevelRaised",
    "NewAssignment",
    "NewTopic",
    "OffsetReset",
    "PartitionDescription",
    "QuotaDescription",
    "ReassignmentDescription",
    "RecoveryDescription",
    "ReplicaVerification",
    "TopicDescription",
    "TopicOwned",
    "TopicPlacement",
    "VoterDescription",
]
