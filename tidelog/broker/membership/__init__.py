"""This broker in its cluster: registration, heartbeats, and the channel of commands to the active controller.

The controller's answers are decided elsewhere; this room asks, asks again, and keeps the lease.
"""
