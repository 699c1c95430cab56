"""What may rot in a simulated cluster: what the log, or the journal, itself knows to be on the disk."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from tests.unit.broker.isr.stage import PARTITION, until
from tests.unit.broker.paxos.stage import Stage, play
from tidelog.broker.partitions.proposals import ProduceReceipt
from tidelog.sim.cluster.data_rot import CopyExtent, Flip, durable_files, known_durable, turn_over
from tidelog.sim.cluster.journal_rot import Piece, payloads_in, pieces_in
from tidelog.sim.kit import rot
from tidelog.sim.kit.disk import SimDisk
from tidelog.sim.kit.medium import Medium
from tidelog.storage.log_manager import JOURNAL, LogManager, log_directory
from tidelog.storage.slot_entries import FLOOR_NUMBER, EntryKind, Head, encode_entry
from tidelog.storage.slot_store import StoredSlots

LOG = log_directory(PARTITION)
VALUES = 6
STRIDE = 11
"""Every so many bytes of the journal are turned over."""


async def produce(stage: Stage, count: int) -> None:
    for number in range(count):
        assert isinstance(await stage.produce(1, b"v%d" % number), ProduceReceipt)


def journal_with(files: dict[str, bytes], flipped: Piece | None = None) -> StoredSlots:
    """Opens this journal, with a bit of its first byte turned over in a piece."""
    disk = SimDisk(1)
    for path, content in files.items():
        rot.plant(disk.medium, path, content)
    if flipped is not None:
        rot.flip_bit(disk.medium, flipped.path, flipped.begin, 2)
    _, stored = LogManager(disk, open_max=64, new_incarnation=lambda: "new").open_journal(PARTITION, 0)
    return stored


def test_what_only_the_journal_has_on_the_disk_is_not_the_logs() -> None:
    """Its log cannot tell damage from a torn end there: it would be the strike that lost it."""

    async def story(stage: Stage) -> None:
        def known(directory: str) -> set[int]:
            return known_durable(PARTITION, durable_files(stage.sites[1].disk.medium, directory))

        await stage.lead(1)
        await produce(stage, 3)
        assert known(f"{LOG}/{JOURNAL}")
        assert known(LOG) == set()
        log = stage.sites[1].replica.log
        await until(lambda: log.durable_offset == 3)
        await produce(stage, 1)
        await until(lambda: log.durable_offset == 4)
        assert known(LOG) == {0, 1, 2}, "the row of the last one says so"

    play(story)


def test_a_journal_forgets_nothing_in_silence_whatever_may_rot() -> None:
    """But it would if its end might."""

    async def story(stage: Stage) -> None:
        await stage.lead(1)
        await produce(stage, VALUES)
        await stage.sites[1].crash()
        files = durable_files(stage.sites[1].disk.medium, f"{LOG}/{JOURNAL}")
        positions = {slot.position for slot in journal_with(files).slots}
        assert len(positions) > VALUES
        spots = [
            Piece(path, at, at + 1)
            for pieces in pieces_in(PARTITION, files)
            for path, begin, end in pieces
            for at in range(begin, end, STRIDE)
        ]
        assert {path.rpartition(".")[2] for path, _, _ in spots} == {"log", "catalog", "0", "1"}
        for spot in spots:
            stored = journal_with(files, spot)
            assert stored.is_amnesiac or {slot.position for slot in stored.slots} == positions, spot
        (path,) = [path for path in files if path.endswith(".log")]
        end = len(files[path])
        last = journal_with(files, Piece(path, end - 1, end))
        assert not last.is_amnesiac and max(slot.position for slot in last.slots) < max(positions)
        payloads = list(payloads_in(PARTITION, files))
        assert payloads and all(payload.position + payload.size < end - 1 for payload in payloads)
        rotten = bytearray(files[path])
        rotten[payloads[0].position + 8] ^= 0x80  # the length of its batch
        assert list(payloads_in(PARTITION, {**files, path: bytes(rotten)})) == payloads[1:]
        floor = encode_entry(Head(EntryKind.FLOOR, max(positions), FLOOR_NUMBER), None, end, 1)
        with_floor = {**files, path: b"".join((files[path], *floor.buffers))}
        assert list(payloads_in(PARTITION, with_floor)) == [], "its bytes are there, and it is let go of"

    play(story)


OURS, OTHERS = "topics/ours/0", "topics/others/0"
SEGMENT = f"{OURS}/00000000000000000000.log"


def damaged() -> Flip:
    """Turns over a bit in the second of three batches of a log, which stands beside another's."""
    medium = SimDisk(1).medium
    rot.plant(medium, SEGMENT, b"a" * 100 + b"b" * 100 + b"c" * 100)
    rot.plant(medium, SEGMENT.replace(OURS, OTHERS), b"d" * 300)
    return turn_over(medium, CopyExtent(1, SEGMENT, 100, 100), random.Random(1))


@pytest.mark.parametrize(
    "harm",
    [
        pytest.param(lambda medium: rot.lose_directory(medium, OURS), id="directory missing"),
        pytest.param(lambda medium: rot.swap_directories(medium, OURS, OTHERS), id="directories swapped"),
        pytest.param(lambda medium: rot.truncate(medium, SEGMENT, 150), id="truncated"),
        pytest.param(lambda medium: rot.overwrite(medium, SEGMENT, 199, b"x"), id="damaged once more"),
        pytest.param(lambda medium: rot.make_unreadable(medium, SEGMENT, 199, 1), id="unreadable"),
    ],
)
def test_a_copy_that_is_not_what_the_flip_left_does_not_come_back(harm: Callable[[Medium], None]) -> None:
    flip = damaged()
    assert flip.is_left(flip.medium)
    assert not flip.is_left(SimDisk(1).medium), "a disk that was replaced"
    harm(flip.medium)
    assert not flip.is_left(flip.medium)


def test_a_copy_comes_back_whatever_befell_its_neighbours() -> None:
    flip = damaged()
    rot.truncate(flip.medium, SEGMENT, 250)
    rot.overwrite(flip.medium, SEGMENT, 0, b"x")
    assert flip.is_left(flip.medium)
    flip.undo()
    assert bytes(flip.medium.walk()[SEGMENT].durable) == b"x" + b"a" * 99 + b"b" * 100 + b"c" * 50


def test_a_payload_of_which_a_byte_has_rotted_is_none() -> None:
    """With a length it looks like a batch that is cut short; with its last byte all batches but the last look sound."""

    async def story(stage: Stage) -> None:
        await stage.lead(1)
        await produce(stage, VALUES)
        files = durable_files(stage.sites[1].disk.medium, f"{LOG}/{JOURNAL}")
        first, *others = payloads_in(PARTITION, files, is_known_durable=False)
        for at in range(first.size):
            content = bytearray(files[first.path])
            content[first.position + at] ^= 1 << 4
            harmed = {**files, first.path: bytes(content)}
            assert list(payloads_in(PARTITION, harmed, is_known_durable=False)) == others, at

    play(story)
