"""Payloads that are missing are asked for in turn, of every peer, whatever is lost for good."""

from __future__ import annotations

from tidelog.replication.paxos.catchup import REPAIRS_PER_BEAT, STRANGERS_MAX, Catchup
from tidelog.replication.paxos.events import Send
from tidelog.replication.paxos.messages import LearnRequest, LearnResponse
from tidelog.replication.paxos.replica import Replica
from tidelog.replication.paxos.state import ORIGIN, Kind, Metadata, Slot, Status, StoredLog, Value

PEERS = (2, 3, 4)


def value(position: int) -> Value:
    return Value(Kind.APPEND, 5, position, 1, b"%d" % position)


def replica(count: int, *, faulty: range) -> Replica:
    slots = [Slot(p, 5, value(p), learned=True, faulty=p in faulty) for p in range(count)]
    made = Replica(StoredLog(Metadata("1/1", Status.VOTING), ORIGIN, tuple(slots)))
    made.apply()
    return made


def asked(catchup: Catchup, end: int) -> dict[int, list[int]]:
    """Returns which payloads the peer is asked for whose turn it is; `end` is where the log is to go on."""
    requests = [(action.to, action.message) for action in catchup.on_timer() if isinstance(action, Send)]
    first = requests[0]
    repairs = [request for request in requests[1:] if request[0] == first[0]]
    assert first[1] == LearnRequest(end)
    positions = {first[0]: [m.position for _, m in repairs if isinstance(m, LearnRequest)]}
    assert [m for _, m in repairs] == [LearnRequest(p, p + 1) for p in positions[first[0]]]
    return positions


def test_nothing_is_asked_for_that_is_here() -> None:
    assert asked(Catchup(PEERS, replica(3, faulty=range(0))), 3) == {3: []}


def test_few_are_asked_for_at_once_at_each_beat() -> None:
    catchup = Catchup(PEERS, replica(3, faulty=range(1, 3)))
    assert [asked(catchup, 3) for _ in range(4)] == [{3: [1, 2]}, {4: [1, 2]}, {2: [1, 2]}, {3: [1, 2]}]


def test_every_peer_is_asked_for_every_payload_though_none_comes() -> None:
    """More than one beat's worth, and none of the first is to be had: the last is asked for all the same."""
    count = 2 * REPAIRS_PER_BEAT + 3
    catchup = Catchup(PEERS, replica(count, faulty=range(count)))
    seen: dict[int, set[int]] = {peer: set() for peer in PEERS}
    for _ in range(3 * len(PEERS)):
        for peer, positions in asked(catchup, count).items():
            assert len(positions) == len(set(positions)) == REPAIRS_PER_BEAT
            seen[peer].update(positions)
    assert seen == {peer: set(range(count)) for peer in PEERS}


def test_a_stranger_is_asked_though_another_comes_before_each_beat() -> None:
    """An only voter cannot read who the voters are now. The leader, whom it does not know, writes once; a learner, who
    lacks the same, asks time and again."""
    catchup = Catchup((), replica(3, faulty=range(1, 3)))
    catchup.meet(6)
    seen: dict[int, list[int]] = {}
    for _ in range(2):
        catchup.on_request(7, 3)
        seen |= asked(catchup, 3)
    assert seen == {6: [1, 2], 7: [1, 2]}


def test_strangers_are_few() -> None:
    catchup = Catchup((), replica(3, faulty=range(1, 3)))
    for sender in range(100):
        catchup.meet(sender)
    seen = [peer for _ in range(2 * STRANGERS_MAX) for peer in asked(catchup, 3)]
    assert sorted(set(seen)) == list(range(100 - STRANGERS_MAX, 100))


def test_what_has_come_is_not_asked_for_again() -> None:
    made = replica(3, faulty=range(3))
    catchup = Catchup(PEERS, made)
    catchup.on_response(3, LearnResponse(ORIGIN, (Slot(1, 5, value(1), learned=True),), 3))
    assert asked(catchup, 3) == {3: [0, 2]}


def test_who_asks_is_asked_for_what_cannot_be_read_here() -> None:
    """It may be who the members are."""
    alone = Catchup((), replica(3, faulty=range(2, 3)))
    alone.on_request(3, 0)
    assert asked(alone, 3) == {3: [2]}


def test_who_asks_is_not_asked_as_long_as_all_can_be_read_here() -> None:
    catchup = Catchup((2,), replica(3, faulty=range(0)))
    catchup.on_request(9, 3)
    assert [asked(catchup, 3) for _ in range(3)] == [{2: []}] * 3


def test_who_asks_from_further_on_is_asked() -> None:
    """The members may have changed where this replica has not come yet."""
    catchup = Catchup((2,), replica(3, faulty=range(0)))
    catchup.on_request(9, 4)
    assert [asked(catchup, 3) for _ in range(2)] == [{9: []}, {2: []}]


def asked_whether(catchup: Catchup) -> dict[int, list[int]]:
    """Returns which payloads each peer is asked for at one beat."""
    found: dict[int, list[int]] = {peer: [] for peer in PEERS}
    for action in catchup.on_timer():
        if isinstance(action, Send) and isinstance(action.message, LearnRequest) and action.message.end < 100:
            found[action.to].append(action.message.position)
    return found


def test_all_are_asked_until_each_has_said_whether_he_has_it() -> None:
    made = replica(5, faulty=range(2, 4))
    catchup = Catchup(PEERS, made)
    assert asked_whether(catchup) == {2: [2, 3], 3: [2, 3], 4: [2, 3]}
    for peer in (2, 4):
        lacked = Slot(2, 5, value(2), learned=True, faulty=True)
        catchup.on_response(peer, LearnResponse(ORIGIN, (lacked, Slot(4, 5, value(4), learned=True, faulty=True)), 5))
    assert catchup.lacking(2) == {2, 4}
    assert catchup.lacking(3) == catchup.lacking(4) == frozenset(), "what is here is not lacking"
    assert asked_whether(catchup) == {2: [3], 3: [2, 3], 4: [2, 3]}, "it is the turn of peer 4"
    catchup.on_response(3, LearnResponse(ORIGIN, (Slot(2, 5, value(2), learned=True),), 5))
    assert catchup.lacking(2) == frozenset()
