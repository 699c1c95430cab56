"""Snapshots of the metadata, damaged on several brokers: who fills needs one sound copy of each chunk, whoever has it,
and takes nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from itertools import product

import msgspec
import pytest

from tidelog.broker.consensus.messages import DescribeSnapshots, FetchSnapshot, SnapshotPart, SnapshotsDescribed
from tidelog.broker.metadata.snapshot_merge import SNAPSHOTS_MAX, PartialSnapshot, SnapshotMerge
from tidelog.broker.metadata.snapshots import CHUNKS_AT_ONCE, SnapshotKeeper, SnapshotVoters
from tidelog.controller.snapshot import encode_image
from tidelog.model.cluster import ClusterImage, Voter
from tidelog.model.errors import NotFound, UnsupportedLevel
from tidelog.replication.paxos.voters import VoterSet
from tidelog.sim.kit.disk import SimDisk
from tidelog.sim.kit.environment import SimEntropy
from tidelog.sim.kit.loop import run
from tidelog.sim.kit.seeds import stream
from tidelog.storage.snapshot_format import BLOCK_BYTES, SnapshotHeader, encode_header, root_of, split
from tidelog.storage.snapshots import BODY, HEADERS, SnapshotStore
from tidelog.transport.peer import Answer, PeerLost

VOTERS = msgspec.msgpack.encode(SnapshotVoters(VoterSet((Voter(1, 1, "disk", "127.0.0.1", 20001),), 2), -1))
POSITION = 40
CHUNKS = 4


def image_of(tag: str, chunks: int = CHUNKS) -> ClusterImage:
    """An image that takes so many chunks."""
    text = "".join(f"{tag}{number:07}" for number in range(chunks * 480))
    return ClusterImage(text, position=POSITION)


class Brokers:
    """Brokers with their snapshots. Those that are down do not answer."""

    def __init__(self, count: int = 3) -> None:
        self.disks = {node: SimDisk(f"snapshots {node}") for node in range(1, count + 1)}
        self.stores = {node: SnapshotStore(disk, "snapshots") for node, disk in self.disks.items()}
        self.keepers = {
            node: SnapshotKeeper(store, _perform, SimEntropy(stream(str(node)))) for node, store in self.stores.items()
        }
        self.down: set[int] = set()
        self.answers: dict[int, Callable[[int, msgspec.Struct, Answer], Answer]] = {}
        """A broker's answers are passed on as this makes them, from the number of the question."""
        self.asked: list[tuple[int, msgspec.Struct]] = []

    def write(self, position: int, image: ClusterImage, nodes: Iterable[int]) -> None:
        for node in nodes:
            self.stores[node].write(position, VOTERS, encode_image(image))

    def flip(self, node: int, chunk: int, suffix: str = BODY, position: int = POSITION) -> None:
        file = self.disks[node].open(f"snapshots/{position:020}-0001{suffix}")
        (byte,) = file.pread(1, chunk * BLOCK_BYTES + 20)
        file.pwritev([bytes([byte ^ 0x10])], chunk * BLOCK_BYTES + 20)
        file.sync()
        file.close()

    async def ask(self, node_id: int, message: msgspec.Struct, *, deadline_s: float) -> Answer:
        assert isinstance(message, DescribeSnapshots | FetchSnapshot)
        self.asked.append((node_id, message))
        if node_id in self.down:
            raise TimeoutError
        answer = self.keepers[node_id].answer(message)
        answer = Answer(answer.message, (b"".join(bytes(part) for part in answer.payload),))
        return self.answers[node_id](len(self.asked), message, answer) if node_id in self.answers else answer

    async def fetch(self, node: int, at_least: int = 1) -> ClusterImage:
        return (await self.keepers[node].fetch(lambda: self.others(node), self.ask, at_least))[0]

    def others(self, node: int) -> list[int]:
        return [other for other in self.disks if other != node]

    def is_whole(self, node: int, image: ClusterImage) -> bool:
        found = self.stores[node].load_newest()
        return found.snapshot is not None and found.snapshot.body == encode_image(image) and not found.damaged


async def _perform(call: Callable[[], None]) -> None:
    call()


def play(story: Callable[[Brokers], Awaitable[None]]) -> None:
    async def main() -> None:
        await story(Brokers())

    run(main)


async def gets_none(brokers: Brokers, node: int, at_least: int = 1) -> None:
    """Asks for longer than any answer takes."""
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(brokers.fetch(node, at_least), 30)


# -- one sound copy of each chunk --------------------------------------------------------------------------------------


