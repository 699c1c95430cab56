"""Why a broker is not part of a cluster yet, in words that say what to do.

A directory that was in a cluster before never founds another one, and if its metadata log is lost it can only wait for
somebody who knows that cluster. If nobody is left who does, an operator has to decide.
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
    """The time of a data directory before the disk of its log was made."""

    may_found: bool = True
    """False if it holds data: its broker has been in a cluster, and that one is its own for ever."""
    cluster_id: str = ""
    """The id of that cluster; empty if it is not known."""
    generation: int = 0
    """The cluster's generation, as far as the directory knows: the broker joins no older one."""
    recovery_id: str = ""
    """The id of the recovery that made this disk: the broker joins no other of that generation. Empty if none did."""
    log: str = "the metadata log"
    """The name of the log that is founded or joined."""
    remedy: str = RECOVER
    """The operator's way out if what is lost does not come back."""

    @property
    def remembers(self) -> str | None:
        """Returns what others are told (`QuorumDescribed.remembers`)."""
        return None if self.may_found else self.cluster_id

    def is_shared(self, answers: Sequence[QuorumDescribed]) -> bool:
        """Returns True if this broker or one of those that answered has a past: together they found nothing."""
        return not self.may_found or any(answer.remembers is not None for answer in answers)


def waiting_for(past: Past, answers: Sequence[QuorumDescribed], silent: Sequence[str], lost: Sequence[int]) -> str:
    """Says whom or what a broker waits for. `lost` are the nodes whose vote is gone, if they are too many."""
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
    """Says that an entry of the metadata log is damaged wherever somebody answers."""
    return (
        f"the metadata log goes on from position {position}, and no broker that answers has a good copy of the entry "
        f"there; start those that are down; {RECOVER}"
    )


def _nodes(nodes: Sequence[int]) -> str:
    listed = ", ".join(map(str, sorted(nodes)))
    return f"node {listed}" if len(nodes) == 1 else f"nodes {listed}"
