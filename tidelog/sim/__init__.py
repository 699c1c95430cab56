"""Simulators of the shipped code, each run grown from one number. A room each, from the smallest to the largest:
storage/, paxos/ and isr/, broker/, cluster/, on the parts in kit/. `main` runs seeds of several; docs/testing.md tells
of all.
"""
