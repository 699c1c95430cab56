"""Any partition at its leader, whatever its commit protocol: mailbox, proposals, handle, replica logs, throttle.

A module that only one protocol needs belongs to `isr` or `paxos`, which stand on this room.
"""
