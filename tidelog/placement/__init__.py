"""Placement: pure functions that decide which brokers hold each partition's replicas."""
