"""The simulators of one log and of one slot store, driven directly: drawn histories, crashes, every single damage.

No broker, client or network lives here: a driver calls `tidelog.storage` on a simulated disk and remembers what it was
told.
"""