@pytest.mark.parametrize("second", range(CHUNKS))
@pytest.mark.parametrize("first", range(CHUNKS))
def test_two_brokers_mend_each_others_and_give_a_third_one_both(first: int, second: int) -> None:
    """If it is the same chunk, nobody gets anything."""

    async def story(brokers: Brokers) -> None:
        image = image_of("a")
        brokers.write(POSITION, image, (1, 2))
        brokers.write(POSITION - 20, image_of("older"), (3,))
        brokers.flip(1, first)
        brokers.flip(2, second)
        for node in (3, 1, 2):
            if first == second:
                await gets_none(brokers, node, at_least=POSITION)
                assert f"damaged chunks {first}" in brokers.keepers[node].missing(brokers.others(node), POSITION)
            else:
                assert await brokers.fetch(node, at_least=POSITION) == image
                assert brokers.is_whole(node, image)
        assert brokers.disks[1].list("snapshots") == [f"{POSITION:020}-0001{suffix}" for suffix in (BODY, *HEADERS)], (
            "bad blocks are written over"
        )

    play(story)


@pytest.mark.parametrize("holders", [*product((1, 2, 3), repeat=3)])
def test_each_chunk_is_whole_on_one_broker_only(holders: tuple[int, ...]) -> None:
    async def story(brokers: Brokers) -> None:
        image = image_of("a", 3)
        brokers.write(POSITION, image, (1, 2, 3))
        for node in (1, 2, 3):
            for chunk, holder in enumerate(holders):
                if holder != node:
                    brokers.flip(node, chunk)
        for node in (1, 2, 3):
            assert await brokers.fetch(node) == image
            assert brokers.is_whole(node, image)

    play(story)


@pytest.mark.parametrize("suffix", HEADERS)
def test_one_header_is_damaged_on_each_broker(suffix: str) -> None:
    async def story(brokers: Brokers) -> None:
        image = image_of("a")
        brokers.write(POSITION, image, (1, 2))
        for node in (1, 2):
            brokers.flip(node, 0, suffix)
            brokers.flip(node, node)
        assert await brokers.fetch(1) == await brokers.fetch(2) == await brokers.fetch(3) == image
        for node in (1, 2):
            assert brokers.stores[node].count_bad()[0] == 0, "and the headers are mended with it"

    play(story)


@pytest.mark.parametrize("fetcher", [1, 2, 3])
def test_a_body_without_headers_gives_its_chunks_to_a_header_elsewhere(fetcher: int) -> None:
    async def story(brokers: Brokers) -> None:
        image = image_of("a")
        brokers.write(POSITION, image, (1, 2))
        for suffix in HEADERS:
            brokers.flip(1, 0, suffix)
        for chunk in range(CHUNKS):
            brokers.flip(2, chunk)
        assert await brokers.fetch(fetcher) == image
        assert brokers.is_whole(fetcher, image)

    play(story)


def test_a_long_snapshot_takes_several_questions_and_each_chunk_travels_once() -> None:
    async def story(brokers: Brokers) -> None:
        image = image_of("a", CHUNKS_AT_ONCE + 40)
        brokers.write(POSITION, image, (1, 2))
        count = brokers.stores[1].header(POSITION).chunk_count
        bad = {1: (0, 7, count - 1), 2: (3, CHUNKS_AT_ONCE, CHUNKS_AT_ONCE + 1)}
        for node, chunks in bad.items():
            for chunk in chunks:
                brokers.flip(node, chunk)
        given: list[int] = []

        def note(number: int, message: msgspec.Struct, answer: Answer) -> Answer:
            given.extend(answer.message.indexes if isinstance(answer.message, SnapshotPart) else ())
            return answer

        brokers.answers = {1: note}
        assert await brokers.fetch(3) == image
        assert len(given) == count - 3
        fetches = [node for node, message in brokers.asked if isinstance(message, FetchSnapshot)]
        assert fetches == [1, 1, 2, 2]

    play(story)


# -- brokers that die, lie, or have another one ------------------------------------------------------------------------


def test_a_broker_that_dies_half_way_has_given_what_it_gave() -> None:
    async def story(brokers: Brokers) -> None:
        image = image_of("a", CHUNKS_AT_ONCE + 40)
        brokers.write(POSITION, image, (1, 2))
        brokers.flip(2, 5)

        def die(number: int, message: msgspec.Struct, answer: Answer) -> Answer:
            if number > 2:
                raise PeerLost("node 1 is lost")
            return answer

        brokers.answers = {1: die}
        assert await brokers.fetch(3) == image

    play(story)


