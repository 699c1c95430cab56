"""Proposal numbers (ballots): each belongs to one node, and a larger one takes precedence.

A number is a round and, in its low 16 bits, the node that owns it: (round << 16) | node. So two nodes never use the
same number. A node never uses a number twice either, because it makes `Metadata.issued` durable before it sends the
number out; a node that lost its disk lost that too, and gets a number from outside that is larger than all ever issued
(`recover.py`). Hence a number stands for one attempt of one coordinator, and (position, number) for one value.

Mesos needs neither: there, a replica grants each number to the first node that asks.
"""

from __future__ import annotations

NODE_BITS = 16
NODE_MAX = (1 << NODE_BITS) - 1
LEARNER_BASE = 1 << NODE_BITS
"""The first id of learners (nodes without a vote); no proposal number can belong to these ids."""
NO_NUMBER = 0
"""A number smaller than every proposal number: nothing promised, nothing accepted."""


def make_number(round_: int, node: int) -> int:
    """Returns the proposal number of `node` in a round; rounds count from 1."""
    assert round_ >= 1 and 0 <= node <= NODE_MAX
    return round_ << NODE_BITS | node


def round_of(number: int) -> int:
    """Returns the round of a proposal number, which consumers see as the leader epoch."""
    return number >> NODE_BITS


def owner_of(number: int) -> int:
    """Returns the only node that may propose under this number."""
    return number & NODE_MAX


def next_number(above: int, node: int) -> int:
    """Returns the smallest proposal number of `node` that is larger than `above`."""
    # The round of `above` may still have room: its owner may have a smaller id than this node.
    number = make_number(max(1, round_of(above)), node)
    return number if number > above else make_number(round_of(above) + 1, node)
