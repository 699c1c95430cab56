"""Histories that failed once, kept whole: what a seed means changes whenever anything is drawn that was not before.

A new one is what `python -m tidelog.sim.cluster --shrink` prints, or `encode_scenario(draw_scenario(seed))`.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tidelog.sim.cluster.run import run_scenario
from tidelog.sim.cluster.scenario import decode_scenario

DIRECTORY = Path(__file__).parent / "kept"
KEPT_OF_MAJORITIES = {
    "batches-behind-a-hole": "a power cut took one of the batches under way, and the next leader kept those behind it",
    "copied-log-further-than-the-jump": "a replica went by voters that a copied log knew of, and its engine did not",
    "disk-with-two-ids": "a move that was ordered again gave a disk a new id, while the log needed it by the old one",
    "end-told-before-the-election": "a leader that was not elected yet told a reader that the log ends before",
    "last-copy-in-the-log-of-a-lost-vote": "an election waited for what only the log of a voter without a journal had",
    "lead-given-to-a-removed-member": "a move was called off too late, and nobody who was still a member got the lead",
    "leader-without-an-id": "a replica without an id, whose disk had voted, was named leader, and its broker died",
    "leader-epoch-that-rotted": "a power cut took a row, and a bit of the batch turned over that no checksum covers",
    "leader-that-still-copied": "a leader that still copied the log removed the only member that had all of it",
    "marked-and-killed-before-it-forgot": "a voter whose disk said that it may have forgotten was not counted as lost",
    "members-that-kept-nothing-durable": "the only replica left had what it had copied in memory alone",
    "replica-opened-on-a-full-disk": "a replica that met a full disk when it was opened never took part again",
    "rot-of-a-journals-end": "a payload turned over that its journal did not know to be durable, and cut off as torn",
    "rot-of-what-only-a-journal-kept": "bits turned over in a batch that its log did not know to be on the disk yet",
    "torn-batch-of-the-groups": "a torn batch of __consumer_offsets that nobody was promised kept all groups waiting",
    "torn-batches-of-the-only-voter": "a power cut tore what the only voter wrote, and its names alone were chosen",
    "torn-entry-beside-a-lost-vote": "a power cut tore the last entry of one voter, then the directory of another went",
    "torn-entry-of-one-of-two": "a power cut tore entries of one of two voters, and that the other had none was no use",
    "vote-that-nobody-casts": "a move waited for ever: who was to go first was needed as long as a dead one voted",
}
"""The same, of partitions that commit by majority; longer runs, each with a shorter test beside the code."""
KEPT = {
    "compared-before-a-leader-was-repaired": "replicas were compared before a batch that a power cut took was repaired",
    "answer-after-its-log-is-gone": "a leader that was removed, log and all, still listened to the controller's answer",
    "clients-do-not-get-through": "a log that met a full disk when it was opened stayed offline",
    "commit-under-way-while-cut": "a commit under way when a follower began to cut its log was reported during the cut",
    "elections-in-one-entry": "two decisions in one entry of the log were taken for one by the simulator",
    "first-batch-overtaken": "a client's second batch overtook its first, whose sequence is free",
    "logs-kept-shut-by-full-disks": "a log that could not be opened was never tried again while the metadata changed",
    "lost-row-above-the-high-watermark": "a follower that lost batch and row waited for a commit that waited for it",
    "question-of-one-who-was-put-out": "a leader forgot what a follower had said, and never asked it again",
    "reader-of-a-cut-tail": "a leader that was cut off told a reader of its successor's that the log ends before",
    "registration-of-a-dead-process": "what a dead process had sent came late, and put the next one out for good",
    "repeat-of-what-nobody-could-read": "a record of a lost batch was sent again, then a broker brought the batch back",
    "repeated-batch-of-a-deleted-past": "a follower that started over took a repeat of a deleted batch for new",
    "restarted-leader-goes-on-in-its-epoch": "a restarted leader went on in its old epoch with less than it had",
    "sequence-gap-after-acknowledgement": "a leader that was cut off told a producer of a gap that only it had",
    "snapshot-newer-than-what-is-chosen": "a disk with a new voter id and a newer snapshot than log ended each start",
    "voters-changed-by-what-the-disk-held": "a restarted voter went by the voters of its last snapshot for ever",
    "wiped-voter-taken-for-new": "a wiped voter began to found a second cluster with brokers that were still starting",
}
"""By the name of its file: what went wrong."""
LONG = {
    *KEPT_OF_MAJORITIES,
    "commit-under-way-while-cut",
    "elections-in-one-entry",
    "logs-kept-shut-by-full-disks",
    "lost-row-above-the-high-watermark",
    "question-of-one-who-was-put-out",
    "registration-of-a-dead-process",
    "repeat-of-what-nobody-could-read",
    "repeated-batch-of-a-deleted-past",
    "snapshot-newer-than-what-is-chosen",
    "wiped-voter-taken-for-new",
}


def test_each_history_says_what_went_wrong() -> None:
    assert sorted(path.stem for path in DIRECTORY.glob("*.json")) == sorted(KEPT | KEPT_OF_MAJORITIES)


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.slow] if name in LONG else []) for name in (*KEPT, *KEPT_OF_MAJORITIES)],
)
def test_what_failed_once(name: str) -> None:
    scenario = decode_scenario((DIRECTORY / f"{name}.json").read_text())
    assert run_scenario(scenario).violations == (), (KEPT | KEPT_OF_MAJORITIES)[name]
