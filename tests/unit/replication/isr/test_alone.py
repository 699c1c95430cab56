"""A set of one: what its own disk holds is committed."""

from tidelog.replication.isr.events import IsrChanged, IsrSettings, LogState
from tidelog.replication.isr.leader import IsrLeader
from tidelog.replication.isr.log_events import AdvanceHighWatermark, Append, Appended, AppendRefused, Flushed, Propose


def new_replica(*, is_fsynced: bool = True) -> IsrLeader:
    alone = IsrChanged((1,), (1,), 0, {}, is_fsynced=is_fsynced)
    return IsrLeader(1, 4, LogState(0, 10, 10), 10, alone, IsrSettings(), now_ms=0)


def test_all_that_a_new_leader_finds_is_committed() -> None:
    assert new_replica().high_watermark == 10


def test_offsets_are_given_out_contiguously_under_the_leaders_epoch() -> None:
    replica = new_replica()
    assert replica.step(Propose(3)) == [Append(10, 4)]
    assert replica.step(Propose(1)) == [Append(13, 4)]


def test_the_high_watermark_follows_the_fsync_not_the_append() -> None:
    replica = new_replica()
    replica.step(Propose(3))
    assert replica.step(Appended(13)) == []
    assert replica.high_watermark == 10
    assert replica.step(Flushed(13)) == [AdvanceHighWatermark(13)]
    assert replica.step(Flushed(13)) == []


def test_without_fsync_the_high_watermark_follows_the_append() -> None:
    replica = new_replica(is_fsynced=False)
    replica.step(Propose(3))
    assert replica.step(Appended(13)) == [AdvanceHighWatermark(13)]


def test_refused_offsets_are_given_out_again() -> None:
    replica = new_replica()
    replica.step(Propose(3))
    replica.step(Propose(2))
    replica.step(AppendRefused(10))
    assert replica.step(Propose(1)) == [Append(10, 4)]


def test_an_older_report_never_takes_the_high_watermark_back() -> None:
    replica = new_replica()
    replica.step(Propose(3))
    replica.step(Appended(13))
    replica.step(Flushed(13))
    assert replica.step(Flushed(11)) == []
    assert replica.high_watermark == 13
