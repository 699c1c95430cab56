"""Logs of replicas that cannot be opened now."""

from __future__ import annotations

import errno
from types import SimpleNamespace
from typing import Any

import pytest

from tidelog.broker.partitions.replica_logs import ReplicaLogs
from tidelog.broker.runtime.stats import Stats
from tidelog.config.schema import BrokerConfig
from tidelog.config.topics import topic_config
from tidelog.model.errors import Overloaded
from tidelog.model.ids import PartitionId, TopicId

PARTITION = PartitionId(TopicId("0" * 31 + "1"), 0)


@pytest.mark.parametrize(
    "error", [Overloaded("too many open files"), OSError(errno.EIO, "no")], ids=["shortage", "disk"]
)
def test_a_log_that_cannot_be_opened_costs_its_partition_and_is_tried_again(error: Exception) -> None:
    asked = 0

    def refuse(*_: Any, **__: Any) -> None:
        nonlocal asked
        asked += 1
        raise error

    manager: Any = SimpleNamespace(logs={}, open_log=refuse, held=lambda since: None)
    clock: Any = SimpleNamespace(wall_ms=lambda: 0)
    logs = ReplicaLogs(manager, clock, Stats(), lambda _: None)
    config = topic_config(BrokerConfig(), {})
    for _ in range(2):
        assert logs.get(PARTITION, "t", config, 0, is_alone=True) is None
    assert PARTITION in logs.troubled and asked == 1, "not with each image of the metadata"
    logs.close_troubled()
    assert logs.get(PARTITION, "t", config, 0, is_alone=True) is None
    assert asked == 2
