"""This broker's membership in its cluster: registration, heartbeats, and the channel of commands to the active
controller.

The controller's answers are decided elsewhere; this package sends commands, repeats them, and keeps the lease.
"""
