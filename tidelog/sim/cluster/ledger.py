"""The ledger: all committed batches, and which replicas must still have them; the rules of replication as seen from
outside.

A partition's *book* has every batch that some leader has called committed. The one invariant of primary-backup that all
its rules are for: **every member of the controller's ISR and ELR has all batches of the book, in what it has
acknowledged.** Then every leader elected from them has them; so it is checked whenever the book grows, whenever the
controller changes the sets, and whenever a log is truncated. More rules:

| rule | in words |
|---|---|
| commits | what is committed at an offset stays the same batch, whoever leads |
| replicas | the invariant; and nobody truncates what is committed |
| log matching | batches of the same epoch and offset are the same, and so is what stands before them |
| leaders | one for each epoch |
| elections | are won by members of ISR or ELR, while there are any |

In Paxos partitions any replica's log is committed: the book is what any of them has applied, and only `commits` and
`log matching` apply here. The other rules are in `paxos_log.py`.

Excused is a member whose machine lost something that the controller cannot know of yet: its disk was replaced; or it
ended other than by a clean stop, for topics with `ack.durability=replicated`, whose acknowledged records are only in
memory. If no replica is left in ISR and ELR, the lost records are excused too: a `replicated` topic goes on with what
its last leader has. A partition is *gone* if its last copy was on a lost disk, or, if `replicated`, that was its last
leader's disk and the others have lost what memory held: an operator has to order an election. A topic that allows
unclean elections goes on, after one, with what the new leader has; and a topic that ever was `replicated` counts as one
for ever. Offsets whose loss an operator has accepted need not be held, and anything there agrees with everything else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice

from tidelog.controller.records import BrokerRegistered, ConfigsAltered, LossAccepted
from tidelog.model.cluster import NO_LEADER, PAXOS, PartitionInfo, Topic
from tidelog.model.ids import NodeId, PartitionId, TopicPartition
from tidelog.model.losses import LostRanges
from tidelog.sim.cluster.book import Book, Committed, Move, has_lost_the_last_known, has_moved, min_isr, moves
from tidelog.sim.cluster.holders import Holders
from tidelog.sim.cluster.shadows import Held, Shadow
from tidelog.sim.cluster.traffic import DURABILITY, UNCLEAN
from tidelog.sim.cluster.truth import Rule, Step, Truth
from tidelog.sim.paxos.truth import Violation


class Ledger(Holders, Rule):
    """All committed batches of one run, and the rules of replication, checked at each event; also a rule of its
    `Truth`."""

    name = "replicas"

    def __init__(self) -> None:
        super().__init__()
        self.lost: Callable[[], None] = lambda: None
        """Function that is called when committed records are lost in a way that the rules allow, such as by an unclean
        election."""
        self.gives_up: Callable[[TopicPartition, Iterable[int]], None] = lambda where, offsets: None
        """Function that is called when the loss of offsets is accepted."""
        self.passes: Callable[[TopicPartition, Iterable[int]], None] = lambda where, offsets: None
        """Function that is called when a log continues behind offsets whose batches no replica can read."""
        self.process_of: Callable[[int], str] = lambda node: ""
        """Function that returns the incarnation of the process that runs on a node now."""
        self._moves: list[Move] = []
        """Changes of partitions by the metadata entry that is being applied, record by record."""
        self._lost: dict[int, bool] = {}
        """`Move.lost` of the changes by the last metadata record. Filled when the next record is applied: if that
        registers a broker that was not stopped cleanly before, its node, with True if the disk is another one."""

    # -- what the metadata log says ----------------------------------------------------------------------------------

    def applied(self, truth: Truth, step: Step) -> Iterator[str]:
        record = step.record
        if isinstance(record, BrokerRegistered):
            node = int(record.node_id)
            before = step.before.brokers.get(NodeId(node))
            if not record.is_clean:
                self._lost[node] = before is not None and before.storage != record.storage
            self._lost = {}
            if self.process_of(node) == record.incarnation:
                self._died.pop(node, None)
                self._wiped.pop(node, None)
        if isinstance(record, ConfigsAltered) and (topic := step.after.topic_by_id(record.topic_id)) is not None:
            self._configured(topic)
        if isinstance(record, LossAccepted) and (topic := step.after.topic_by_id(record.topic_id)) is not None:
            self._given_up(topic, record)
        if step.before.topics is not step.after.topics:
            self._lost = {}
            self._moves += moves(step.before, step.after, self._lost)
        yield from ()

    def _configured(self, topic: Topic) -> None:
        for info in topic.partitions:
            book = self.books.get(PartitionId(topic.topic_id, info.partition))
            if book is not None:
                book.is_volatile = book.is_volatile or topic.configs.get(DURABILITY) == "replicated"
                book.minimums.append((self._truth.clock(), min_isr(topic, info)))

    def _given_up(self, topic: Topic, record: LossAccepted) -> None:
        book = self.books.get(PartitionId(topic.topic_id, record.partition))
        if book is not None:
            book.given_up = LostRanges(topic.partitions[record.partition].losses)
            where = TopicPartition(topic.name, record.partition)
            self.gives_up(where, [offset for lost in record.ranges for offset in range(lost.start, lost.end)])
            self._truth.saw("loss accepted")

    def settled(self, truth: Truth) -> Iterator[str]:
        """Checks the changes of partitions after a whole metadata entry: several decisions may share an entry, and each
        must be right for the state that it found."""
        moves, self._moves = self._moves, []
        last: dict[PartitionId, PartitionInfo] = {}
        for move in moves:
            yield from self._changed(*move)
            last[PartitionId(move.topic.topic_id, move.info.partition)] = move.info
        for partition_id, info in last.items():
            yield from self._missing(self.books[partition_id], partition_id, info)

    def _changed(self, topic: Topic, was: PartitionInfo, info: PartitionInfo, lost: dict[int, bool]) -> Iterator[str]:
        book = self.books.get(PartitionId(topic.topic_id, info.partition)) or self._created(topic, info)
        if book.is_paxos:
            self._count_majority(was, info)
            return
        self._count(book, topic, was, info)
        book.minimums.append((self._truth.clock(), min_isr(topic, info)))
        hurt, book.hurt = book.hurt, {node: None for node in book.hurt if node in (*info.isr, *info.elr)}
        had = [int(node) for node in (*was.isr, *was.elr)]
        complete = [node for node in had if not (lost.get(node) or (book.is_volatile and node in lost))]
        if not info.isr and not info.elr and had:
            if all(lost.get(node) or node in hurt for node in had):  # the others left before that was known
                book.is_gone = True
                self._truth.saw("partition gone with its last disk")
                self.lost()
            elif not book.is_volatile:
                yield f"{book.name}: nobody is eligible any more, though {had} were"
        if book.is_volatile and topic.configs.get(UNCLEAN) != "true" and has_lost_the_last_known(was, info):
            book.is_gone = True
            self._truth.saw("partition waits for an unclean election")
            self.lost()
        if info.leader not in (NO_LEADER, was.leader, *complete) and not has_moved(was, info):
            if topic.configs.get(UNCLEAN) == "true":
                self._unclean(book, info)
            elif complete:
                self._violate("elections", f"{book.name}: node {info.leader} is elected, of ISR and ELR {complete}")
        if info.leader != NO_LEADER and not complete:
            book.reset_epoch = info.leader_epoch

    def _created(self, topic: Topic, info: PartitionInfo) -> Book:
        partition_id = PartitionId(topic.topic_id, info.partition)
        is_volatile = topic.configs.get(DURABILITY) == "replicated"
        is_paxos = topic.commit_protocol == PAXOS
        book = self.books[partition_id] = Book(f"{topic.name}-{info.partition}", is_volatile, is_paxos)
        if is_paxos:
            self.majorities.created(partition_id, book, info, lambda node: self.shadow(node, partition_id).durable)
            if self.majorities.is_born_dead(partition_id, info, self._wiped):
                book.is_gone = True
                self._truth.saw("founded by disks that are gone")
        return book

    def _count_majority(self, was: PartitionInfo, info: PartitionInfo) -> None:
        truth = self._truth
        truth.saw("leader of a majority replaced", info.leader not in (NO_LEADER, was.leader))
        truth.saw("majority gone", info.leader == NO_LEADER != was.leader)
        truth.saw("member added", len(info.members) > len(was.members))
        truth.saw("member removed", len(info.members) < len(was.members))

    def _unclean(self, book: Book, info: PartitionInfo) -> None:
        book.reset_epoch = book.unclean_epoch = info.leader_epoch
        self._truth.saw("unclean election")
        self.lost()

    def _count(self, book: Book, topic: Topic, was: PartitionInfo, info: PartitionInfo) -> None:
        truth = self._truth
        minimum = min_isr(topic, info)
        shrunk = len(info.isr) < len(was.isr)
        truth.saw("ISR shrinks", shrunk)
        truth.saw("ISR shrinks to the minimum", shrunk and len(info.isr) == minimum > 1)
        truth.saw("ISR shrinks below the minimum", shrunk and len(info.isr) < minimum)
        truth.saw("ISR expands", len(info.isr) > len(was.isr) > 0)
        is_failover = info.leader not in (NO_LEADER, was.leader)
        truth.saw("failover", is_failover)
        partition_id = PartitionId(topic.topic_id, info.partition)
        ends = [self.shadow(int(node), partition_id).end for node in info.replicas]
        truth.saw("failover with records in flight", is_failover and max(ends) > book.end)
        is_elr = info.leader != was.leader and info.leader in was.elr
        truth.saw("leader from the ELR", is_elr)
        truth.saw("last known leader", info.leader != NO_LEADER and not was.isr and not was.elr)

    # -- logs --------------------------------------------------------------------------------------------------------

    def appends(self, shadow: Shadow, batches: Iterable[Held]) -> None:
        """Notes batches appended to a log; checks that batches of the same epoch and offset are equal everywhere."""
        book = self.books[shadow.partition_id]
        last = shadow.last
        for batch in batches:
            if last is not None and last.end < batch.base and shadow.has_damage:
                last = None  # what stands before it is damaged here
            if last is not None and book.is_given_up(last):
                last = None  # other logs may have anything else there
            if book.is_given_up(batch):
                shadow.appended([batch])
                last = batch
                continue
            seen, before = book.seen_at.setdefault((batch.epoch, batch.base), (batch, last))
            where = f"{book.name} on node {shadow.node}, epoch {batch.epoch}, offset {batch.base}"
            if seen != batch:
                self._violate("log matching", f"{where}: another batch than elsewhere")
            elif last is not None and before is not None and before != last:
                self._violate("log matching", f"{where}: follows {last[:3]}, elsewhere {before[:3]}")
            shadow.appended([batch])
            last = batch
            if book.is_paxos:
                self._agree(book, where, batch)

    def finds(self, shadow: Shadow) -> None:
        """Checks a log that was opened again: it may hold an append that its process did not survive."""
        book = self.books[shadow.partition_id]
        for batch in shadow.batches.values() if book.is_paxos else ():
            if batch.base >= book.start and not self._is_misdated(book, shadow, batch):
                self._agree(book, f"{book.name} on node {shadow.node}, offset {batch.base}", batch)

    def _is_misdated(self, book: Book, shadow: Shadow, batch: Held) -> bool:
        """Returns True if a damaged disk has a committed batch under another leader epoch: no checksum covers the
        epoch, and a power cut has taken the catalog row (index entry) that records it. Such a batch is compared before
        readers see it (`serves`)."""
        index = book.index(batch.base)
        is_misdated = (
            shadow.is_rotten
            and index < len(book.batches)
            and book.batches[index][:2] == batch[:2]
            and book.batches[index].epoch != batch.epoch
        )
        self._truth.saw("leader epoch of a batch rotted", is_misdated)
        return is_misdated

    def comes_to_rest(self, partition_id: PartitionId) -> None:
        """Checks a partition of which all replicas have applied everything: all that its leaders released is there."""
        if (log := self.majorities.logs.get(partition_id)) is not None:
            try:
                log.comes_to_rest()
            except Violation as violation:
                rule, _, what = str(violation).partition(": ")
                self._violate(rule, what)

    def is_released(self, where: TopicPartition, base: int, end: int) -> bool:
        """Returns True if a leader has released a value with these offsets, which need not be applied yet."""
        topic = self.topic_of(where)
        log = None if topic is None else self.majorities.logs.get(PartitionId(topic.topic_id, where.partition))
        return log is not None and log.is_released(base, end)

    def serves(self, node: int, partition_id: PartitionId) -> None:
        """Checks that all of a Paxos leader's log is committed, when it begins to take requests."""
        book, shadow = self.books[partition_id], self.shadow(node, partition_id)
        for batch in shadow.batches.values():
            if batch.base >= max(book.start, shadow.start):
                self._agree(book, f"{book.name} served by node {node}, offset {batch.base}", batch)

    def _agree(self, book: Book, where: str, batch: Held) -> None:
        """Notes a batch of a Paxos partition as committed; checks that it is the batch that other replicas have at that
        offset."""
        if book.is_given_up(batch):
            return
        if batch.base >= book.end:
            book.batches.append(batch)
        elif not self._is_committed(book, batch):
            self._violate("commits", f"{where}: not what others have there, or between what they have")

    def truncates(self, shadow: Shadow, dropped: list[Held]) -> None:
        """Checks that a log which was made shorter has dropped no committed batch."""
        book = self.books[shadow.partition_id]
        committed = [batch for batch in dropped if book.start <= batch.base and self._is_committed(book, batch)]
        info = self._info(shadow.partition_id)
        is_member = info is not None and shadow.node in (*info.isr, *info.elr)
        self._truth.saw("uncommitted tail truncated", bool(dropped) and not committed)
        if book.is_paxos:
            if committed and shadow.start <= committed[0].base:
                self._violate("commits", f"{book.name}: node {shadow.node} truncates {committed[0].base}")
            return
        if (
            committed
            and is_member
            and not book.is_gone
            and book.reset_epoch is None
            and self._stands(book, shadow.node)
        ):
            what = f"node {shadow.node} truncates what is committed at {committed[0].base}"
            self._violate("replicas", f"{book.name}: {what}")
        self._check(shadow.partition_id)

    @staticmethod
    def _is_committed(book: Book, batch: Held) -> bool:
        index = book.index(batch.base)
        return index < len(book.batches) and book.batches[index] == batch and not book.is_given_up(batch)

    # -- leaders -----------------------------------------------------------------------------------------------------

    def leads(self, partition_id: PartitionId, node: int, life: int, said: Committed) -> None:
        """Checks a leader that takes office: its epoch has no other leader, and it has the committed batches. `life` is
        the number of its machine's start."""
        epoch, high_watermark = said.epoch, said.high_watermark
        book = self.books.get(partition_id)
        if book is None:
            return
        before = book.leaders.setdefault(epoch, (node, life))
        if before != (node, life):
            what = f"epoch {epoch} is led by nodes and lives {before} and {(node, life)}"
            self._violate("leaders", f"{book.name}: {what}")
        if book.reset_epoch is not None and epoch >= book.reset_epoch:
            self._reset(book, self.shadow(node, partition_id))
        self._truth.saw("high watermark learned late", high_watermark < book.end)
        self.commits(partition_id, node, said)

    def _reset(self, book: Book, shadow: Shadow) -> None:
        """Shortens the committed batches to what this new leader's replica has, after an unclean election, or when no
        complete replica was left."""
        book.reset_epoch = None
        kept = 0
        while kept < len(book.batches) and self._has(book, shadow, book.batches[kept]):
            kept += 1
        if kept == len(book.batches):
            return
        if not (book.is_volatile or book.is_unclean):
            self._violate("replicas", f"{book.name}: node {shadow.node} leads without what is committed")
        del book.batches[kept:]
        for replica in self.shadows.values():
            replica.agreed = min(replica.agreed, kept)
        book.torn.intersection_update(book.batches)
        self._truth.note("excused loss", book.name, "down to", book.end)
        self._truth.saw("excused loss of what memory held")
        self.lost()

    def commits(self, partition_id: PartitionId, node: int, said: Committed) -> None:
        """Checks a leader's high watermark: enough replicas are in sync, and everything below it is the same as
        elsewhere. Notes the new batches as committed."""
        book = self.books.get(partition_id)
        if book is None or book.is_gone or (book.unclean_epoch is not None and said.epoch < book.unclean_epoch):
            return
        high_watermark = said.high_watermark
        shadow = self.shadow(node, partition_id)
        if (rival := self._disagrees(book, shadow, high_watermark)) is not None:
            self._violate("commits", f"{book.name}: node {node} calls another batch committed at {rival.base}")
            return
        if high_watermark <= book.end:
            return
        torn = self._torn(book, shadow)
        batches = {batch.base: batch for batch in (*torn, *shadow.batches.values())}
        fresh = [batch for base, batch in sorted(batches.items()) if book.end <= base < high_watermark]
        is_enough = said.in_sync >= (minimum := book.minimum(self._truth.clock()))
        if not is_enough and not (fresh and self._is_damaged_everywhere(partition_id, fresh[-1])):
            what = f"node {node} commits up to {high_watermark} with {said.in_sync} in sync, and needs {minimum}"
            self._violate("commits", f"{book.name}: {what}")
        book.torn.update(batch for batch in torn if batch in fresh)
        book.batches += fresh
        if book.end != high_watermark:
            self._violate("commits", f"{book.name}: a high watermark of {high_watermark}, within a batch")
        self._check(partition_id)

    def _is_damaged_everywhere(self, partition_id: PartitionId, batch: Held) -> bool:
        """Returns True if all members of ISR and ELR have this batch and none can read it: it counts as committed then,
        as no replica can say that it is not."""
        info = self._info(partition_id)
        members = () if info is None else (*info.isr, *info.elr)
        shadows = [self.shadow(int(member), partition_id) for member in members]
        return bool(shadows) and all((batch.base, batch.epoch) in shadow.damaged for shadow in shadows)

    def _disagrees(self, book: Book, shadow: Shadow, high_watermark: int) -> Held | None:
        """Returns the first committed batch below a leader's high watermark in whose place its log has anything else.

        A damaged disk may hold more than the simulator's record of it (`Shadow`), as damaged batches. If the log says
        no more than that a batch is damaged, it contradicts no other replica; but nor does it agree, and is compared
        again until it is repaired.
        """
        is_agreed = True
        for batch in islice(book.batches, shadow.agreed, None):
            if batch.end > high_watermark:
                break
            if self._has(book, shadow, batch):
                shadow.agreed += is_agreed
            elif shadow.has_lost(batch):
                is_agreed = False
            else:
                return batch
        return None

    @staticmethod
    def _torn(book: Book, shadow: Shadow) -> list[Held]:
        """Returns the batches of which this log has an intact catalog row (index entry) and nothing else, as they were
        once appended."""
        rows = ((epoch, base) for base, epoch in shadow.damaged if epoch is not None and base not in shadow.batches)
        return [book.seen_at[row][0] for row in rows if row in book.seen_at]

    @staticmethod
    def _has(book: Book, shadow: Shadow, batch: Held) -> bool:
        """Returns True if the replica has the batch, or need not: it was deleted or given up. Of a torn batch the
        catalog row (index entry) is enough."""
        if batch.end <= shadow.start or shadow.batches.get(batch.base) == batch or book.is_given_up(batch):
            return True
        return batch in book.torn and (batch.base, batch.epoch) in shadow.damaged

    def goes_on(self, partition_id: PartitionId, offsets: Iterable[int]) -> None:
        """Notes that a log continues behind these offsets, whose batches no replica can read."""
        if (topic := self._truth.image.topic_by_id(partition_id.topic_id)) is not None:
            self.passes(TopicPartition(topic.name, partition_id.partition), offsets)

    def deletes(self, partition_id: PartitionId, offset: int) -> None:
        """Notes that a leader deletes the records below an offset."""
        book = self.books.get(partition_id)
        if book is not None:
            book.start = max(book.start, offset)

    def follows(self, partition_id: PartitionId, node: int, high_watermark: int) -> None:
        """Checks that a follower's high watermark does not pass what is committed."""
        book = self.books.get(partition_id)
        if (
            book is not None
            and high_watermark > book.end
            and not book.is_gone
            and not book.is_unclean
            and book.reset_epoch is None
        ):
            what = f"node {node} takes {high_watermark} for committed, and {book.end} is"
            self._violate("commits", f"{book.name}: {what}")

    # -- the invariant -----------------------------------------------------------------------------------------------

    def _check(self, partition_id: PartitionId) -> None:
        info = self._info(partition_id)
        if info is not None:
            for wrong in self._missing(self.books[partition_id], partition_id, info):
                self._violate(self.name, wrong)

    def _missing(self, book: Book, partition_id: PartitionId, info: PartitionInfo) -> Iterator[str]:
        if book.is_gone or book.reset_epoch is not None or book.is_paxos:
            return
        for node in (*info.isr, *info.elr):
            if self._stands(book, node) and (lack := self._lack(book, self.shadow(node, partition_id))):
                yield f"{book.name}: node {node}, of ISR {info.isr} and ELR {info.elr}, {lack}"

    def _lack(self, book: Book, shadow: Shadow) -> str:
        acknowledged = shadow.acknowledged(is_volatile=book.is_volatile)
        if acknowledged < book.end:
            return f"ends at {acknowledged}, and {book.end} is committed"
        if shadow.start > book.start:
            return f"starts at {shadow.start}, and nobody deleted more than up to {book.start}"
        while shadow.agreed < len(book.batches):
            if not self._has(book, shadow, book.batches[shadow.agreed]):
                return f"lacks the batch at {book.batches[shadow.agreed].base}, which is committed"
            shadow.agreed += 1
        return ""

    def _violate(self, rule: str, what: str) -> None:
        self._truth.violate(rule, what)
