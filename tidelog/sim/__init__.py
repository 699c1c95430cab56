"""Simulators of the production code. Each run is determined by a seed.

From the smallest to the largest: storage/, paxos/ and isr/, broker/, cluster/, on the parts in kit/. `main` runs seeds
of several; docs/testing.md describes all.
"""
