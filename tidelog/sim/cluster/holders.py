"""The replicas of all partitions: their disks, and the members of ISR and ELR that really have what the controller
assumes.

The controller is wrong about a member whose disk was replaced, or which has lost what memory held, until it learns of
that.
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
    """Record of each partition (`Book`) and of each replica's true log (`Shadow`) in one run."""

    def __init__(self) -> None:
        self.books: dict[PartitionId, Book] = {}
        self.shadows: dict[tuple[int, PartitionId], Shadow] = {}
        self.majorities = Majorities()
        self.is_running: Callable[[int], bool] = lambda node: True
        self._truth = Truth(())
        self._died: dict[int, None] = {}
        """Nodes whose last registered process ended without a clean stop."""
        self._wiped: dict[int, None] = {}
        """Nodes whose registered disk was replaced or discarded."""
        self._rotten: dict[PartitionId, dict[int, None]] = {}
        """Nodes whose copy had bits flipped, by partition."""
        self._guarded: dict[PartitionId, None] = {}
        """Partitions in which any disk may hold the last good copy of a batch."""

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
        """Notes that a node's broker process has ended."""
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
        """Notes that a broker will register its disk as a new one: until then the controller counts on a disk that is
        gone."""
        self._wiped[node] = None

    def begins_anew(self, node: int) -> None:
        """Notes that a broker may discard its disk's content and start empty; its journals lose their votes."""
        self.becomes_another(node)
        for partition_id, book in self.books.items():
            self.hurts(node, partition_id)
            if book.is_paxos:
                self.forgets(partition_id, node)

    def _shadows_of(self, node: int) -> list[Shadow]:
        return [shadow for (owner, _), shadow in self.shadows.items() if owner == node]

    def may_wipe(self, node: int) -> bool:
        """Returns True if a node's disk may be lost: for all data on it, an ISR or ELR member or a Paxos majority is
        left."""
        for partition_id, book in self.books.items():
            if self._info(partition_id) is not None and not book.is_gone and not self.may_rob(node, partition_id):
                return False
        return True

    def may_rob(self, node: int, partition_id: PartitionId) -> bool:
        """Returns True if a node's copy of a partition may be lost because the data is elsewhere too."""
        info, book = self._info(partition_id), self.books[partition_id]
        if info is None or book.is_gone or partition_id in self._guarded:
            return False
        if book.is_paxos and not self.may_forget(partition_id, node):
            return False
        members = [int(member) for member in (*info.isr, *info.elr)] or [int(member) for member in info.last_known_elr]
        rotten = self._rotten.get(partition_id, {})
        sound = [member for member in members if member != node and member not in rotten and self._stands(book, member)]
        if rotten:  # any other replica may hold the last good copy, and so may this one, unless a member was spared
            return node in rotten and bool(sound)
        return bool(node not in members or sound or book.is_paxos)

    def may_forget(self, partition_id: PartitionId, node: int) -> bool:
        """Returns True if the journal on this node may go, because a majority of the partition's voters keeps
        theirs."""
        info = self._info(partition_id)
        return info is not None and self.majorities.may_forget(partition_id, info, node)

    def forgets(self, partition_id: PartitionId, node: int) -> None:
        """Notes that a node's journal of a partition is lost, and with it the votes that the node gave."""
        if (info := self._info(partition_id)) is not None:
            self.majorities.forgets(partition_id, info, node)

    def members(self, partition_id: PartitionId) -> list[int]:
        """Returns the members of ISR and ELR that really hold the records that the controller believes them to hold."""
        info, book = self._info(partition_id), self.books[partition_id]
        nodes = [] if info is None else [int(node) for node in (*info.isr, *info.elr)]
        return [node for node in nodes if self._stands(book, node)]

    def replicas(self, partition_id: PartitionId) -> list[int]:
        """Returns the partition's replicas by the newest metadata."""
        info = self._info(partition_id)
        return [] if info is None else [int(node) for node in info.replicas]

    def has_safely(self, node: int, partition_id: PartitionId, batch: Held) -> bool:
        """Returns True if the batch is durable and undamaged on this node's disk."""
        shadow = self.shadow(node, partition_id)
        is_sound = node not in self._rotten.get(partition_id, {})
        return is_sound and batch.end <= shadow.durable and shadow.batches.get(batch.base) == batch

    def rots(self, node: int, partition_id: PartitionId) -> None:
        """Notes that a batch of this replica is damaged on its disk, to be repaired by the broker."""
        self._rotten.setdefault(partition_id, {})[node] = None
        self.shadow(node, partition_id).is_rotten = True

    def guards(self, partition_id: PartitionId) -> None:
        """Notes that no disk with data of this partition may be lost from now on."""
        self._guarded[partition_id] = None

    def hurts(self, node: int, partition_id: PartitionId) -> None:
        """Notes that this disk lost data of a partition that the controller assumes to be there."""
        self.books[partition_id].hurt[node] = None

    def robs(self, node: int, partition_id: PartitionId) -> None:
        """Notes that a node has lost its whole copy of a partition."""
        self.hurts(node, partition_id)
        if self.books[partition_id].is_paxos:
            self.forgets(partition_id, node)
        self.shadow(node, partition_id).wiped()

    def is_rotten(self, partition_id: PartitionId) -> bool:
        """Returns True if a copy of the partition was ever damaged."""
        return partition_id in self._rotten

    def waits_for_a_word(self, partition_id: PartitionId) -> bool:
        """Returns True if a power cut tore a batch on every disk that had it: the batch keeps its offset, and replicas
        cannot copy past it until an operator accepts the loss. No client was promised it."""
        return bool(self._torn_everywhere(partition_id))

    def _torn_everywhere(self, partition_id: PartitionId) -> list[Held]:
        whole = {
            batch
            for (_, owned), shadow in self.shadows.items()
            if owned == partition_id
            for batch in shadow.batches.values()
        }
        book = self.books[partition_id]
        return [batch for batch in book.torn if batch not in whole and not book.is_given_up(batch)]

    def torn_offsets(self, partition_id: PartitionId) -> set[int]:
        """Returns the offsets of chosen batches that no disk ever held whole; empty for partitions with in-sync
        replicas."""
        log = self.majorities.logs.get(partition_id)
        return set() if log is None else log.torn_offsets()

    def never_had(self, partition_id: PartitionId) -> set[int]:
        """Returns the offsets of batches that power cuts tore on every disk, and that keep their offsets; accepting
        their loss takes nothing from any client. Deleted offsets, and those already accepted as lost, are left out."""
        book, torn = self.books[partition_id], self.torn_offsets(partition_id)
        for batch in self._torn_everywhere(partition_id):
            torn.update(range(batch.base, batch.end))
        return {offset for offset in torn if offset >= book.start and not book.given_up.covers(offset, offset + 1)}

    def _stands(self, book: Book, node: int) -> bool:
        """Returns True if this node's replica really holds the records that the controller believes it to hold: its
        disk was not replaced or damaged, and, with `ack.durability=replicated`, its process has not died."""
        if node in self._wiped or node in book.hurt:
            return False
        return not book.is_volatile or (node not in self._died and self.is_running(node))
