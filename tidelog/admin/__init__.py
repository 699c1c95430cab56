"""The admin client: `async with AdminClient() as admin: await admin.create_topic("t", partitions=12)`."""

from tidelog.admin.access import AclDescription, NewToken, TokenDescription, UserDescription
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
    "AclDescription",
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
    "NewToken",
    "NewTopic",
    "OffsetReset",
    "PartitionDescription",
    "QuotaDescription",
    "ReassignmentDescription",
    "RecoveryDescription",
    "ReplicaVerification",
    "TokenDescription",
    "TopicDescription",
    "TopicOwned",
    "TopicPlacement",
    "UserDescription",
    "VoterDescription",
]
