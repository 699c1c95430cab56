"""What a value costs the replicas of a Paxos partition while all is well: bounds on work, counted and not timed."""

from __future__ import annotations

from tests.unit.broker.paxos_stage import Stage, play
from tidelog.broker.proposals import ProduceReceipt
from tidelog.broker.quorum.payloads import HELD_BYTES_MAX, Payloads, digest_of

VALUES = 20


def test_what_is_accepted_is_applied_without_being_read_back_and_let_go() -> None:
    async def story(stage: Stage) -> None:
        stage.is_orderly = True
        await stage.lead(1)
        await stage.quiet()
        reads = [site.disk.medium.statistics.operations["read"] for site in stage.sites.values()]
        for number in range(VALUES):
            assert isinstance(await stage.produce(1, b"v%d" % number), ProduceReceipt)
        await stage.quiet()
        assert [site.disk.medium.statistics.operations["read"] for site in stage.sites.values()] == reads
        assert [len(site.replica.engine.payloads) for site in stage.sites.values()] == [0, 0, 0]

    play(story)


def test_what_is_held_for_applying_is_bounded_and_nothing_if_all_is_applied() -> None:
    payloads = Payloads()
    parts = [bytes([number]) * (HELD_BYTES_MAX // 4) for number in range(6)]
    for part in parts:
        payloads.hold(part)
        payloads.hold(part)
    payloads.trim(is_any_open=True)
    assert [payloads.get(digest_of(part)) is None for part in parts] == [True, True, False, False, False, False]
    payloads.trim(is_any_open=False)
    assert len(payloads) == 0
