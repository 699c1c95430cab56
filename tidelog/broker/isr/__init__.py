"""Primary-backup partitions, the code with I/O: leader, follower, fetch sessions, the replication service, settlement
of damage, and the messages that replicas exchange.

The state machines that it drives are in `tidelog.replication.isr`.
"""
