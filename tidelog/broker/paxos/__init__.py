"""Partitions that commit when a majority holds a batch (`commit.protocol=paxos`): a Paxos log each."""
