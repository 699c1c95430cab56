"""Placement: pure functions from brokers and counts to the brokers that hold each partition."""
