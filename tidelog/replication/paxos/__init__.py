"""A replicated log by Paxos: pure state machines after Mesos' replicated log, extended where that leaves gaps.

`node.py` is the entry: one `PaxosNode` per node and log. Behind it, `replica.py` accepts and learns values,
`coordinator.py` proposes, `recover.py` decides which replicas may vote, `catchup.py` copies values that other replicas
have learned.
"""
