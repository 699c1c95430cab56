"""The way from a request to the leader of its partition: leader look-up, forwarding, fan-out to many leaders.

Listeners see a partition through a handle; only this room knows whether its leader is this broker.
"""
