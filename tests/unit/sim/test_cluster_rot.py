"""Which batches may rot in a simulated cluster: those that their log itself knows to be on the disk."""

from __future__ import annotations

from tests.unit.broker.paxos_stage import Stage, play
from tests.unit.broker.replication_stage import PARTITION, until
from tidelog.broker.proposals import ProduceReceipt
from tidelog.sim.cluster.data_rot import durable_files, known_durable
from tidelog.storage.log_manager import JOURNAL, log_directory


def test_what_only_the_journal_has_on_the_disk_is_not_the_logs() -> None:
    """Its log cannot tell damage from a torn end there: it would be the strike that lost it."""

    async def story(stage: Stage) -> None:
        def known(directory: str) -> set[int]:
            return known_durable(PARTITION, durable_files(stage.sites[1].disk.medium, directory))

        await stage.lead(1)
        for number in range(3):
            assert isinstance(await stage.produce(1, b"v%d" % number), ProduceReceipt)
        directory = log_directory(PARTITION)
        assert known(f"{directory}/{JOURNAL}")
        assert known(directory) == set()
        log = stage.sites[1].replica.log
        await until(lambda: log.durable_offset == 3)
        assert isinstance(await stage.produce(1, b"the row of this one says so"), ProduceReceipt)
        await until(lambda: log.durable_offset == 4)
        assert known(directory) == {0, 1, 2}

    play(story)
