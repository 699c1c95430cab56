"""`BrokerFace`: the broker as its listeners see it, a record of its named parts. The broker makes it once."""

from __future__ import annotations

from dataclasses import dataclass

from tidelog.broker.face.access import Authorizer
from tidelog.broker.face.admission import Admission, ListenerLimits, Readiness
from tidelog.broker.face.audit import Audit
from tidelog.broker.face.cluster import Cluster
from tidelog.broker.face.groups import ConsumerGroups
from tidelog.broker.face.login import Login
from tidelog.broker.face.partitions import Partitions
from tidelog.broker.face.shares import Shares
from tidelog.broker.face.statistics import Statistics
from tidelog.broker.face.work import HeavyWork
from tidelog.broker.membership.administration import Administration
from tidelog.broker.rest_consumers.service import RestConsumers
from tidelog.model.ports import Clock


@dataclass(frozen=True, slots=True)
class BrokerFace:
    """The parts of a broker that its listeners use. All can be called before the broker is ready, which `readiness`
    reports.
    """

    cluster: Cluster
    partitions: Partitions
    administration: Administration
    groups: ConsumerGroups
    rest_consumers: RestConsumers
    statistics: Statistics
    readiness: Readiness
    authorizer: Authorizer
    login: Login
    shares: Shares
    work: HeavyWork
    """Runs work that would block the event loop for too long."""
    clock: Clock
    """The broker's clock, for timestamps of records that came without one."""
    audit: Audit | None = None

    def admission(self, limits: ListenerLimits) -> Admission:
        """Returns the admission control of a new listener."""
        return Admission(self.readiness, limits, self.authorizer)
