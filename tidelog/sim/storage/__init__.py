"""Simulators of one log and of one slot store, driven directly: drawn histories, crashes, every single damage."""
