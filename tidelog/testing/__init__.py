"""Tools to test programs that use tidelog: a real cluster on this machine, with faults on demand.

`with LocalCluster() as cluster: ...` or `async with LocalCluster() as cluster: ...`; a fixture is in
`tidelog.testing.pytest_plugin`. A `Recording` records the history of a test's clients and checks it for consistency.
"""

from tidelog.testing.broker_process import BrokerFailed, BrokerProcess
from tidelog.testing.local_cluster import LocalCluster
from tidelog.testing.private_network import NetworkUnavailable, PrivateNetwork
from tidelog.testing.recording import Recording

__all__ = ["BrokerFailed", "BrokerProcess", "LocalCluster", "NetworkUnavailable", "PrivateNetwork", "Recording"]
