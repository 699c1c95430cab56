"""The shell around a Paxos engine: its disk, its messages, and the delivery of chosen entries to a state machine.

The same code serves every owner of an engine: the metadata log, Paxos partitions, and standalone logs. It treats
entries as bytes.
"""
