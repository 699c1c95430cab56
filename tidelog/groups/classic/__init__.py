"""Classic groups: Kafka's protocol from before KIP-848, in which the members assign partitions. Pure.
docs/decisions/0065-classic-groups.md says why it is supported, and docs/groups.md how a group works.

    state.py       a `ClassicGroup`: phase, generation, members; from its record and back
    turn.py        a `Turn`: one decision on a copy of the group, with the records and answers that follow
    rebalance.py   from one generation to the next: waiting for members, the leader, the protocol
    joins.py, syncs.py, leaves.py, commits.py
                   decisions for each request
    deadlines.py   session and rebalance deadlines
    members.py     membership, and validation of joins

A decision is made on a copy of the group. Its records go to the log; if they are accepted, the copy becomes the group
(`Group.classic`), and the answers are given as soon as the records are committed. So a coordinator that cannot write
has changed nothing, and no member learns of a generation or assignment that a crash could revert.

The log keeps the newest generation. It is written when its members are known, before any of them is answered, and again
with the leader's assignment. A coordinator that takes over continues from there: if there is no assignment yet, it
waits for the leader's. Members that were joining meanwhile join again. A generation number is never reused, so each has
one leader only.
"""
