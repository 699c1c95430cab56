"""Messages that say why a broker is not part of a cluster yet, and what the operator can do.

A directory that was in a cluster before never founds another one. If its metadata log is lost, it can only wait for a
broker that knows that cluster; if there is none any more, an operator has to decide.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tidelog.broker.consensus.messages import QuorumDescribed

RECOVER = (
    "if no other disk of the cluster comes back, stop all its brokers and begin the metadata log anew from what is "
    "left: `tidelog cluster recover --data-dir DIR --data-dir DIR ...`, with the directories of all brokers"
)


@dataclass(frozen=True, slots=True)
class Past:
    """Says whether a broker with a new metadata log may found a cluster, or has been in one, as its data directory
    shows, and may join that one only. The default is a directory that was in none."""

    may_found: bool = True
    """False if the directory holds data: its broker has been in a cluster, and may join that one only."""
    cluster_id: str = ""
    """Id of the earlier cluster; empty if it is not known."""
    generation: int = 0
    """The cluster's generation, as far as the directory knows (number of recoveries of its metadata log). The broker
    joins no older one."""
    recovery_id: str = ""
    """Id of the recovery that made this disk; the broker joins no other recovery of that generation. Empty if there was
    none."""
    log: str = "the metadata log"
    """Name of the log that is founded or joined, for messages."""
    remedy: str = RECOVER
    """Advice to the operator if what is lost does not come back."""

    @property
    def remembers(self) -> str | None:
        """Returns the cluster id for `QuorumDescribed.remembers`: None if nothing is lost, empty if the id is not
        known."""
        return None if self.may_found else self.cluster_id

    def is_shared(self, answers: Sequence[QuorumDescribed]) -> bool:
        """Returns True if this broker or an answering one has lost the log of an earlier cluster, so that they may not
        found a new one."""
        return not self.may_found or any(answer.remembers is not None for answer in answers)


def waiting_for(past: Past, answers: Sequence[QuorumDescribed], silent: Sequence[str], lost: Sequence[int]) -> str:
    """Returns a sentence that says whom or what a broker waits for. `lost` are the nodes whose vote is gone, if they
    are too many."""
    parts = []
    if not past.may_found:
        cluster = f"of cluster {past.cluster_id}" if past.cluster_id else "of a cluster"
        parts.append(
            f"its metadata log is missing or damaged, and its directory holds data {cluster}, so it founds no other"
        )
    without = [answer.node_id for answer in answers if answer.remembers is not None]
    if without:
        parts.append(f"{_nodes(without)} lost the metadata log of a cluster, too")
    if lost:
        parts.append(f"{_nodes(lost)} lost {past.log}, so the voters that are left are no majority")
    if silent:
        parts.append(f"it waits for the brokers at {', '.join(silent)}, which do not answer")
    elif not answers and not lost:
        parts.append("it knows no other broker: name one with --join (cluster.join)")
    # Only where waiting may be in vain: to recover a cluster that is merely slow may lose what was decided last.
    if without or lost or not past.may_found:
        parts.append(past.remedy)
    return "; ".join(parts) or "it waits for the other voters to agree on a new cluster"


def unreadable_at(position: int) -> str:
    """Returns a sentence that says that an entry of the metadata log is damaged on all brokers that answer."""
    return (
        f"the metadata log goes on from position {position}, and no broker that answers has a good copy of the entry "
        f"there; start those that are down; {RECOVER}"
    )


def _nodes(nodes: Sequence[int]) -> str:
    listed = ", ".join(map(str, sorted(nodes)))
    return f"node {listed}" if len(nodes) == 1 else f"nodes {listed}"
