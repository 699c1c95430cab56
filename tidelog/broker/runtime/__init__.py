"""What all rooms of the broker stand on: log writer, purgatory, leases, budgets, statistics, tasks of roles.

A module here imports no other room.
"""
