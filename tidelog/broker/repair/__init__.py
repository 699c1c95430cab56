"""Damaged batches: copies from other replicas, repair, scrubbing, verification of whole logs.

Repair replaces bytes by the same bytes. What follows when another replica denies having a batch is decided in `isr` and
`paxos`.
"""
