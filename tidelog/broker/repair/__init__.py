"""Damaged batches: copies on other replicas, repair from them, scrubbing, verification of whole logs."""
