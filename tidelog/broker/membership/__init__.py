"""This broker in its cluster: registration, heartbeats, and the channel of commands to the active controller."""
