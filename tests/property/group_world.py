"""One group, whatever its members, its network, its topics and its coordinators do.

Requests and answers are lost, come late, come twice and overtake each other. Members come and go, are expelled, come
back for their committed offsets, want other topics, commit. Topics appear, grow, vanish and are created anew.
Coordinators die and load the log, which is copied forward meanwhile.

A member that is expelled stops by itself before: that is its lease, see `consumer/membership.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random

from msgspec import structs

from tests.unit.groups.desk import Desk, copied, replayed
from tidelog.groups.decide import decide, has_news
from tidelog.groups.group import GroupState
from tidelog.groups.rebalance import has_other_topics, resolved
from tidelog.groups.records import CurrentRecord, GroupLogRecord, encode
from tidelog.groups.settings import TopicSeen
from tidelog.model.errors import FencedMember, TidelogError
from tidelog.model.groups import (
    JOIN,
    LEAVE,
    LEAVE_STATIC,
    AnyGroupRequest,
    CommitOffsets,
    CommittedOffset,
    FetchOffsets,
    Heartbeat,
    HeartbeatAnswer,
    OffsetsAnswer,
    grouped,
    pairs,
)

Partition = tuple[str, int]
TOPICS = ("a", "b")
PATTERNS = ("", "", "", "a|b", "[b-z]")
PARTITIONS_MAX = 6
ACTORS_MAX = 4
FLYING_MAX = 12
NOBODY = 0
"""Waits for the answer."""
ROUNDS_MAX = 6
"""Of heartbeats of everybody, until all is settled: told, given up, given, and said so; and once more for who joins."""


class Actor:
    """A member's side. It goes by what it has heard, and has one request under way that it waits for."""

    def __init__(self, member_id: str, topics: tuple[str, ...], pattern: str, instance_id: str | None) -> None:
        self.member_id = member_id
        self.topics, self.pattern, self.instance_id = topics, pattern, instance_id
        self.epoch = JOIN
        self.owned = frozenset[Partition]()
        self.allowed = frozenset[Partition]()
        self.positions = dict[Partition, int]()
        self.sequence = 0
        self.awaits = -1
        self.said = self.owned

    def heartbeat(self) -> Heartbeat:
        self.said = self.owned
        is_join = self.epoch == JOIN
        return Heartbeat(
            group="g",
            member_id=self.member_id,
            member_epoch=self.epoch,
            instance_id=self.instance_id,
            topics=self.topics if is_join else None,
            pattern=self.pattern if is_join else None,
            owned=grouped(sorted(self.owned)),
        )

    def hear(self, answer: HeartbeatAnswer) -> None:
        self.awaits = -1
        self.epoch = answer.member_epoch
        self.allowed = self.said if answer.assignment is None else frozenset(pairs(answer.assignment))
        self.owned |= self.allowed

    def commit(self) -> CommitOffsets:
        self.sequence += 1
        return CommitOffsets(
            group="g",
            member_id=self.member_id,
            member_epoch=self.epoch,
            sequence=self.sequence,
            offsets=tuple(CommittedOffset(*partition, at) for partition, at in self.positions.items()),
        )

    def give_up(self) -> None:
        self.owned &= self.allowed
        self.positions = {partition: at for partition, at in self.positions.items() if partition in self.owned}

    def lose_everything(self) -> None:
        self.awaits, self.epoch = -1, JOIN
        self.owned = self.allowed = frozenset()
        self.positions = {}


