"""Routing of requests to partition leaders: leader look-up, forwarding to another broker, fan-out to many leaders.

Listeners see a partition as a handle; only this package knows whether its leader is this broker.
"""
