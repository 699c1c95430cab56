"""Primary-backup partitions at work: leader, follower, fetch sessions, the replication service, settlement.

The shells of `tidelog.replication.isr` live here, and the messages that they exchange.
"""
