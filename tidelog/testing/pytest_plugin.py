"""Pytest fixtures. Put `pytest_plugins = ["tidelog.testing.pytest_plugin"]` into the topmost `conftest.py`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tidelog.testing.local_cluster import LocalCluster


@pytest.fixture(scope="session")
def tidelog_cluster() -> Iterator[LocalCluster]:
    """Yields a running cluster for the whole session: use topics of your own, and leave it running."""
    with LocalCluster() as cluster:
        yield cluster
