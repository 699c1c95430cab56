"""A real broker, and what a Spark task sees of it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tidelog.spark.cluster import Cluster
from tidelog.testing import LocalCluster


@pytest.fixture(scope="module")
def broker() -> Iterator[LocalCluster]:
    with LocalCluster() as cluster:
        yield cluster


@pytest.fixture
def cluster(broker: LocalCluster) -> Iterator[Cluster]:
    cluster = Cluster([broker.bootstrap], timeout_s=10.0)
    yield cluster
    cluster.close()
