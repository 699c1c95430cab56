"""Primary-backup replication with a set of in-sync replicas: the rules, without I/O. See docs/replication-isr.md."""
