"""A partition at its leader, with any commit protocol: intake of produce requests, partition handles, replica logs, and
the throttle of replica moves.

A module that only one protocol needs belongs to `isr` or `paxos`, which import this room.
"""
