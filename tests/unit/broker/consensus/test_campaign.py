"""What an election hears before it begins, while a broker is still reading its disk."""

from __future__ import annotations

import asyncio

from tidelog.broker.consensus.campaign import Campaigner
from tidelog.broker.consensus.messages import ElectionFrame
from tidelog.replication.election import Election
from tidelog.replication.election_events import PreVote, Reconfigured
from tidelog.replication.election_settings import ElectionSettings
from tidelog.replication.quorum import Majority
from tidelog.sim.kit import loop as sim_loop
from tidelog.sim.kit.environment import SimClock


class Host:
    """A voter that keeps what it posts, and never campaigns with success."""

    current_id = 1

    def __init__(self) -> None:
        self.posted: list[tuple[int, ElectionFrame]] = []

    def post(self, to: int, frame: ElectionFrame) -> None:
        self.posted.append((to, frame))

    def campaign(self) -> None: ...

    def demote(self) -> None: ...

    def leader_changed(self, leader: int | None) -> None: ...


def test_voters_that_the_disk_names_are_asked_for_their_votes() -> None:
    """Kept: a restarted voter went by the voters of its last snapshot for ever, and nobody was elected without one of
    them."""
    host = Host()

    async def campaign() -> None:
        settings = ElectionSettings()
        election = Election(
            1, Majority((1, 2)), settings, now_s=0.0, has_voted_before=True, uniform=lambda low, high: high
        )
        campaigner = Campaigner(election, host, SimClock(asyncio.get_running_loop()))
        campaigner.step(Reconfigured(1, Majority((1, 2, 3))))
        campaigner.begin()
        await asyncio.sleep(3 * settings.timeout_ms / 1000)
        campaigner.close()

    sim_loop.run(campaign)
    assert {to for to, frame in host.posted if isinstance(frame.message, PreVote)} == {2, 3}
