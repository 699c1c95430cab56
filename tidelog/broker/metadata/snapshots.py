"""Snapshots of the metadata: what lets the log be short, and new brokers begin.

Every broker writes its image down where the log says so (`SnapshotTaken`), and so they all write the same bytes. When a
majority of the voters have reported one root hash, the log may begin there. A broker that is behind that point, or new,
fetches the snapshot from another, chunk by chunk; each chunk carries its hash, and the root is checked before anything
is installed. A broker whose own snapshot differs from the one agreed on has gone astray, and does the same.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Protocol

import msgspec
import structlog

from tidelog.broker.consensus.messages import FetchSnapshot, SnapshotPart
from tidelog.broker.consensus.waiting import RECOVER
from tidelog.controller.snapshot import decode_image, encode_image
from tidelog.model.cluster import ClusterImage
from tidelog.model.errors import NotFound, TidelogError
from tidelog.model.ports import Entropy
from tidelog.replication.paxos.voters import VoterSet
from tidelog.storage.snapshot_format import DamagedSnapshot, SnapshotHeader, decode_header, encode_header, join
from tidelog.storage.snapshots import Snapshot, SnapshotStore, UnknownSnapshot
from tidelog.transport.peer import Answer

CHUNKS_AT_ONCE = 256
FETCH_S_MAX = 5.0
PAUSE_S = 0.1

logger = structlog.get_logger("tidelog.quorum")


class SnapshotVoters(msgspec.Struct, frozen=True):
    """The voters that a snapshot names beside the image, where the log that goes on from it begins."""

    voters: VoterSet
    voters_position: int
    """The position of the value that made them the voters; -1 if they are the founders."""


class Ask(Protocol):
    """`PeerNode.request`."""

    async def __call__(self, node_id: int, message: msgspec.Struct, *, deadline_s: float) -> Answer: ...


class SnapshotKeeper:
    """Keeps one broker's snapshots, on disk and on the wire. Positions are the log's, exclusive."""

    def __init__(
        self, store: SnapshotStore, perform: Callable[[Callable[[], None]], Awaitable[None]], entropy: Entropy
    ) -> None:
        self._store = store
        self._perform = perform
        self._entropy = entropy
        self.newest: tuple[int, str] = (0, "")
        """The image's position in the newest snapshot here, and its root hash."""
        self.positions: dict[int, int] = {}
        """The log positions of the snapshots taken by this process, by their image's position."""
        self._damage: list[str] = []
        """The damage of the snapshots here that was found when they were loaded."""
        self._refusals: dict[int, str] = {}
        """Why a broker did not give the snapshot that is being fetched, by its node id."""

    def load(self) -> tuple[ClusterImage, int, SnapshotVoters] | None:
        """The newest that is whole: image, position, voters. Blocking. Raises `SnapshotUnreadable`, `OSError`."""
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
        """Writes the image down. A disk that refuses costs a snapshot, nothing else."""
        header = msgspec.msgpack.encode(voters)
        body = encode_image(image)
        written: list[SnapshotHeader] = []

        def write() -> None:
            written.append(self._store.write(position, header, body))
            self._store.remove_old()

        try:
            await self._perform(write)
        except OSError as error:
            logger.error("the metadata snapshot could not be written", position=position, error=str(error))
            return
        self._note(image, written[0])

    # -- giving and getting ------------------------------------------------------------------------------------------

    def part(self, asked: FetchSnapshot) -> Answer:
        """Some chunks for a peer. Raises `NotFound` if there is no such snapshot, or it is damaged there."""
        try:
            header = self._store.newest() if asked.position < 0 else self._store.header(asked.position)
            if header is None:
                raise NotFound("this broker has no metadata snapshot")
            end = min(header.chunk_count, max(0, asked.first) + CHUNKS_AT_ONCE)
            blocks = [self._store.read_chunk(header.position, index) for index in range(max(0, asked.first), end)]
        except (UnknownSnapshot, DamagedSnapshot) as error:
            raise NotFound(f"this broker cannot give that snapshot: {error}") from error
        return Answer(SnapshotPart(encode_header(header), asked.first, len(blocks)), blocks)

    async def fetch(
        self, nodes: Callable[[], Sequence[int]], ask: Ask, at_least: int
    ) -> tuple[ClusterImage, int, SnapshotVoters]:
        """A peer's snapshot that reaches `at_least`, installed here. Asks one after the other until one has it."""
        turn = 0
        while True:
            candidates = list(nodes())
            if candidates:
                try:
                    snapshot = await self._fetch_from(candidates[turn % len(candidates)], ask, at_least)
                except (TidelogError, TimeoutError, OSError) as error:
                    self._refusals[candidates[turn % len(candidates)]] = str(error) or "no answer in time"
                    logger.info("a snapshot could not be fetched yet", error=str(error))
                else:
                    self._refusals.clear()
                    return self._opened(snapshot)
            turn += 1
            await asyncio.sleep(PAUSE_S * self._entropy.uniform(1, 2))

    def missing(self, nodes: Sequence[int], at_least: int) -> str:
        """Says what is missing, and what to do, once all these brokers were asked in vain for a snapshot that reaches
        `at_least`; empty before."""
        if not all(node in self._refusals for node in nodes):
            return ""
        here = [f"here: {', '.join(self._damage) or 'there is none'}"]
        others = [f"broker {node}: {self._refusals[node]}" for node in sorted(nodes)]
        return (
            f"the metadata log begins at position {at_least}, and no broker can give a snapshot that reaches it: "
            f"{'; '.join([*here, *others])}; put a copy of any broker's snapshots/ into its data directory, and start "
            f"that broker again; {RECOVER}"
        )

    async def fetch_damaged(self, position: int, nodes: Sequence[int], ask: Ask) -> bool:
        """Puts what a peer has of a snapshot in the place of what is damaged here; False if nobody has it now."""
        return await self._fetch_again(
            position, nodes, ask, lambda _, blocks: self._store.repair(position, dict(enumerate(blocks)))
        )

    async def fetch_lost(self, position: int, nodes: Sequence[int], ask: Ask) -> bool:
        """Fetches a snapshot anew whose header is lost; False if nobody has it now."""
        return await self._fetch_again(position, nodes, ask, self._store.install)

    async def _fetch_again(
        self,
        position: int,
        nodes: Sequence[int],
        ask: Ask,
        put_back: Callable[[SnapshotHeader, Sequence[bytes]], None],
    ) -> bool:
        for node in nodes:
            try:
                header, blocks = await self._blocks_of(node, ask, position)
                await self._perform(partial(put_back, header, blocks))
            except (TidelogError, TimeoutError, OSError, DamagedSnapshot, UnknownSnapshot) as error:
                logger.info("a snapshot cannot be had now", position=position, broker=node, reason=str(error))
            else:
                return True
        return False

    async def _fetch_from(self, node: int, ask: Ask, at_least: int) -> Snapshot:
        header, blocks = await self._blocks_of(node, ask, -1, at_least)
        try:
            await self._perform(lambda: self._store.install(header, blocks))
        except DamagedSnapshot as error:
            raise NotFound(f"what node {node} sent is no snapshot: {error}") from error
        return Snapshot(header, join(blocks))

    async def _blocks_of(
        self, node: int, ask: Ask, position: int, at_least: int = 0
    ) -> tuple[SnapshotHeader, list[bytes]]:
        """The snapshot of a peer at this position; with -1, its newest."""
        header, blocks = await self._first_part(node, ask, position)
        if header.position < at_least:
            raise NotFound(f"the snapshot of node {node} ends at {header.position}, and {at_least} is needed")
        while len(blocks) < header.chunk_count:
            answer = await ask(node, FetchSnapshot(header.position, len(blocks)), deadline_s=FETCH_S_MAX)
            more = _blocks(answer, header, len(blocks))
            if not more:
                raise NotFound(f"node {node} gave up its snapshot at {header.position}")
            blocks += more
        return header, blocks

    @staticmethod
    async def _first_part(node: int, ask: Ask, position: int) -> tuple[SnapshotHeader, list[bytes]]:
        answer = await ask(node, FetchSnapshot(position), deadline_s=FETCH_S_MAX)
        assert isinstance(answer.message, SnapshotPart)
        header = decode_header(answer.message.header)
        if header is None:
            raise NotFound(f"what node {node} sent is no snapshot")
        return header, _blocks(answer, header, 0)


def _blocks(answer: Answer, header: SnapshotHeader, first: int) -> list[bytes]:
    """The chunks of an answer, as far as it holds whole ones."""
    body, blocks, at = answer.body, list[bytes](), 0
    for index in range(first, header.chunk_count):
        size = header.block_bytes(index)
        if at + size > len(body):
            break
        blocks.append(bytes(body[at : at + size]))
        at += size
    return blocks
