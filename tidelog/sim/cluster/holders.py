"""The holders of partitions, their disks, and the members of ISR and ELR about which the controller is right.

It is wrong about a member whose disk is another, or which has lost what memory held, until it hears of that.
"""

from __future__ import annotations

from collections.abc import Callable

from tidelog.model.cluster import PartitionInfo, Topic
from tidelog.model.ids import PartitionId, TopicPartition
from tidelog.sim.cluster.book import Book
from tidelog.sim.cluster.majorities import Majorities
from tidelog.sim.cluster.shadows import Held, Shadow
from tidelog.sim.cluster.truth import Truth


class Holders:
    """The holders of one run: every partition's book, and the shadow of every replica's log."""

    def __init__(self) -> None:
        self.books: dict[PartitionId, Book] = {}
        self.shadows: dict[tuple[int, PartitionId], Shadow] = {}
        self.majorities = Majorities()
        self.is_running: Callable[[int], bool] = lambda node: True
        self._truth = Truth(())
        self._died: dict[int, None] = {}
        """Nodes whose last registered process ended, and not cleanly."""
        self._wiped: dict[int, None] = {}
        """Nodes whose registered disk is no more."""
        self._rotten: dict[PartitionId, dict[int, None]] = {}
        """Replicas that had bits turned over."""
        self._guarded: dict[PartitionId, None] = {}
        """Partitions of which any disk may hold the last good copy of something."""

    def attach(self, truth: Truth) -> None:
        self._truth = truth

    def topic_of(self, where: TopicPartition) -> Topic | None:
        return self._truth.image.topics.get(where.topic)

    def book_of(self, where: TopicPartition) -> Book | None:
        topic = self.topic_of(where)
        return None if topic is None else self.books.get(PartitionId(topic.topic_id, where.partition))

    def _info(self, partition_id: PartitionId) -> PartitionInfo | None:
        for topic in self._truth.image.topics.values():
            if topic.topic_id == partition_id.topic_id:
                return topic.partitions[partition_id.partition]
        return None

    def shadow(self, node: int, partition_id: PartitionId) -> Shadow:
        key = node, partition_id
        if key not in self.shadows:
            self.shadows[key] = Shadow(node, partition_id)
        return self.shadows[key]

    # -- machines ----------------------------------------------------------------------------------------------------

    def ended(self, node: int, *, is_power_cut: bool, is_clean: bool = False) -> None:
        """A life of this machine is over."""
        if not is_clean:
            self._died[node] = None
            self._forgets_what_memory_held(node)
        for shadow in self._shadows_of(node):
            shadow.closed(is_power_cut=is_power_cut)

    def _forgets_what_memory_held(self, node: int) -> None:
        for partition_id, log in self.majorities.logs.items():
            info = self._info(partition_id)
            if info is not None and self.majorities.loses_memory(partition_id, info, node):
                log.book.is_gone = True
                self._truth.saw("majority forgot what memory held")

    def wiped(self, node: int) -> None:
        """Notes that the disk of a node was replaced."""
        self.becomes_another(node)
        for partition_id in self.majorities.logs:
            self.forgets(partition_id, node)
        for shadow in self._shadows_of(node):
            shadow.wiped()

    def becomes_another(self, node: int) -> None:
        """The broker registers its disk as another one: until then the controller knows a disk that is gone."""
        self._wiped[node] = None

    def begins_anew(self, node: int) -> None:
        """The broker may treat its disk as another one, whatever it still holds: its journals have no vote then."""
        self.becomes_another(node)
        for partition_id, book in self.books.items():
            self.hurts(node, partition_id)
            if book.is_paxos:
                self.forgets(partition_id, node)

    def _shadows_of(self, node: int) -> list[Shadow]:
        return [shadow for (owner, _), shadow in self.shadows.items() if owner == node]

    def may_wipe(self, node: int) -> bool:
        """True if a member of ISR or ELR is left for whatever this node's disk holds; or a majority."""
        for partition_id, book in self.books.items():
            if self._info(partition_id) is not None and not book.is_gone and not self.may_rob(node, partition_id):
                return False
        return True

    def may_rob(self, node: int, partition_id: PartitionId) -> bool:
        """True if all that this node's disk holds of a partition is elsewhere too."""
        info, book = self._info(partition_id), self.books[partition_id]
        if info is None or book.is_gone or partition_id in self._guarded:
            return False
        if book.is_paxos and not self.may_forget(partition_id, node):
            return False
        members = [int(one) for one in (*info.isr, *info.elr)] or [int(one) for one in info.last_known_elr]
        rotten = self._rotten.get(partition_id, {})
        sound = [other for other in members if other != node and other not in rotten and self._stands(book, other)]
        if rotten:  # any other replica may hold the last good copy, and so may this one, unless a member was spared
            return node in rotten and bool(sound)
        return bool(node not in members or sound or book.is_paxos)

    def may_forget(self, partition_id: PartitionId, node: int) -> bool:
        """Returns what `Majorities.may_forget` does."""
        info = self._info(partition_id)
        return info is not None and self.majorities.may_forget(partition_id, info, node)

    def forgets(self, partition_id: PartitionId, node: int) -> None:
        """Notes that a node has lost its votes, as `Majorities.forgets` does."""
        if (info := self._info(partition_id)) is not None:
            self.majorities.forgets(partition_id, info, node)

    def members(self, partition_id: PartitionId) -> list[int]:
        """Returns the members of ISR and ELR that the controller is right about."""
        info, book = self._info(partition_id), self.books[partition_id]
        nodes = [] if info is None else [int(node) for node in (*info.isr, *info.elr)]
        return [node for node in nodes if self._stands(book, node)]

    def replicas(self, partition_id: PartitionId) -> list[int]:
        """The brokers that are to have a copy, by the controller's last word."""
        info = self._info(partition_id)
        return [] if info is None else [int(node) for node in info.replicas]

    def has_safely(self, node: int, partition_id: PartitionId, batch: Held) -> bool:
        """True if that batch is on this node's disk, sound."""
        shadow = self.shadow(node, partition_id)
        is_sound = node not in self._rotten.get(partition_id, {})
        return is_sound and batch.end <= shadow.durable and shadow.batches.get(batch.base) == batch

    def rots(self, node: int, partition_id: PartitionId) -> None:
        """Something of this replica is damaged on the disk, and is to be repaired."""
        self._rotten.setdefault(partition_id, {})[node] = None
        self.shadow(node, partition_id).is_rotten = True

    def guards(self, partition_id: PartitionId) -> None:
        """From now on no disk that holds some of this partition may go."""
        self._guarded[partition_id] = None

    def hurts(self, node: int, partition_id: PartitionId) -> None:
        """This disk lost something of a partition that the controller takes to be there."""
        self.books[partition_id].hurt[node] = None

    def robs(self, node: int, partition_id: PartitionId) -> None:
        """All that this disk had of a partition is gone."""
        self.hurts(node, partition_id)
        if self.books[partition_id].is_paxos:
            self.forgets(partition_id, node)
        self.shadow(node, partition_id).wiped()

    def is_rotten(self, partition_id: PartitionId) -> bool:
        """True if anything of it was ever damaged."""
        return partition_id in self._rotten

    def waits_for_a_word(self, partition_id: PartitionId) -> bool:
        """True if a power cut tore a batch that nobody has whole: it keeps its offset, and nobody can copy past it
        until an operator gives it up. No client was promised it: what was committed before is never taken for torn."""
        return bool(self._torn_everywhere(partition_id))

    def _torn_everywhere(self, partition_id: PartitionId) -> list[Held]:
        whole = {
            batch for (_, owned), one in self.shadows.items() if owned == partition_id for batch in one.batches.values()
        }
        book = self.books[partition_id]
        return [batch for batch in book.torn if batch not in whole and not book.is_given_up(batch)]

    def torn_offsets(self, partition_id: PartitionId) -> set[int]:
        """Returns `PaxosLog.torn_offsets`; none where replicas copy their leader."""
        log = self.majorities.logs.get(partition_id)
        return set() if log is None else log.torn_offsets()

    def never_had(self, partition_id: PartitionId) -> set[int]:
        """Returns the offsets of batches that power cuts tore wherever they were, and that keep their offsets all the
        same: an operator who gives them up takes nothing from anybody. What was given up, or deleted, is left out."""
        book, torn = self.books[partition_id], self.torn_offsets(partition_id)
        for batch in self._torn_everywhere(partition_id):
            torn.update(range(batch.base, batch.end))
        return {one for one in torn if one >= book.start and not book.given_up.covers(one, one + 1)}

    def _stands(self, book: Book, node: int) -> bool:
        """True if the controller is not wrong about this member."""
        if node in self._wiped or node in book.hurt:
            return False
        return not book.is_volatile or (node not in self._died and self.is_running(node))
