"""`Parts`: the objects that the handlers of one listener share."""

from __future__ import annotations

from dataclasses import dataclass, field

from tidelog.broker.face.admission import Admission
from tidelog.broker.face.audit import AuditEvent
from tidelog.broker.face.cluster import Cluster
from tidelog.broker.face.face import BrokerFace
from tidelog.broker.face.partitions import Partitions
from tidelog.broker.kafka.limits import KafkaLimits
from tidelog.broker.kafka.metadata import MetadataCalls
from tidelog.broker.kafka.metrics import KafkaMetrics
from tidelog.broker.kafka.missed_leaders import MissedLeaders
from tidelog.broker.kafka.slices import Turn
from tidelog.broker.kafka.topic_ids import TopicIds
from tidelog.model.access import Caller, Operation, Resource, refusal
from tidelog.model.cluster import KAFKA
from tidelog.model.errors import NotAuthorized
from tidelog.model.ports import LogLevel


@dataclass(slots=True)
class Parts:
    """The objects that the handlers and connections of one listener share: the broker, its limits, metrics and
    caches."""

    face: BrokerFace
    admission: Admission
    limits: KafkaLimits
    metrics: KafkaMetrics
    log_level: LogLevel
    ids: TopicIds = field(default_factory=TopicIds)
    turn: Turn = field(default_factory=Turn)
    missed: MissedLeaders = field(init=False)
    metadata: MetadataCalls = field(init=False)

    def __post_init__(self) -> None:
        self.missed = MissedLeaders(self.face)
        self.metadata = MetadataCalls(self.face, self.admission, self.ids, self.missed)

    def may(self, caller: Caller, operation: Operation, resource: Resource) -> bool:
        """Returns True if the ACLs allow the caller this operation on the resource. A refusal is written to the audit
        log."""
        if self.admission.is_open or self.admission.may(caller, operation, resource):
            return True
        if self.face.audit is not None:
            self.face.audit.denied(
                AuditEvent(
                    event="denied",
                    principal=str(caller.principal),
                    address=caller.host,
                    listener=KAFKA,
                    operation=operation.value,
                    resource_type=resource.type,
                    resource_name=resource.name,
                    allowed=False,
                    error_code=NotAuthorized.code,
                    reason="no right",
                )
            )
        return False

    def refuse_unauthorized(self, caller: Caller, operation: Operation, resource: Resource) -> None:
        """Raises `NotAuthorized` unless the ACLs allow the caller this operation on the resource."""
        if not self.may(caller, operation, resource):
            raise refusal(caller, operation, resource)

    @property
    def cluster(self) -> Cluster:
        """The cluster's metadata, as this broker has applied it."""
        return self.face.cluster

    @property
    def partitions(self) -> Partitions:
        """The partitions of the cluster, as this broker can reach them."""
        return self.face.partitions
