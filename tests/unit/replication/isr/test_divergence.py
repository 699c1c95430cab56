"""Two logs that part: what the leader answers, what the follower cuts, where they meet. As transcripts."""

from __future__ import annotations

import pytest

from tidelog.replication.isr.events import (
    AppendFetched,
    Diverging,
    DivergingAt,
    Fetch,
    FetchDue,
    Fetched,
    FollowerFetched,
    IsrChanged,
    IsrSettings,
    LogState,
    Serve,
    Truncate,
    Truncated,
)
from tidelog.replication.isr.follower import IsrFollower
from tidelog.replication.isr.leader import IsrLeader
from tidelog.replication.isr.lineage import EpochEnd, Lineage

CASES = {
    "behind, same epoch": ("1:0 3:4", 4, "1:0", 2, "fetch 2 of 1; serve 2"),
    "ahead, same epoch": ("1:0 3:2", 2, "1:0", 4, "fetch 4 of 1; diverging 1:2; truncate 2; fetch 2 of 1; serve 2"),
    "ahead, epoch unknown to the leader": (
        "1:0 3:2", 2, "1:0 2:2", 4,
        "fetch 4 of 2; diverging 1:2; truncate 2; fetch 2 of 1; serve 2",
    ),
    "fork": ("1:0 3:2", 4, "1:0 2:2", 4, "fetch 4 of 2; diverging 1:2; truncate 2; fetch 2 of 1; serve 2"),
    "fork, leader longer in the common epoch": (
        "1:0 3:2", 2, "1:0 2:1", 3,
        "fetch 3 of 2; diverging 1:2; truncate 1; fetch 1 of 1; serve 1",
    ),
    "nothing in common": (
        "1:0 3:1", 2, "2:0", 2,
        "fetch 2 of 2; diverging 1:1; truncate 0; fetch 0 of None; serve 0",
    ),
    "two rounds": (
        "1:0 3:5 5:9", 9, "1:0 2:3 4:6", 8,
        "fetch 8 of 4; diverging 3:9; truncate 6; fetch 6 of 2; diverging 1:5; truncate 3; fetch 3 of 1; serve 3",
    ),
    "both empty": ("", 0, "", 0, "fetch 0 of None; serve 0"),
    "no epoch as old on the leader": (
        "3:0", 4, "1:0", 2,
        "fetch 2 of 1; diverging 1:0; truncate 0; fetch 0 of None; serve 0",
    ),
}  # fmt: skip


def rows(text: str) -> tuple[tuple[int, int], ...]:
    return tuple((int(row.split(":")[0]), int(row.split(":")[1])) for row in text.split())


def transcript(leader_rows: str, leader_end: int, follower_rows: str, follower_end: int) -> str:
    """Returns what two cores say to each other until the follower is served."""
    lineage = rows(leader_rows)
    epoch = lineage[-1][0] if lineage else 1
    leader = IsrLeader(
        1, epoch, LogState(0, leader_end, leader_end, lineage), 0, IsrChanged((1, 2), (1, 2), 0, {}), IsrSettings(), 0
    )
    follower = IsrFollower(epoch, LogState(0, follower_end, follower_end, rows(follower_rows)), 0)
    said: list[str] = []
    for correlation in range(9):
        (fetch,) = follower.step(FetchDue(correlation))
        assert isinstance(fetch, Fetch)
        said.append(f"fetch {fetch.fetch_offset} of {fetch.last_fetched_epoch}")
        verdict, _ = leader.fetched(
            FollowerFetched(2, 1, fetch.fetch_offset, fetch.durable_offset, fetch.last_fetched_epoch, 0)
        )
        if isinstance(verdict, Serve):
            return "; ".join([*said, f"serve {verdict.from_offset}"])
        assert isinstance(verdict, Diverging)
        said.append(f"diverging {verdict.epoch}:{verdict.end_offset}")
        (cut,) = follower.step(DivergingAt(correlation, verdict.epoch, verdict.end_offset))
        assert isinstance(cut, Truncate)
        said.append(f"truncate {cut.to}")
        follower.step(Truncated(cut.to, cut.to))
    raise AssertionError(f"no end to {said}")


@pytest.mark.parametrize("case", CASES)
def test_logs_meet_where_they_parted(case: str) -> None:
    *logs, expected = CASES[case]
    assert transcript(*logs) == expected  # type: ignore[arg-type]  # a row of the table


def test_an_epochs_end_is_where_the_next_begins() -> None:
    lineage = Lineage([(1, 0), (3, 5), (7, 9)])
    assert lineage.end_of(7, 12) == EpochEnd(7, 12)
    assert lineage.end_of(3, 12) == EpochEnd(3, 9)
    assert lineage.end_of(5, 12) == EpochEnd(3, 9), "the newest that is not newer"
    assert lineage.end_of(0, 12) == EpochEnd(0, 0), "nothing is as old"
    assert lineage.end_of(8, 12) is None
    assert Lineage().end_of(1, 0) is None


def test_a_lineage_is_cut_and_shortened_like_its_log() -> None:
    lineage = Lineage([(1, 0), (3, 5), (7, 9)])
    lineage.truncate(9)
    assert lineage.rows == ((1, 0), (3, 5))
    lineage.delete_records(6)
    assert lineage.rows == ((3, 5),), "the epoch in force at the start stays"
    with pytest.raises(AssertionError):
        lineage.begin(2, 7)


def test_a_log_is_cut_exactly_where_the_two_part() -> None:
    """All pairs of short logs of three epochs that can come to be."""
    logs = [(one, two, three) for one in range(3) for two in range(3) for three in range(3)]
    pairs = [(leader, follower) for leader in logs for follower in logs if can_coexist(leader, follower)]
    assert len(pairs) > 100
    for leader, follower in pairs:
        ours, theirs = content(leader), content(follower)
        said = transcript(f"{text(leader)} 4:{len(ours)}", len(ours), text(follower), len(theirs))
        assert said.endswith(f"serve {common_length(ours, theirs)}"), (leader, follower, said)


def can_coexist(leader: tuple[int, ...], follower: tuple[int, ...]) -> bool:
    """An epoch has one leader, whose log was one thing when it began."""
    ours, theirs = content(leader), content(follower)
    both = sorted(set(ours) & set(theirs))
    return all(ours[: ours.index(epoch)] == theirs[: theirs.index(epoch)] for epoch in both)


def common_length(ours: list[int], theirs: list[int]) -> int:
    together = list(zip(ours, theirs, strict=False))
    return next((at for at, (one, other) in enumerate(together) if one != other), len(together))


def content(counts: tuple[int, ...]) -> list[int]:
    return [epoch for epoch, count in enumerate(counts, start=1) for _ in range(count)]


def text(counts: tuple[int, ...]) -> str:
    epochs = content(counts)
    return " ".join(f"{epoch}:{epochs.index(epoch)}" for epoch in sorted(set(epochs)))


def test_data_goes_on_where_the_log_ends() -> None:
    follower = IsrFollower(3, LogState(0, 2, 2, ((1, 0),)), 1)
    follower.step(FetchDue(1))
    assert follower.step(Fetched(1, 2, 5, ((1, 2), (3, 4)), 4, 0)) == [AppendFetched(5)]
