"""Logs by themselves: real replicas on real disks and sockets, in one process."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
import pytest_asyncio
from structlog.testing import capture_logs

from tidelog.adapters.disk_threads import DiskThreads
from tidelog.broker.consensus.founding import Address
from tidelog.config.errors import ConfigError
from tidelog.model.errors import InvalidRequest, LeaderNotAvailable, NotController, TooLarge
from tidelog.replication.election_settings import ElectionSettings
from tidelog.standalone.client import LogClient
from tidelog.standalone.directory import DirectoryRefused
from tidelog.standalone.process import initialise_directory, make_client, make_replica
from tidelog.standalone.replica import ENTRY_BYTES_MAX, LogReplica

SETTINGS = ElectionSettings(heartbeat_ms=50, lease_ms=250, timeout_ms=600)
"""Quick to elect, and still patient with a machine that has other things to do."""
WAIT_S = 50.0


class Group:
    """Servers 1 to n of one log, each with a directory."""

    def __init__(self, place: Path, disk: DiskThreads) -> None:
        self.replicas: dict[int, LogReplica] = {}
        self.servers: list[Address] = []
        self._place = place
        self._disk = disk
        self._clients: list[LogClient] = []
        self._starting: dict[int, asyncio.Task[None]] = {}

    def directory(self, node: int) -> Path:
        return self._place / str(node)

    async def found(self, count: int) -> None:
        """Runs `init` on each, then `replica` on each; returns when all vote."""
        for node in range(1, count + 1):
            initialise_directory(str(self.directory(node)))
            self.servers.append(await self.make(node, ("127.0.0.1", 0)))
        for node in self.replicas:
            self.run(node)
        await asyncio.gather(*map(self.voting, self.replicas))

    async def begin(self, node: int) -> None:
        """`tidelog log replica` on its directory, whatever is in it."""
        await self.make(node, self.servers[node - 1])
        self.run(node)

    async def make(self, node: int, address: Address) -> Address:
        self.replicas[node] = make_replica(node, str(self.directory(node)), self._disk, SETTINGS)
        return await self.replicas[node].listen(address)

    def run(self, node: int) -> None:
        self._starting[node] = asyncio.create_task(self.replicas[node].start(self.servers))

    async def voting(self, node: int) -> None:
        async with asyncio.timeout(WAIT_S):
            await self._starting[node]
            await self.replicas[node].has_voted_in.wait()

    async def started(self, node: int) -> None:
        """Until it knows its log, or raises."""
        async with asyncio.timeout(WAIT_S):
            await self._starting[node]

    async def stop(self, node: int) -> None:
        starting = self._starting.pop(node, None)
        if starting is not None:
            starting.cancel()
            await asyncio.gather(starting, return_exceptions=True)
        await self.replicas.pop(node).close()

    async def wipe(self, node: int) -> None:
        await self.stop(node)
        shutil.rmtree(self.directory(node))

    async def leader(self) -> int:
        async with asyncio.timeout(WAIT_S):
            while True:
                for node, replica in self.replicas.items():
                    if replica.leads.is_set():
                        return node
                await asyncio.sleep(0.01)

    def client(self) -> LogClient:
        self._clients.append(make_client(self.servers))
        return self._clients[-1]

    async def append(self, *texts: str) -> list[int]:
        client = self.client()
        return [await client.append(text.encode(), deadline_s=WAIT_S) for text in texts]

    async def texts(self) -> list[str]:
        """All entries, as the replica that is furthest tells them."""
        client = self.client()
        extents = await client.extents()
        best = max(extents, key=lambda server: extents[server].end)
        found = [one async for one in client.read([best], 0, extents[best].end)]
        assert [one.entry.position for one in found] == list(range(extents[best].end))
        return [one.payload[1:].decode() for one in found if one.payload is not None and one.payload[:1] == b"\0"]

    async def voter_ids(self) -> list[int]:
        described = await self.client().describe()
        return [0 if one is None else one.voter_id for one in described]

    async def close(self) -> None:
        for client in self._clients:
            await client.close()
        for node in list(self.replicas):
            await self.stop(node)


@pytest_asyncio.fixture
async def group(tmp_path: Path) -> AsyncIterator[Group]:
    disk = DiskThreads()
    group = Group(tmp_path, disk)
    yield group
    await group.close()
    disk.close()


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(WAIT_S):
        while not holds():
            await asyncio.sleep(0.01)


async def test_a_log_of_one(group: Group) -> None:
    await group.found(1)
    first, second = await group.append("a", "b")
    assert second == first + 1
    await group.stop(1)
    await group.begin(1)
    assert await group.append("c") > [second]
    assert await group.texts() == ["a", "b", "c"]


async def test_an_entry_that_no_peer_could_be_sent_is_refused(group: Group) -> None:
    await group.found(1)
    await group.leader()
    with pytest.raises(TooLarge):
        await group.replicas[1].append(bytes(ENTRY_BYTES_MAX + 1))


async def test_entries_outlive_the_leader_that_took_them(group: Group) -> None:
    await group.found(3)
    await group.append("a", "b")
    await group.stop(await group.leader())
    await group.append("c")
    assert await group.texts() == ["a", "b", "c"]


async def test_without_a_majority_nothing_is_taken(group: Group) -> None:
    await group.found(3)
    leader = await group.leader()
    for node in {1, 2, 3} - {leader}:
        await group.stop(node)
    await until(lambda: not group.replicas[leader].leads.is_set())
    with pytest.raises(NotController):
        await group.client().append(b"a", deadline_s=0.3)


@pytest.mark.parametrize(
    "was_leader", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["a follower", "the leader"]
)
async def test_a_wiped_replica_comes_back_as_another_voter(group: Group, was_leader: bool) -> None:
    await group.found(3)
    await group.append("a", "b")
    leader = await group.leader()
    node = leader if was_leader else leader % 3 + 1
    await group.wipe(node)
    await group.begin(node)
    await group.voting(node)
    ids = await group.voter_ids()
    assert ids[node - 1] == 4 and sorted(ids) == sorted({1, 2, 3, 4} - {node})
    await group.append("c")
    assert await group.texts() == ["a", "b", "c"]


@pytest.mark.slow
async def test_the_new_voter_counts_when_another_is_lost(group: Group) -> None:
    """Wiped one after the other, until no disk is left that founded the log."""
    await group.found(3)
    await group.append("a")
    for node in (1, 2, 3):
        await group.wipe(node)
        await group.begin(node)
        await group.voting(node)
    assert await group.voter_ids() == [4, 5, 6]
    for node in (1, 2, 3):
        await group.stop(node)
    for node in (1, 2, 3):
        await group.begin(node)
    assert await group.append("b") and await group.texts() == ["a", "b"]


async def test_initialised_in_error_it_still_only_joins(group: Group) -> None:
    """The others are not there to refuse it, but know the log, so they found none with it."""
    await group.found(3)
    await group.append("a")
    await group.wipe(1)
    initialise_directory(str(group.directory(1)))
    await group.begin(1)
    await group.voting(1)
    assert (await group.voter_ids())[0] == 4 and await group.texts() == ["a"]


@pytest.mark.slow
async def test_two_wiped_of_three_never_begin_a_log_of_their_own(group: Group) -> None:
    await group.found(3)
    await group.append("a")
    for node in (1, 2):
        await group.wipe(node)
        initialise_directory(str(group.directory(node)))
    await group.stop(3)
    for node in (1, 2):
        await group.begin(node)
    with pytest.raises(NotController):
        await group.client().append(b"b", deadline_s=1.0)
    assert await group.voter_ids() == [0, 0, 0]
    with capture_logs() as lines:
        await group.begin(3)
        await group.started(3)
        await until(lambda: any("nodes 1, 2 lost the log" in line.get("waits", "") for line in lines))
    assert any("read what is left with `tidelog log read`" in line.get("waits", "") for line in lines)
    assert [replica.log_id for replica in group.replicas.values()] == ["", "", group.replicas[3].log_id]
    assert await group.texts() == ["a"], (
        "what is left can be read, and no more: a majority of the voters' disks is lost"
    )
    assert not any(replica.leads.is_set() for replica in group.replicas.values())


async def test_what_was_never_initialised_founds_nothing(group: Group) -> None:
    group.servers = [await group.make(1, ("127.0.0.1", 0))]
    group.run(1)
    with pytest.raises(DirectoryRefused, match="no other server"):
        await group.started(1)


async def test_servers_in_another_order_are_noticed(group: Group) -> None:
    for node in (1, 2, 3):
        initialise_directory(str(group.directory(node)))
        group.servers.append(await group.make(node, ("127.0.0.1", 0)))
    group.run(1)
    group.servers = group.servers[::-1]
    group.run(2)
    with pytest.raises(ConfigError, match="--servers differs"):
        await group.started(2)


async def test_a_directory_goes_with_its_server(group: Group) -> None:
    await group.found(2)
    await group.stop(1)
    await group.stop(2)
    shutil.move(group.directory(1), group.directory(2).with_name("kept"))
    shutil.move(group.directory(2), group.directory(1))
    await group.begin(1)
    with pytest.raises(DirectoryRefused, match="belongs to server 2"):
        await group.started(1)


# -- init --------------------------------------------------------------------------------------------------------------


def test_init_takes_what_is_empty_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    initialise_directory(str(tmp_path / "a"))
    before = {path: path.read_bytes() for path in (tmp_path / "a").rglob("*") if path.is_file()}
    with pytest.raises(DirectoryRefused, match="initialised already"):
        initialise_directory(str(tmp_path / "a"))
    assert {path: path.read_bytes() for path in (tmp_path / "a").rglob("*") if path.is_file()} == before
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "notes").write_text("mine")
    with pytest.raises(DirectoryRefused, match="not empty: notes"):
        initialise_directory(str(tmp_path / "b"))
    assert [path.name for path in (tmp_path / "b").iterdir()] == ["notes"]


async def test_init_never_begins_a_log_anew(group: Group) -> None:
    await group.found(1)
    await group.append("a")
    log_id = group.replicas[1].log_id
    await group.stop(1)
    with pytest.raises(DirectoryRefused, match=log_id):
        initialise_directory(str(group.directory(1)))
    await group.begin(1)
    assert await group.append("b") and await group.texts() == ["a", "b"]


async def test_a_replica_that_forgot_its_promises_is_not_run(group: Group) -> None:
    await group.found(1)
    await group.append("a")
    await group.stop(1)
    for copy in group.directory(1).glob("journal/metainfo.*"):
        copy.unlink()
    with pytest.raises(DirectoryRefused, match="must not vote any more"):
        await group.begin(1)
    with pytest.raises(DirectoryRefused, match="what is left"):
        initialise_directory(str(group.directory(1)))


# -- truncation --------------------------------------------------------------------------------------------------------


async def positions(group: Group, node: int) -> tuple[int, int]:
    """Returns where the log begins and ends at this replica."""
    part = (await group.client().extents())[group.servers[node - 1]]
    return part.begin, part.end


async def texts_from(group: Group, begin: int) -> list[str]:
    client = group.client()
    extents = await client.extents()
    best = max(extents, key=lambda server: extents[server].end)
    found = [one async for one in client.read([best], begin, extents[best].end)]
    return [one.payload[1:].decode() for one in found if one.payload is not None and one.payload[:1] == b"\0"]


async def truncated(group: Group, begin: int) -> None:
    """Has the log truncated; returns when every replica has done so."""
    assert await group.client().truncate(begin, deadline_s=WAIT_S) == begin
    async with asyncio.timeout(WAIT_S):
        while any(part.begin < begin for part in (await group.client().extents()).values()):
            await asyncio.sleep(0.01)


async def test_a_truncated_log_begins_where_it_was_told(group: Group) -> None:
    await group.found(3)
    *_, third, fourth = await group.append("a", "b", "c", "d")
    await truncated(group, third)
    assert await texts_from(group, third) == ["c", "d"]
    assert await group.client().truncate(0, deadline_s=WAIT_S) == third, "a log never begins earlier again"
    with pytest.raises(InvalidRequest, match="it cannot begin at"):
        await group.client().truncate(fourth + 100, deadline_s=WAIT_S)


async def test_replicas_start_again_from_the_floor_of_a_truncated_log(group: Group) -> None:
    await group.found(3)
    await truncated(group, (await group.append("a", "b", "c"))[-1])
    for node in (1, 2, 3):
        await group.stop(node)
    for node in (1, 2, 3):
        await group.begin(node)
    await asyncio.gather(*map(group.voting, (1, 2, 3)))
    (fourth,) = await group.append("d")
    assert await group.voter_ids() == [1, 2, 3]
    begin, end = await positions(group, await group.leader())
    assert begin > 0 and end > fourth
    assert await texts_from(group, begin) == ["c", "d"]


@pytest.mark.slow
async def test_wiped_replicas_join_a_truncated_log_one_after_the_other(group: Group) -> None:
    """In the end nobody is left that has read the log's head: what it noted there was handed on."""
    await group.found(3)
    await truncated(group, (await group.append("a", "b"))[-1])
    for node in (1, 2, 3):
        await group.wipe(node)
        await group.begin(node)
        await group.voting(node)
    assert sorted(await group.voter_ids()) == [4, 5, 6]
    for node in (1, 2, 3):
        await group.stop(node)
    for node in (1, 2, 3):
        await group.begin(node)
    await asyncio.gather(*map(group.voting, (1, 2, 3)))
    (third,) = await group.append("c")
    await truncated(group, third)
    assert await texts_from(group, third) == ["c"]


async def test_nothing_is_truncated_that_a_voter_may_lack(group: Group) -> None:
    await group.found(3)
    leader = await group.leader()
    away = leader % 3 + 1
    await group.stop(away)
    _, second = await group.append("a", "b")
    with pytest.raises(LeaderNotAvailable, match=f"server {away} .* does not tell"):
        await group.client().truncate(second, deadline_s=WAIT_S)
    assert await group.texts() == ["a", "b"]
