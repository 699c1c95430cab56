"""A replicated log by Paxos: pure state machines after Mesos' replicated log, with its holes closed.

`node.py` is the door: one `PaxosNode` per node and log. Behind it, `replica.py` accepts and learns, `coordinator.py`
proposes, `recover.py` decides who may vote, `catchup.py` copies what others have learned.
"""
