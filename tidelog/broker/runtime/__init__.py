"""The foundation of all rooms of the broker: log writer, purgatory, leases, budgets, statistics, tasks of replicas.

A module here imports no other room of the broker.
"""
