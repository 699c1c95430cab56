"""Planted bugs of disks that are not what their brokers left: each believes one of them, and some story has to notice.

A disk may be gone, empty, older than it was, or short of its votes. The shipped code knows each of them; here one of
these rules is taken away at a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

from tests.sim.planting import Mutant
from tidelog.broker.consensus.waiting import Past
from tidelog.broker.metadata.bootstrap import MetadataBootstrap
from tidelog.broker.paxos import opening
from tidelog.broker.replicas import data_plane
from tidelog.controller import decide_brokers
from tidelog.sim.kit.patching import patched
from tidelog.storage.loader import Held
from tidelog.storage.log_opener import LogOpener


@contextmanager
def believe_an_old_directory() -> Iterator[None]:
    """A data directory counts as what its broker left, however old it is."""
    with (
        patched(decide_brokers, "_is_old", lambda *_: False),
        patched(MetadataBootstrap, "needs_witnesses", lambda *_: False),
    ):
        yield


def believe_an_empty_directory() -> AbstractContextManager[None]:
    """A replica whose directory is gone begins as one that never held anything."""
    return patched(LogOpener, "held", lambda manager, since: Held(since, is_begun=False))


def found_over_data() -> AbstractContextManager[None]:
    """A broker without its metadata log founds a cluster, whatever else lies in its directory."""
    return patched(MetadataBootstrap, "_find_past", lambda _: Past())


def miss_the_loss_of_a_journal() -> AbstractContextManager[None]:
    """Nobody compares what a log holds with what its journal has accepted."""
    return patched(opening, "find_forgotten", lambda *_: None)


def believe_what_an_emptied_replica_lacks() -> AbstractContextManager[None]:
    """A replica whose log is lost says of what it lacks that it never had it, and is believed."""
    return patched(data_plane, "may_deny", lambda *_: True)


MUTANTS: tuple[Mutant, ...] = (
    believe_an_old_directory,
    believe_an_empty_directory,
    found_over_data,
    miss_the_loss_of_a_journal,
    believe_what_an_emptied_replica_lacks,
)
