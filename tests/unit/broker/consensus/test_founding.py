"""Founding a log, and joining one, from new disks: what is judged from which answers, and what a crash leaves."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from types import SimpleNamespace
from typing import cast

import pytest
from msgspec.structs import replace

from tests.unit.broker.consensus.stage import Site, Stage, play
from tests.unit.broker.isr.stage import until
from tidelog.broker.consensus.elected_log import ElectedLog
from tidelog.broker.consensus.founding import NO_PAST, Address, LogOrigin, NamedVoter, find_origin
from tidelog.broker.consensus.messages import QuorumDescribed
from tidelog.broker.consensus.waiting import Past
from tidelog.broker.metadata.bootstrap import MetadataBootstrap
from tidelog.config.errors import ConfigError
from tidelog.model.cluster import Voter
from tidelog.model.errors import WrongCluster
from tidelog.replication.paxos.state import Status
from tidelog.replication.paxos.voters import VoterSet, encode_voters
from tidelog.sim.kit.environment import SimEntropy
from tidelog.sim.kit.loop import run
from tidelog.sim.kit.seeds import stream
from tidelog.transport.peer import PeerBusy, PeerRefused

GIVE_UP_S = 60.0
NAMED = [NamedVoter(node, ("h", node)) for node in (1, 2, 3)]


def described(node: int) -> QuorumDescribed:
    """Returns what a new disk says of itself."""
    return QuorumDescribed(node, f"disk-{node}", "", 0, (), b"", -1, tuple(map(str, NAMED)))


def belonging(node: int, cluster_id: str, known: VoterSet, position: int = 0) -> QuorumDescribed:
    """Returns what a member of a log says."""
    return replace(described(node), cluster_id=cluster_id, voters=encode_voters(known), voters_position=position)


def origin(
    me: int,
    answers: Sequence[QuorumDescribed],
    named: Sequence[NamedVoter] = NAMED,
    silent_rounds: int = 0,
    past: Past = NO_PAST,
    silence: Callable[[], Exception] = TimeoutError,
) -> LogOrigin:
    """Returns what a disk judges by these answers; in the first rounds there is nothing but the `silence`."""
    asked: dict[Address, int] = {}
    found: list[LogOrigin] = []

    async def ask(address: Address) -> QuorumDescribed:
        asked[address] = asked.get(address, 0) + 1
        if asked[address] <= silent_rounds:
            raise silence()
        return next(answer for answer in answers if answer.node_id == address[1])

    async def main() -> None:
        contacts = [("h", answer.node_id) for answer in answers]
        entropy = SimEntropy(stream("founding", str(me)))
        disk = f"disk-{me}" if past.may_found else f"new-disk-{me}"
        known = contacts if not named else ()
        with suppress(TimeoutError):
            async with asyncio.timeout(GIVE_UP_S):
                found.append(
                    await find_origin(NAMED[me - 1], disk, named, known, ask, entropy, past=past, tell=told.append)
                )

    told: list[str] = []
    run(main)
    if not found:
        raise StillWaiting(told[-1])
    return found[0]


class StillWaiting(Exception):
    """A broker waits, for the reason that it tells."""


def voters(*ids: int) -> VoterSet:
    return VoterSet(tuple(Voter(one, one, f"disk-{one}", "h", one) for one in ids), max(ids) + 1)


def test_all_founders_come_to_the_same_log_without_being_told() -> None:
    judged = [origin(me, [described(node) for node in (1, 2, 3) if node != me]) for me in (1, 2, 3)]
    assert judged[0] == judged[1] == judged[2]
    assert judged[0].is_founder and judged[0].voters == voters(1, 2, 3)
    other_disk = origin(1, [described(2), replace(described(3), incarnation="other")])
    assert other_disk.cluster_id != judged[0].cluster_id, "the id is drawn from what the founders are"


def test_nobody_is_founder_before_all_have_answered() -> None:
    judged = origin(1, [described(2), described(3)], silent_rounds=4)
    assert judged.is_founder and judged.voters.ids == (1, 2, 3)


def test_who_has_no_place_now_is_asked_again_and_who_refuses_for_good_is_not() -> None:
    answers = [described(2), described(3)]
    judged = origin(1, answers, silent_rounds=4, silence=lambda: PeerBusy("this broker has 512 peer connections"))
    assert judged.is_founder and judged.voters.ids == (1, 2, 3)
    joined = origin(1, [belonging(2, "c", voters(2))], [], 4, silence=lambda: PeerBusy("this broker is stopping"))
    assert joined.cluster_id == "c"
    with pytest.raises(ConfigError, match="the broker at h:2 refuses this one: both brokers are node 1"):
        origin(1, answers, silent_rounds=4, silence=lambda: PeerRefused("both brokers are node 1"))


def test_a_new_disk_joins_if_anybody_is_of_a_log_and_goes_by_the_newest_voters() -> None:
    answers = [belonging(2, "c", voters(1, 2)), belonging(3, "c", voters(2, 4), position=7)]
    for named in (NAMED, []):
        judged = origin(1, answers, named)
        assert (judged.is_founder, judged.cluster_id, judged.voters.ids) == (False, "c", (2, 4))


def test_logs_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(ConfigError, match="several clusters"):
        origin(1, [belonging(node, f"c{node}", voters(2)) for node in (2, 3)])
    with pytest.raises(ConfigError, match="differs between brokers"):
        origin(1, [replace(described(2), configured_voters=("2@h:2",)), described(3)])


def test_a_founding_that_lost_a_disk_in_its_midst_is_refused() -> None:
    begun = ((1, "another"), (2, "disk-2"), (3, "disk-3"))
    with pytest.raises(ConfigError, match="cannot be ended"):
        origin(1, [replace(described(2), cluster_id="c", founders=begun), described(3)])


# -- a directory with a past -----------------------------------------------------------------------------------------

LOST = Past(may_found=False, cluster_id="c")


def remembering(node: int, cluster_id: str = "c") -> QuorumDescribed:
    """Returns what a broker says whose metadata log is lost."""
    return replace(described(node), incarnation=f"new-disk-{node}", remembers=cluster_id)


def test_who_lost_its_metadata_log_joins_its_own_cluster() -> None:
    judged = origin(1, [belonging(node, "c", voters(1, 2, 3)) for node in (2, 3)], past=LOST)
    assert (judged.is_founder, judged.cluster_id) == (False, "c")
    judged = origin(1, [belonging(node, "c", voters(1, 2, 3)) for node in (2, 3)], past=Past(may_found=False))
    assert (judged.is_founder, judged.cluster_id) == (False, "c")


def recovered(node: int, recovery_id: str) -> QuorumDescribed:
    """Returns what a member says whose log was begun anew."""
    return replace(belonging(node, "c", voters(node)), generation=1, recovery_id=recovery_id)


def test_a_new_disk_joins_what_was_recovered_once_and_not_what_was_recovered_apart() -> None:
    judged = origin(1, [recovered(2, "x"), belonging(3, "c", voters(3))], past=Past(False, "c", 1))
    assert (judged.voters, judged.generation, judged.recovery_id) == (voters(2), 1, "x")
    with pytest.raises(WrongCluster, match="node 2 is of recovery x, node 3 is of recovery y"):
        origin(1, [recovered(2, "x"), recovered(3, "y")])


def test_a_disk_that_a_recovery_made_joins_no_other_of_its_generation() -> None:
    bound = Past(False, "c", 1, "x")
    assert origin(1, [recovered(2, "x")], [], past=bound).recovery_id == "x"
    with pytest.raises(WrongCluster, match="node 1 is of recovery x, node 2 is of recovery y"):
        origin(1, [recovered(2, "y")], [], past=bound)
    newer = replace(recovered(2, "y"), generation=2)
    assert origin(1, [newer], [], past=bound).generation == 2


def test_who_lost_its_metadata_log_joins_no_other_cluster() -> None:
    for answer in (belonging(2, "d", voters(2, 3)), remembering(2, "d")):
        with pytest.raises(WrongCluster, match=r"belongs to cluster c, and node 2.* to d"):
            origin(1, [answer, described(3)], past=LOST)


@pytest.mark.parametrize(
    "others", [[described(2), described(3)], [remembering(2), described(3)], [remembering(2), remembering(3)]]
)
def test_nobody_founds_over_data(others: list[QuorumDescribed]) -> None:
    with pytest.raises(StillWaiting, match=r"holds data of cluster c, .*`tidelog cluster recover --data-dir"):
        origin(1, others, past=LOST)
    with pytest.raises(StillWaiting, match=r"holds data of a cluster, .*tidelog cluster recover"):
        origin(1, others, past=Past(may_found=False))
    with pytest.raises(StillWaiting, match=r"knows no other broker.*tidelog cluster recover"):
        origin(1, [], [NAMED[0]], past=LOST)


@pytest.mark.parametrize("cluster_id", ["c", ""])
def test_a_new_broker_does_not_found_with_one_that_has_a_past(cluster_id: str) -> None:
    with pytest.raises(StillWaiting, match="node 2 lost the metadata log of a cluster"):
        origin(1, [remembering(2, cluster_id), described(3)])
    with pytest.raises(StillWaiting, match="nodes 2, 3 lost the metadata log of a cluster"):
        origin(1, [remembering(2, cluster_id), remembering(3, cluster_id)])


def test_a_voter_that_is_left_names_who_lost_its_disk_and_who_does_not_answer() -> None:
    """It knows them all, from its own log: it needs nobody to be named."""

    async def ask(address: Address) -> QuorumDescribed:
        if address[1] == 4:
            raise TimeoutError
        return replace(described(address[1]), incarnation=f"new-disk-{address[1]}")

    async def main() -> None:
        bootstrap = SimpleNamespace(_node_id=5, member=SimpleNamespace(incarnation="disk-5"), _ask=ask)
        log = SimpleNamespace(membership=SimpleNamespace(voters=voters(1, 2, 3, 4, 5)))
        reason = await MetadataBootstrap.find_loss(cast("MetadataBootstrap", bootstrap), cast("ElectedLog", log))
        assert reason.startswith("nodes 1, 2, 3 lost the metadata log, so")
        assert "it waits for the brokers at h:4, which do not answer; if no other disk" in reason
        log.membership.voters = voters(1, 2, 3, 5)
        assert "--join" not in await MetadataBootstrap.find_loss(
            cast("MetadataBootstrap", bootstrap), cast("ElectedLog", log)
        )

    run(main)


def test_nobody_joins_a_log_whose_majority_is_lost() -> None:
    alive = belonging(3, "c", voters(1, 2, 3))
    with pytest.raises(StillWaiting, match=r"nodes 1, 2 lost the metadata log, .*no majority.*cluster recover"):
        origin(1, [remembering(2), alive], past=LOST)
    newer = belonging(2, "c", VoterSet((*voters(2, 3).voters, Voter(4, 1, "other", "h", 1)), 5), position=9)
    judged = origin(1, [newer, alive], past=LOST)
    assert judged.voters.ids == (2, 3, 4), "one of three is lost, and the newest voters count"


# -- with disks ------------------------------------------------------------------------------------------------------


def status(site: Site) -> Status | None:
    return None if site.log is None else site.log.status


@pytest.mark.parametrize("seed", range(8))
def test_founders_that_crash_at_any_moment_found_one_log(seed: int) -> None:
    async def story(stage: Stage) -> None:
        starts = [site.boot() for site in stage.sites.values()]
        await asyncio.sleep(stage.rng.uniform(0.05, 0.5))
        site = stage.rng.choice(list(stage.sites.values()))
        await site.crash()
        await asyncio.sleep(stage.rng.uniform(0, 1))
        await site.boot()
        await asyncio.wait(starts)
        await stage.agree(1, 2, 3)
        assert len({site.member.cluster_id for site in stage.sites.values() if site.member is not None}) == 1
        await stage.check_serves()

    play(story, founders=3, seed=seed)


def test_founders_resume_the_founding_when_all_crash_in_its_midst() -> None:
    async def story(stage: Stage) -> None:
        for site in stage.sites.values():
            site.boot()
        async with asyncio.timeout(60):
            while Status.STARTING not in map(status, stage.sites.values()):
                await asyncio.sleep(0.0001)
        assert Status.VOTING not in map(status, stage.sites.values())
        for site in stage.sites.values():
            await site.crash()
        for site in stage.sites.values():
            site.boot()
        await stage.agree(1, 2, 3)
        await stage.check_serves()

    play(story, founders=3)


def test_a_founder_that_was_wiped_joins_as_another_voter_and_never_votes_as_itself() -> None:
    async def story(stage: Stage) -> None:
        await stage.found()
        await stage.agree(1, 2, 3)
        await stage.sites[1].crash()
        stage.sites[1].wipe()
        await stage.sites[1].boot()
        again = stage.sites[1]
        await until(lambda: again.voter_ids == (1, 2, 3))
        assert again.member is not None and not again.member.is_founder
        assert again.running.voting_id == 0 and status(again) is Status.EMPTY
        leader = await stage.leader()
        added = await enlisted(again, 4)
        await leader.run(leader.running.change_voters(add=added, remove=1))
        await stage.agree(2, 3, 4)
        await stage.check_serves()

    play(story, founders=3)


async def enlisted(site: Site, voter_id: int) -> Voter:
    site.act(lambda: site.running.leadership.enlist(voter_id))
    await until(lambda: site.running.voting_id == voter_id)
    return Voter(voter_id, site.node_id, site.running.described([]).incarnation, *site.address)


def test_a_disk_that_joined_remembers_whom_to_ask() -> None:
    async def story(stage: Stage) -> None:
        await stage.found()
        joining = stage.sites[4]
        await joining.boot()
        await joining.crash()
        stage.silent.update((1, 2, 3))
        async with asyncio.timeout(60):
            await joining.boot()
        assert joining.member is not None and not joining.member.is_new and joining.member.contacts is not None
        assert not joining.running.membership.is_known, "it knows whom to ask, not who voted where the log begins"
        stage.silent.clear()
        await until(lambda: joining.running.membership.is_known)
        await stage.check_serves()

    play(story, founders=3, spares=1)
