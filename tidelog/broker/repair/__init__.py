"""Damaged batches: copies on other replicas, repair from them, scrubbing, verification of whole logs.

Repair replaces bytes by the same bytes. What a replica may conclude from another's word belongs to `isr` or `paxos`.
"""