class World:
    """See the module. `step` by `step`, and `finish`."""

    def __init__(self, dice: Random) -> None:
        self.dice = dice
        self.desk = Desk(a=3, b=1)
        self.actors = list[Actor]()
        self.names = 0
        self.requests = list[tuple[int, AnyGroupRequest]]()
        self.answers = list[tuple[int, HeartbeatAnswer | TidelogError]]()
        self.number = 0
        self.reached = dict[tuple[Partition, str], int]()
        """The furthest committed offset that was ever kept, by partition and topic id."""
        self.copying: Iterator[GroupLogRecord] | None = None
        self.copied_from = 0
        self.is_ending = False

    def step(self) -> None:
        """Something happens, often or seldom; and what must hold is looked at."""
        events: dict[Callable[[], None], int] = {
            self._exchange: 20,
            self._everybody_exchanges: 5,
            self._beat: 10,
            self._deliver_any: 20,
            self._deliver_the_oldest_again: 5,
            self._hear_any: 20,
            self._lose: 2,
            self._give_up: 10,
            self._commit: 15,
            self._somebody_joins: 6,
            self._somebody_wants_other_topics: 4,
            self._leave: 3,
            self._expel: 2,
            self._change_a_topic: 3,
            self.desk.look_at_topics: 4,
            self._the_coordinator_dies: 3,
            self._copy_forward: 10,
        }
        (event,) = self.dice.choices(list(events), list(events.values()))
        event()
        self._nobody_owns_what_another_owns()
        self._the_index_of_owners_is_right()
        self._targets_cover_what_is_subscribed()

    # -- members ---------------------------------------------------------------------------------------------------

    def _somebody_joins(self) -> None:
        if len(self.actors) < ACTORS_MAX:
            static = self.dice.choice([None, None, "i1", "i2"])
            self.actors.append(Actor(self._new_id("m"), *self._subscription(), static))
            self._send(self.actors[-1])

    def _beat(self) -> None:
        for actor in self._any_actor():
            self._send(actor)

    def _exchange(self) -> None:
        for actor in self._any_actor():
            self._exchange_of(actor)

    def _exchange_of(self, actor: Actor) -> None:
        """A whole heartbeat, and what it says is done at once, or later."""
        self._send(actor)
        self._deliver(len(self.requests) - 1, again=False)
        self._hear(len(self.answers) - 1)
        if self.is_ending or self.dice.random() < 0.5:
            actor.give_up()

    def _everybody_exchanges(self) -> None:
        for actor in self.actors:
            self._exchange_of(actor)

    def _somebody_wants_other_topics(self) -> None:
        for actor in self._any_actor():
            actor.topics, actor.pattern = self._subscription()
            self._put(actor, structs.replace(actor.heartbeat(), topics=actor.topics, pattern=actor.pattern))

    def _give_up(self) -> None:
        for actor in self._any_actor():
            actor.give_up()

    def _leave(self) -> None:
        for actor in self._any_actor():
            self.actors.remove(actor)
            epoch = LEAVE if actor.instance_id is None else LEAVE_STATIC
            self._fly(NOBODY, Heartbeat(group="g", member_id=actor.member_id, member_epoch=epoch))

    def _expel(self) -> None:
        members = sorted(self.desk.group.members) if self.desk.shard.groups else []
        if members:
            member_id = self.dice.choice(members)
            self.actors = [actor for actor in self.actors if actor.member_id != member_id]
            self.desk.expel(member_id)

    def _commit(self) -> None:
        """Of all that was read: since the committed offset that the group had when the partition was given to the
        member."""
        for actor in self._any_actor():
            self._look_up(actor)
            actor.positions = {partition: at + self.dice.randrange(6) for partition, at in actor.positions.items()}
            if actor.positions:
                self._fly(NOBODY, actor.commit())

    # -- the network -----------------------------------------------------------------------------------------------

    def _deliver_any(self) -> None:
        if self.requests:
            self._deliver(self.dice.randrange(len(self.requests)), again=self.dice.random() < 0.3)

    def _deliver_the_oldest_again(self) -> None:
        if self.requests:
            self._deliver(0, again=True)

    def _hear_any(self) -> None:
        if self.answers:
            self._hear(self.dice.randrange(len(self.answers)))

    def _lose(self) -> None:
        if self.requests:
            del self.requests[self.dice.randrange(len(self.requests))]

    # -- the cluster -----------------------------------------------------------------------------------------------

    def _change_a_topic(self) -> None:
        topic, partitions = self.dice.choice(TOPICS), self.dice.randint(0, PARTITIONS_MAX)
        was = self.desk.view.get(topic)
        if partitions == 0:
            self.desk.view.pop(topic, None)
        elif was is None or self.dice.random() < 0.5:
            self.desk.view[topic] = TopicSeen(self._new_id("id"), partitions)
        else:
            self.desk.view[topic] = TopicSeen(was.topic_id, max(was.partitions, partitions))

    def _the_coordinator_dies(self) -> None:
        self.copying = None
        loaded = replayed(self.desk.log)
        assert loaded == self.desk.shard
        assert replayed(copied(self.desk.shard)) == self.desk.shard
        self.desk.shard = loaded

    def _copy_forward(self) -> None:
        """Some of what is live, into the log; when it is all there, what was before goes."""
        if self.copying is None:
            self.copying, self.copied_from = self.desk.shard.live_records(), len(self.desk.log)
        for _ in range(self.dice.randint(1, 8)):
            record = next(self.copying, None)
            if record is None:
                del self.desk.log[: self.copied_from]
                self.copying = None
                return
            self.desk.put([record])

    # -- what must hold --------------------------------------------------------------------------------------------

    def _nobody_owns_what_another_owns(self) -> None:
        owners = dict[Partition, str]()
        for actor in self.actors:
            for partition in actor.owned:
                assert owners.setdefault(partition, actor.member_id) == actor.member_id, partition
                assert self.desk.group.owners[partition] == actor.member_id

    def _the_index_of_owners_is_right(self) -> None:
        for group in self.desk.shard.groups.values():
            held = {p: m for m, current in group.currents.items() for p in (*current.held, *current.revoking)}
            assert group.owners == held
            assert group.currents.keys() == group.members.keys() == group.targets.keys()
            assert group.instances == {m.instance_id: m.member_id for m in group.members.values() if m.instance_id}

    def _targets_cover_what_is_subscribed(self) -> None:
        for group in self.desk.shard.groups.values():
            if has_other_topics(group, self.desk.view):
                continue
            wanted = resolved(group.members, self.desk.view)
            every = {(name, number) for names in wanted.values() for name in names for number in self._numbers(name)}
            given = [partition for target in group.targets.values() for partition in target]
            assert sorted(given) == sorted(every)
            for member_id, target in group.targets.items():
                assert {topic for topic, _ in target} <= set(wanted[member_id])

    def finish(self) -> None:
        """From now on nothing is lost or late, and everything settles."""
        self.is_ending = True
        self._the_coordinator_dies()
        self.desk.look_at_topics()
        self.requests.clear()
        self.answers.clear()
        for _ in range(2):
            self._everybody_exchanges()
        strangers = set(self.desk.group.members if self.desk.shard.groups else ())
        self.desk.expel(*sorted(strangers - {actor.member_id for actor in self.actors}))
        self._settle()

    def _settle(self) -> None:
        for _ in range(ROUNDS_MAX):
            for actor in self.actors:
                self._exchange_of(actor)
                self._nobody_owns_what_another_owns()
        if not self.actors:
            return
        assert self.desk.group.state == GroupState.STABLE
        for actor in self.actors:
            assert actor.owned == self.desk.group.target_of(actor.member_id).keys()
            assert not has_news(self.desk.shard, actor.heartbeat())
        logged = len(self.desk.log)
        self._everybody_exchanges()
        assert len(self.desk.log) == logged, "nothing is written without news"

    # -- steps -----------------------------------------------------------------------------------------------------

    def _any_actor(self) -> list[Actor]:
        return [self.dice.choice(self.actors)] if self.actors else []

    def _new_id(self, kind: str) -> str:
        self.names += 1
        return f"{kind}{self.names}"

    def _subscription(self) -> tuple[tuple[str, ...], str]:
        names = self.dice.sample(TOPICS, self.dice.choice([0, 1, 1, 2, 2, 2]))
        return tuple(sorted(names)), self.dice.choice(PATTERNS)

    def _numbers(self, topic: str) -> range:
        return range(self.desk.view[topic].partitions)

    def _send(self, actor: Actor) -> None:
        self._put(actor, actor.heartbeat())

    def _put(self, actor: Actor, request: AnyGroupRequest) -> None:
        self.number += 1
        actor.awaits = self.number
        self._fly(self.number, request)

    def _fly(self, number: int, request: AnyGroupRequest) -> None:
        self.requests.append((number, request))
        del self.requests[:-FLYING_MAX]

    def _deliver(self, which: int, *, again: bool) -> None:
        number, request = self.requests[which]
        if not again:
            del self.requests[which]
        before = copied(self.desk.shard)
        try:
            decision = decide(self.desk.shard, request, self.desk.view, self.desk.settings, self.desk.now)
        except TidelogError as error:
            assert copied(self.desk.shard) == before
            self.answers.append((number, error))
            return
        assert copied(self.desk.shard) == before, "to decide changes nothing"
        self._check_nobody_is_disturbed(request, decision.records)
        self.desk.put(decision.records)
        self._check_places()
        if isinstance(decision.answer, HeartbeatAnswer):
            self.answers.append((number, decision.answer))

    def _check_nobody_is_disturbed(self, request: AnyGroupRequest, records: tuple[GroupLogRecord, ...]) -> None:
        moved = [record for record in records if isinstance(record, CurrentRecord)]
        assert all(isinstance(request, Heartbeat) and record.member_id == request.member_id for record in moved)
        assert len({encode(record)[0] for record in records}) == len(records), "each key once"

    def _check_places(self) -> None:
        for partition, committed in self.desk.group.offsets.items() if self.desk.shard.groups else ():
            reached = self.reached.get((partition, committed.topic_id), 0)
            assert committed.offset >= reached, f"{partition} went back from {reached} to {committed}"
            self.reached[partition, committed.topic_id] = committed.offset

    def _hear(self, which: int) -> None:
        number, answer = self.answers.pop(which)
        for actor in [actor for actor in self.actors if actor.awaits == number]:
            if isinstance(answer, HeartbeatAnswer):
                actor.hear(answer)
                self._check_kept(actor)
            else:
                self._after(actor, answer)
                actor.lose_everything()

    def _after(self, actor: Actor, error: TidelogError) -> None:
        """Who is fenced may join again as who it was, if no commit of it is under way: that would be of its former
        life, in which it may have read further. Who is unknown, or could not even join, is somebody else."""
        if isinstance(error, FencedMember) and actor.epoch != JOIN and self.dice.random() < 0.5:
            self.requests = [
                (number, request)
                for number, request in self.requests
                if not isinstance(request, CommitOffsets) or request.member_id != actor.member_id
            ]
        else:
            actor.member_id, actor.sequence = self._new_id("m"), 0
            actor.instance_id = None

    def _check_kept(self, actor: Actor) -> None:
        """Nothing is taken away that is in the target."""
        target = self.desk.group.target_of(actor.member_id)
        for topic, number in actor.owned - actor.allowed:
            seen = self.desk.group.owners.get((topic, number))
            assert seen == actor.member_id
            held = self.desk.group.currents[actor.member_id].of((topic, number))
            assert held is not None
            if (topic, number) in self.desk.group.currents[actor.member_id].held:
                assert target.get((topic, number)) == held.topic_id

    def _look_up(self, actor: Actor) -> None:
        """Where to begin in what is new, as soon as the coordinator knows the member by this epoch."""
        missing = sorted(actor.owned - actor.positions.keys())
        if not missing or actor.epoch == JOIN:
            return
        asked = FetchOffsets(
            group="g", member_id=actor.member_id, member_epoch=actor.epoch, partitions=grouped(missing)
        )
        try:
            offsets = self.desk.ask(asked, OffsetsAnswer).offsets
        except TidelogError:
            return
        actor.positions |= {(committed.topic, committed.partition): max(committed.offset, 0) for committed in offsets}
