"""Who should vote: one step at a time, and never below what can still decide."""

from __future__ import annotations

from tests.unit.controller.cluster import Cluster, voter
from tidelog.controller.commands import AssignVoter, FenceBroker, RemoveBroker
from tidelog.controller.sessions import Sessions
from tidelog.controller.voting import ChangeVoters, next_step
from tidelog.model.ids import NodeId

REPLACE_MS = 600_000


def sessions_of(cluster: Cluster, *, heard: dict[int, float] | None = None) -> Sessions:
    sessions = Sessions(9_000, 1_000)
    sessions.begin(cluster.image, 0.0)
    for node, broker in cluster.image.brokers.items():
        sessions.heard(node, broker.epoch, (heard or {}).get(node, 0.0), position=cluster.image.position)
    return sessions


def step(cluster: Cluster, now_s: float = 1.0) -> ChangeVoters | AssignVoter | None:
    heard = {int(broker.node_id): now_s for broker in cluster.image.live_brokers}
    return next_step(cluster.image, sessions_of(cluster, heard=heard), now_s, replace_ms=REPLACE_MS)


def settle(cluster: Cluster, now_s: float = 1.0) -> list[str]:
    """Takes steps until none is left."""
    taken: list[str] = []
    while (taken_now := step(cluster, now_s)) is not None:
        assert len(taken) < 20
        if isinstance(taken_now, AssignVoter):
            cluster.do(taken_now)
            taken.append(f"assign {taken_now.node_id}")
            continue
        voters = tuple(one for one in cluster.image.voters if one.voter_id != taken_now.remove)
        if taken_now.add is not None:
            voters = (*voters, taken_now.add)
            taken.append(f"add {taken_now.add.node_id} as {taken_now.add.voter_id}")
        else:
            taken.append(f"remove {taken_now.remove}")
        cluster.set_voters(voters, max(cluster.image.voters_end, *(one.voter_id + 1 for one in voters)))
    return taken


def fence(cluster: Cluster, *nodes: int) -> None:
    for node in nodes:
        cluster.do(FenceBroker(node, cluster.image.brokers[NodeId(node)].epoch))


def test_one_voter_becomes_three_when_there_are_three_brokers_and_never_two() -> None:
    cluster = Cluster(voters=1)
    cluster.start(1, 2)
    assert settle(cluster) == []
    cluster.start(3, 4)
    assert settle(cluster) == ["assign 2", "add 2 as 2", "assign 3", "add 3 as 3"]


def test_a_broker_that_has_yet_to_catch_up_is_no_candidate() -> None:
    cluster = Cluster(voters=2)
    cluster.start(1, 2, 3)
    sessions = sessions_of(cluster)
    assert next_step(cluster.image, sessions, 1.0, replace_ms=REPLACE_MS) == AssignVoter(3, "disk-3")
    sessions.begin(cluster.image, 0.0)
    for _ in range(1_001):
        cluster.create(f"t{cluster.image.position}", 1, 1)
    assert next_step(cluster.image, sessions, 1.0, replace_ms=REPLACE_MS) is None


def test_founders_that_have_yet_to_register_keep_their_place() -> None:
    cluster = Cluster(voters=3)
    cluster.start(1, 2, 4)
    assert settle(cluster) == []
    assert settle(cluster, now_s=601.0) == ["remove 3", "assign 4", "add 4 as 4"]


def test_a_lost_disk_is_replaced_by_the_new_one() -> None:
    cluster = Cluster(voters=3)
    cluster.start(1, 2, 3)
    fence(cluster, 3)
    cluster.register(3, process="q", storage="new")
    assert step(cluster) == ChangeVoters(remove=3)
    cluster.heartbeat(3)
    assert settle(cluster) == ["remove 3", "assign 3", "add 3 as 4"]
    assert cluster.image.voters[-1].incarnation == "new"


def test_a_disk_that_voted_before_gets_a_new_id() -> None:
    cluster = Cluster(voters=3)
    cluster.start(1, 2, 3)
    cluster.set_voters((voter(1), voter(2)), 4)
    assert settle(cluster) == ["assign 3", "add 3 as 4"]


def test_an_id_that_missed_its_turn_is_not_used() -> None:
    cluster = Cluster(voters=2)
    cluster.start(1, 2, 3, 4)
    cluster.do(AssignVoter(4, "disk-4"))
    assert settle(cluster) == ["assign 3", "add 3 as 4"]
    fence(cluster, 3)
    assert settle(cluster, now_s=601.0) == ["remove 4", "assign 4", "add 4 as 5"]


def test_a_silent_voter_gives_its_place_to_a_live_broker_and_to_nobody_else() -> None:
    cluster = Cluster(voters=3)
    cluster.start(1, 2, 3)
    fence(cluster, 3)
    assert settle(cluster, now_s=601.0) == []
    cluster.start(4)
    assert settle(cluster, now_s=599.0) == []
    assert settle(cluster, now_s=601.0) == ["remove 3", "assign 4", "add 4 as 4"]


def test_no_voter_goes_where_the_live_ones_left_would_be_no_majority() -> None:
    cluster = Cluster(voters=3)
    cluster.start(1, 2, 3, 4, 5)
    fence(cluster, 2, 3)
    assert settle(cluster, now_s=601.0) == []
    cluster.register(3, process="q", storage="new")
    assert settle(cluster, now_s=601.0) == []


def test_a_removed_broker_stops_voting() -> None:
    cluster = Cluster(voters=3)
    cluster.start(1, 2, 3)
    cluster.do(RemoveBroker(3))
    assert settle(cluster) == ["remove 3"]


def test_a_cluster_of_five_voters_stays_one() -> None:
    cluster = Cluster(voters=5)
    cluster.start(1, 2, 3, 4, 5, 6)
    cluster.do(RemoveBroker(5))
    assert settle(cluster) == ["remove 5", "assign 6", "add 6 as 6"]


def test_a_rack_without_a_voter_comes_first() -> None:
    cluster = Cluster(voters=2)
    cluster.start(1, 2, 3, 4, racks={1: "a", 2: "b", 3: "a", 4: "c"})
    assert step(cluster) == AssignVoter(4, "disk-4")
