"""Partitions with `commit.protocol=paxos`: each is a Paxos log, and a batch is committed when a majority holds it."""