LIES: dict[str, Callable[[Answer], Answer]] = {
    "a byte has turned over": lambda answer: Answer(answer.message, (bytes(answer.body).replace(b"a", b"b", 1),)),
    "half of it is missing": lambda answer: Answer(answer.message, (answer.body[: len(answer.body) // 2],)),
    "chunks are named as others": lambda answer: Answer(
        msgspec.structs.replace(_part(answer), indexes=_part(answer).indexes[::-1]), answer.payload
    ),
    "chunks that there are not": lambda answer: Answer(
        msgspec.structs.replace(_part(answer), indexes=tuple(1 << 40 + i for i in range(CHUNKS))), answer.payload
    ),
    "negative chunks": lambda answer: Answer(
        msgspec.structs.replace(_part(answer), indexes=tuple(-1 - i for i in range(CHUNKS))), answer.payload
    ),
    "nothing, and no end": lambda answer: Answer(SnapshotPart((), 0)),
}


def _part(answer: Answer) -> SnapshotPart:
    assert isinstance(answer.message, SnapshotPart)
    return answer.message


@pytest.mark.parametrize("lie", LIES)
def test_a_broker_that_lies_is_not_believed(lie: str) -> None:
    async def story(brokers: Brokers) -> None:
        image = image_of("a")
        brokers.write(POSITION, image, (1, 2))
        brokers.answers = {
            1: lambda number, message, answer: LIES[lie](answer) if isinstance(message, FetchSnapshot) else answer
        }
        brokers.down = {2}
        await gets_none(brokers, 3)
        assert brokers.disks[3].list("snapshots") == []
        brokers.down = set()
        assert await brokers.fetch(3) == image

    play(story)


@pytest.mark.parametrize("raw", [b"", b"no header", encode_header(SnapshotHeader(1, 2, b"r" * 16, b""))[:-1]])
def test_what_is_no_header_is_neither_taken_nor_answered(raw: bytes) -> None:
    async def story(brokers: Brokers) -> None:
        image = image_of("a")
        brokers.write(POSITION, image, (2,))
        brokers.answers = {1: lambda number, message, answer: Answer(SnapshotsDescribed((raw,)))}
        assert await brokers.fetch(3) == image
        with pytest.raises(NotFound):
            brokers.keepers[2].answer(FetchSnapshot(raw, 0))

    play(story)


@pytest.mark.parametrize("first", [-5, CHUNKS, 1 << 62])
def test_chunks_that_there_are_not_are_not_given(first: int) -> None:
    async def story(brokers: Brokers) -> None:
        brokers.write(POSITION, image_of("a"), (1,))
        header = encode_header(brokers.stores[1].header(POSITION))
        answer = brokers.keepers[1].answer(FetchSnapshot(header, first))
        assert isinstance(answer.message, SnapshotPart)
        assert len(answer.message.indexes) == len(answer.payload) == (CHUNKS if first < 0 else 0)
        assert answer.message.end >= max(first, 0)

    play(story)


@pytest.mark.parametrize("astray", [1, 2])
def test_a_broker_whose_image_is_another_one_gives_nothing_to_a_merge(astray: int) -> None:
    """The astray broker's chunks are sound, at the same position; the root tells that they are of another snapshot."""

    async def story(brokers: Brokers) -> None:
        image, other = image_of("a"), image_of("b")
        brokers.write(POSITION, image, [node for node in (1, 2, 3) if node != astray])
        brokers.write(POSITION, other, (astray,))
        brokers.flip(astray, 0)
        brokers.flip(3 - astray, 1)
        brokers.flip(3, 2)
        assert await brokers.fetch(3) == image
        assert brokers.is_whole(3, image)

    play(story)


@pytest.mark.parametrize("liar", [1, 2, 3])
def test_the_body_of_another_image_lies_under_the_header(liar: int) -> None:
    """A misdirected write leaves chunks that are sound, all of another snapshot; of two chunks the other brokers have
    one good copy."""

    async def story(brokers: Brokers) -> None:
        image, other = image_of("a"), image_of("b")
        brokers.write(POSITION, image, (1, 2, 3))
        file = brokers.disks[liar].open(f"snapshots/{POSITION:020}-0001{BODY}")
        file.pwritev([b"".join(split(POSITION, encode_image(other)))], 0)
        file.sync()
        file.close()
        for chunk, node in enumerate(brokers.others(liar)):
            brokers.flip(node, chunk)
        for node in (1, 2, 3):
            assert await brokers.fetch(node) == image
            assert brokers.is_whole(node, image)

    play(story)


def test_an_older_snapshot_is_not_taken_and_one_that_is_new_enough_is() -> None:
    async def story(brokers: Brokers) -> None:
        older, image, newer = image_of("older"), image_of("a"), image_of("newer")
        brokers.write(POSITION - 1, older, (1, 2))
        await gets_none(brokers, 3, at_least=POSITION)
        brokers.write(POSITION, image, (1, 2))
        brokers.write(POSITION + 1, newer, (1, 2))
        brokers.flip(1, 2, position=POSITION + 1)
        brokers.flip(2, 2, position=POSITION + 1)
        brokers.flip(1, 0)
        brokers.flip(2, 1)
        assert await brokers.fetch(3, at_least=POSITION) == image, "the newer one is whole nowhere"
        assert brokers.stores[3].headers() == [brokers.stores[1].header(POSITION)]

    play(story)


def test_a_snapshot_that_is_replaced_while_it_is_fetched_is_given_up_for_the_new_one() -> None:
    async def story(brokers: Brokers) -> None:
        image, newer = image_of("a"), image_of("newer")
        brokers.write(POSITION, image, (1,))

        def replace(number: int, message: msgspec.Struct, answer: Answer) -> Answer:
            if number == 1:
                for name in brokers.disks[1].list("snapshots"):
                    brokers.disks[1].remove(f"snapshots/{name}")
                brokers.write(POSITION + 9, newer, (1,))
            return answer

        brokers.answers = {1: replace}
        assert await brokers.fetch(3) == newer

    play(story)


def test_brokers_that_have_none_and_that_are_silent_are_told_of() -> None:
    async def story(brokers: Brokers) -> None:
        brokers.down = {2}
        assert brokers.keepers[3].missing([1, 2], 7) == ""
        await gets_none(brokers, 3, at_least=7)
        words = brokers.keepers[3].missing([1, 2], 7)
        assert "broker 1: it has no metadata snapshot; broker 2: no answer in time" in words
        assert "tidelog cluster recover" in words
        brokers.write(5, image_of("a"), (1,))
        await gets_none(brokers, 3, at_least=7)
        assert "broker 1: its newest metadata snapshot ends at 5" in brokers.keepers[3].missing([1, 2], 7)

    play(story)


# -- the scrubber ------------------------------------------------------------------------------------------------------


def test_the_scrubber_merges_too_and_takes_no_other_snapshot() -> None:
    async def story(brokers: Brokers) -> None:
        image = image_of("a")
        brokers.write(POSITION, image, (1, 2))
        brokers.write(POSITION, image_of("b"), (3,))
        brokers.flip(1, 0)
        brokers.flip(2, 1)
        header = brokers.stores[1].header(POSITION)
        keeper = brokers.keepers[1]
        assert not await keeper.mend(lambda found: found == header, [3], brokers.ask)
        assert await keeper.mend(lambda found: found == header, [3, 2], brokers.ask)
        assert brokers.is_whole(1, image)

    play(story)


# -- bounds ------------------------------------------------------------------------------------------------------------


def test_only_the_newest_snapshots_are_merged() -> None:
    merge = SnapshotMerge(lambda header: header.position > 2)
    merge.name(SnapshotHeader(position, 10, b"r" * 16, b"") for position in range(100))
    assert [candidate.header.position for candidate in merge.newest_first()] == [*range(99, 99 - SNAPSHOTS_MAX, -1)]


def test_an_empty_snapshot_is_whole_with_nothing() -> None:
    assert PartialSnapshot(SnapshotHeader(1, 0, root_of([]), b"")).whole() == []
    assert PartialSnapshot(SnapshotHeader(1, 0, b"?" * 16, b"")).whole() is None


# -- the first feature level -------------------------------------------------------------------------------------------


def test_a_broker_of_the_first_level_gives_its_newest_snapshot_up_to_its_first_damage() -> None:
    async def story(brokers: Brokers) -> None:
        image = image_of("a", CHUNKS_AT_ONCE * 3 // 2)
        brokers.write(POSITION, image, (1,))
        give = brokers.keepers[1].answer
        header = brokers.stores[1].header(POSITION)
        for first, count in ((0, CHUNKS_AT_ONCE), (CHUNKS_AT_ONCE, header.chunk_count - CHUNKS_AT_ONCE)):
            for position in (-1, POSITION):
                answer = give(FetchSnapshot(first=first, position=position))
                assert answer.message == SnapshotPart(header=encode_header(header), first=first, count=count)
        brokers.flip(1, 2)
        part = give(FetchSnapshot()).message
        assert isinstance(part, SnapshotPart)
        assert part.chunks == (0, 1)
        for asked in (FetchSnapshot(first=2), FetchSnapshot(position=POSITION - 1)):
            with pytest.raises(NotFound):
                give(asked)

    play(story)


@pytest.mark.parametrize("chunks", [1, CHUNKS, CHUNKS_AT_ONCE * 3 // 2])
def test_it_is_asked_as_it_understands(chunks: int) -> None:
    async def story(brokers: Brokers) -> None:
        image = image_of("a", chunks)
        brokers.write(POSITION, image, (1,))

        async def ask(node_id: int, message: msgspec.Struct, *, deadline_s: float) -> Answer:
            if isinstance(message, DescribeSnapshots):
                raise UnsupportedLevel("it does not know this")
            assert isinstance(message, FetchSnapshot)
            return await brokers.ask(node_id, msgspec.structs.replace(message, header=None), deadline_s=deadline_s)

        found = await brokers.keepers[3].fetch(lambda: [1], ask, POSITION)
        assert found[0] == image
        assert brokers.is_whole(3, image)

    play(story)
