"""Snapshots of the metadata, which allow the log to be truncated, and new brokers to start without the whole log.

Every broker writes a snapshot of its image at the same log record (`SnapshotTaken`), and so they all write the same
bytes. When a majority of the voters have reported one root hash, the log may be truncated up to there. A broker whose
log ends before that point, or a new one, fetches the snapshot from the others, chunk by chunk; each chunk carries its
hash, and the root hash is checked before the snapshot is installed. One sound copy of each chunk is enough, on whatever
brokers they are (`snapshot_merge`). A broker whose own snapshot differs from the agreed one has diverged, and fetches
it as well.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from itertools import takewhile
from typing import Protocol

import msgspec
import structlog

from tidelog.broker.consensus.messages import DescribeSnapshots, FetchSnapshot, SnapshotPart, SnapshotsDescribed
from tidelog.broker.consensus.waiting import RECOVER
from tidelog.broker.metadata.snapshot_merge import PartialSnapshot, SnapshotMerge
from tidelog.controller.snapshot import decode_image, encode_image
from tidelog.model.cluster import ClusterImage
from tidelog.model.errors import NotFound, TidelogError, UnsupportedLevel
from tidelog.model.ports import Entropy
from tidelog.replication.paxos.voters import VoterSet
from tidelog.storage.snapshot_format import DamagedSnapshot, SnapshotHeader, decode_header, encode_header, join
from tidelog.storage.snapshots import Snapshot, SnapshotStore
from tidelog.transport.peer import Answer

CHUNKS_AT_ONCE = 256
FETCH_S_MAX = 5.0
PAUSE_S = 0.1
HERE = -1
"""Stands for this broker among the brokers that are asked for snapshots."""
MENDING_ROUNDS = 2
"""The number of rounds in which brokers are asked in order to repair a snapshot. In the second round all are asked for
the snapshots named in the first, and for all chunks if those given do not fit together."""

logger = structlog.get_logger("tidelog.quorum")


class SnapshotVoters(msgspec.Struct, frozen=True):
    """The voters that a snapshot stores beside the image, in force where the log continues."""

    voters: VoterSet
    voters_position: int
    """The log position of the value that set these voters; -1 if they are the founders."""


class Ask(Protocol):
    """The signature of `PeerNode.request`: sends a message to another broker and returns the answer."""

    async def __call__(self, node_id: int, message: msgspec.Struct, *, deadline_s: float) -> Answer: ...


class SnapshotKeeper:
    """The snapshots of one broker: writes, loads, serves and fetches them. Positions are the log's, exclusive."""

    def __init__(
        self, store: SnapshotStore, perform: Callable[[Callable[[], None]], Awaitable[None]], entropy: Entropy
    ) -> None:
        self._store = store
        self._perform = perform
        self._entropy = entropy
        self.newest: tuple[int, str] = (0, "")
        """The image position of the newest snapshot on this broker, and its root hash."""
        self.positions: dict[int, int] = {}
        """The log positions of the snapshots written by this process, by their image's position."""
        self._damage: list[str] = []
        """Descriptions of the damage that was found when the snapshots were loaded."""
        self._refusals: dict[int, str] = {}
        """The reason, by node id, why no snapshot was complete with the chunks that this broker gave."""

    def load(self) -> tuple[ClusterImage, int, SnapshotVoters] | None:
        """Returns the newest undamaged snapshot: image, log position, voters. Blocking. Raises `SnapshotUnreadable`,
        `OSError`."""
        loaded = self._store.load_newest()
        self._damage = list(map(str, loaded.damaged))
        for damage in loaded.damaged:
            logger.warning("a metadata snapshot is damaged; an older one, or a peer's, will do", finding=str(damage))
        return None if loaded.snapshot is None else self._opened(loaded.snapshot)

    def _opened(self, snapshot: Snapshot) -> tuple[ClusterImage, int, SnapshotVoters]:
        image = decode_image(snapshot.body)
        self._note(image, snapshot.header)
        voters = msgspec.msgpack.decode(snapshot.header.header, type=SnapshotVoters)
        return image, snapshot.header.position, voters

    def _note(self, image: ClusterImage, header: SnapshotHeader) -> None:
        self.newest = (image.position, header.root.hex())
        self.positions[image.position] = header.position

    # -- taking ------------------------------------------------------------------------------------------------------

    async def take(self, image: ClusterImage, position: int, voters: SnapshotVoters) -> None:
        """Writes a snapshot of the image. On a disk error there is no snapshot, and nothing else is affected."""
        header = msgspec.msgpack.encode(voters)
        # Before anything is awaited: the image must be the one at this position.
        body = encode_image(image)
        written: list[SnapshotHeader] = []

        def write() -> None:
            written.append(self._store.write(position, header, body))
            # Only after the new one is durable: a crash must leave one that is whole.
            self._store.remove_old()

        try:
            await self._perform(write)
        except OSError as error:
            logger.error("the metadata snapshot could not be written", position=position, error=str(error))
            return
        # Reported to the controller by heartbeats: a majority with the same hash lets the log begin here.
        self._note(image, written[0])

    # -- giving and getting ------------------------------------------------------------------------------------------

    def answer(self, message: DescribeSnapshots | FetchSnapshot) -> Answer:
        """Answers another broker's request for snapshot headers or chunks. Raises `NotFound` if none can be
        read here."""
        try:
            if isinstance(message, DescribeSnapshots):
                return Answer(SnapshotsDescribed(tuple(map(encode_header, self._store.headers()))))
            return self._part(message)
        except OSError as error:
            raise NotFound(f"this broker cannot read its metadata snapshots: {error}") from error

    def _part(self, request: FetchSnapshot) -> Answer:
        if request.header is None:
            return self._first_level_part(request)
        header = decode_header(request.header)
        if header is None:
            raise NotFound("what is asked for is no metadata snapshot")
        first = max(0, request.first)
        end = min(header.chunk_count, first + CHUNKS_AT_ONCE)
        # A snapshot with other blocks damaged still serves: one sound copy of each block is enough.
        blocks = self._store.sound_chunks(header, range(first, end))
        return Answer(SnapshotPart(tuple(blocks), max(first, end)), list(blocks.values()))

    def _first_level_part(self, request: FetchSnapshot) -> Answer:
        """Returns chunks up to the first that is damaged here, for a broker of the first feature level."""
        headers = [header for header in self._store.headers() if request.position in (-1, header.position)]
        if not headers:
            raise NotFound("this broker has no such metadata snapshot")
        header, first = headers[0], max(0, request.first)
        end = min(header.chunk_count, first + CHUNKS_AT_ONCE)
        sound = self._store.sound_chunks(header, range(first, end))
        blocks = [sound[index] for index in takewhile(sound.__contains__, range(first, end))]
        if not blocks:
            raise NotFound(f"this broker cannot give that snapshot: {DamagedSnapshot(header.position, (first,))}")
        return Answer(SnapshotPart(header=encode_header(header), first=first, count=len(blocks)), blocks)

    async def fetch(
        self, nodes: Callable[[], Sequence[int]], ask: Ask, at_least: int
    ) -> tuple[ClusterImage, int, SnapshotVoters]:
        """Returns a snapshot that reaches the position `at_least`, and installs it here. It is merged from the copies
        of this broker and the others, which are asked in turn until it is complete."""
        merge = SnapshotMerge(lambda header: header.position >= at_least)
        while True:
            try:
                snapshot = await self._merge_from_all(merge, nodes(), ask)
            except OSError as error:
                logger.error("a metadata snapshot could not be written", error=str(error))
            else:
                if snapshot is not None:
                    self._refusals.clear()
                    return self._opened(snapshot)
            await asyncio.sleep(PAUSE_S * self._entropy.uniform(1, 2))

    def missing(self, nodes: Sequence[int], at_least: int) -> str:
        """Returns a description of the missing snapshot, with advice for the operator, once all these brokers were
        asked in vain for one that reaches `at_least`; empty before."""
        # As long as one broker has not answered, it may have the snapshot.
        if not all(node in self._refusals for node in nodes):
            return ""
        here = [f"here: {', '.join(self._damage) or 'there is none'}"]
        named = [f"broker {node}: {self._refusals[node]}" for node in sorted(nodes)]
        return (
            f"the metadata log begins at position {at_least}, and no broker can give a snapshot that reaches it: "
            f"{'; '.join([*here, *named])}; put a copy of any broker's snapshots/ into its data directory, and start "
            f"that broker again; {RECOVER}"
        )

    async def mend(self, would_do: Callable[[SnapshotHeader], bool], nodes: Sequence[int], ask: Ask) -> bool:
        """Repairs a damaged snapshot here that `would_do` selects; returns False if no broker can give the missing
        chunks now."""
        merge = SnapshotMerge(would_do)
        for _ in range(MENDING_ROUNDS):
            try:
                if await self._merge_from_all(merge, nodes, ask) is not None:
                    return True
            except OSError as error:
                logger.error("a metadata snapshot could not be mended", error=str(error))
        return False

    async def _merge_from_all(self, merge: SnapshotMerge, nodes: Sequence[int], ask: Ask) -> Snapshot | None:
        """Asks each broker once, this one first; returns the first snapshot that is complete, after writing it to this
        disk, or None. Raises `OSError` if it cannot be written."""
        merge.begin_round()
        # This broker first: its own sound blocks need not be sent.
        for node in (HERE, *nodes):
            try:
                header, blocks = await self._merge_from(node, merge, ask)
            except (TidelogError, TimeoutError, OSError) as error:
                self._refusals[node] = str(error) or "no answer in time"
                logger.info("a metadata snapshot cannot be had yet", broker=node, reason=self._refusals[node])
                continue
            await self._perform(partial(self._put_back, header, blocks))
            return Snapshot(header, join(blocks))
        return None

    async def _merge_from(self, node: int, merge: SnapshotMerge, ask: Ask) -> tuple[SnapshotHeader, list[bytes]]:
        """Returns a snapshot that is complete with the chunks of this broker. Raises `NotFound` if none is, the
        `TidelogError` that the broker answers, `PeerUnreachable`, `PeerLost` or `TimeoutError`."""
        named = [header for raw in await self._headers_of(node, ask) if (header := decode_header(raw)) is not None]
        merge.name(named)
        for candidate in merge.newest_first():
            await self._ask_chunks(node, candidate, ask)
            blocks = candidate.whole()
            if blocks is not None:
                return candidate.header, blocks
        raise NotFound(_lacking(node, named, merge))

    async def _headers_of(self, node: int, ask: Ask) -> tuple[bytes, ...]:
        """Returns the headers of a broker's snapshots. A broker of the first feature level gives only the newest one's,
        with its first chunks."""
        try:
            answer = await self._ask(node, DescribeSnapshots(), ask)
        except UnsupportedLevel:
            # A broker of the first feature level does not know the question for headers.
            answer = await self._ask(node, FetchSnapshot(), ask)
        if isinstance(answer.message, SnapshotPart):
            return (answer.message.header,)
        assert isinstance(answer.message, SnapshotsDescribed)
        return answer.message.headers

    async def _ask_chunks(self, node: int, candidate: PartialSnapshot, ask: Ask) -> None:
        header, first = candidate.header, 0
        for index in candidate.to_request(node):
            # An answer brings many chunks, so these were given, or are damaged there.
            if index < first:
                continue
            answer = await self._ask(node, FetchSnapshot(encode_header(header), index, header.position), ask)
            assert isinstance(answer.message, SnapshotPart)
            candidate.add(node, _blocks(answer, header))
            first = answer.message.next_first

    async def _ask(self, node: int, message: DescribeSnapshots | FetchSnapshot, ask: Ask) -> Answer:
        if node != HERE:
            return await ask(node, message, deadline_s=FETCH_S_MAX)
        answers: list[Answer] = []
        await self._perform(lambda: answers.append(self.answer(message)))
        return Answer(answers[0].message, [b"".join(answers[0].payload)])

    def _put_back(self, header: SnapshotHeader, blocks: Sequence[bytes]) -> None:
        if header in self._store.headers():
            self._store.repair(header.position, dict(enumerate(blocks)))
        else:
            self._store.install(header, blocks)


def _blocks(answer: Answer, header: SnapshotHeader) -> dict[int, bytes]:
    """Returns the complete chunks in an answer, by index."""
    assert isinstance(answer.message, SnapshotPart)
    body, blocks, position = answer.body, dict[int, bytes](), 0
    for index in answer.message.chunks:
        size = header.block_bytes(index)
        if not 0 < size <= len(body) - position:
            break
        blocks[index] = bytes(body[position : position + size])
        position += size
    return blocks


def _lacking(node: int, named: Sequence[SnapshotHeader], merge: SnapshotMerge) -> str:
    """Returns a description of the chunks that are still missing after a broker's answers."""
    lacking = [candidate for candidate in merge.newest_first() if candidate.header in named]
    if lacking:
        return "; ".join(
            str(
                DamagedSnapshot(
                    candidate.header.position, candidate.to_request(node) or range(candidate.header.chunk_count)
                )
            )
            for candidate in lacking
        )
    if not named:
        return "it has no metadata snapshot"
    return f"its newest metadata snapshot ends at {named[0].position}"
