"""Classic groups: Kafka's protocol from before KIP-848, in which the members assign. Pure; why it is here, is in
docs/decisions/0065-classic-groups.md, and how a group works in docs/groups.md.

    state.py       a `ClassicGroup`: phase, generation, members; from its record and back
    turn.py        a `Turn`: one decision on a copy of the group, with the records and answers that follow
    rebalance.py   from one generation to the next: who is waited for, who leads, which protocol
    joins.py, syncs.py, leaves.py, commits.py
                   what follows from each request
    deadlines.py   what follows from silence
    members.py     who is a member, and what a join may say

A decision changes nothing: it is made on a copy. Its records go to the log; if they are taken, the copy becomes the
group (`Group.classic`) and the answers are given, as soon as the records are committed. So whoever cannot write has
done nothing, and nobody hears of a generation, or of an assignment, that a crash could take back.

What is kept is the newest generation: it is written when its members are known, before any of them is told, and once
more with what the leader has assigned. A coordinator that takes over goes on from there: where the leader had not
assigned, it waits for that. Who was joining meanwhile joins again. A generation's number is never used twice, so it
has one leader for all time.
"""
