"""Simulators of one partition log and of one slot store, driven directly: random histories, crashes, every single
damage.

There is no broker, client or network here: a driver calls `tidelog.storage` on a simulated disk and remembers what was
reported as done.
"""
