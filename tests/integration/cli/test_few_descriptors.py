"""A broker that may open few files: it opens and closes them by need, and is never ended by that."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidelog.admin import AdminClient
from tidelog.producer import Producer
from tidelog.testing import BrokerProcess
from tidelog.testing.ports import free_ports

pytestmark = [pytest.mark.process, pytest.mark.e2e]

LIMIT = 256
PARTITIONS = 300
FEW_FILES = ("bash", "-c", f'ulimit -S -n {LIMIT}; ulimit -H -n {LIMIT}; exec "$@"', "bash")


async def test_more_partitions_than_files_that_may_be_open_are_served(tmp_path: Path) -> None:
    http, peer = free_ports(2)
    broker = BrokerProcess(1, tmp_path, {}, http=f"127.0.0.1:{http}", peer=f"127.0.0.1:{peer}", prefix=FEW_FILES)
    broker.start()
    try:
        async with AdminClient(bootstrap_servers=broker.url) as admin:
            await admin.create_topic("many", partitions=PARTITIONS)
        async with Producer(bootstrap_servers=broker.url) as producer:
            sent = [await producer.send("many", b"v", partition=partition) for partition in range(PARTITIONS)]
            offsets = [(await delivery).offset for delivery in sent]
        assert offsets == [0] * PARTITIONS
        assert broker.is_running
        assert f"limit={LIMIT}" in broker.output, "it says that it has few, and what to do"
    finally:
        broker.kill()
