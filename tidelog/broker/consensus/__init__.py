"""A Paxos engine at work: its disk, its messages, the delivery of chosen entries.

Code here serves every owner of an engine alike: the metadata log, Paxos partitions, logs by themselves. Nothing here
knows what an entry means.
"""
