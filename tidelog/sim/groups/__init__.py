"""Simulator of classic consumer groups: the shipped coordinators and their core, on a log that several brokers lead in
turn.

Members join, sync, send heartbeats, commit, fall silent, die and come back; their requests arrive late, twice or not at
all; the coordinator dies, is moved, or goes on without knowing that it was replaced, in every phase of the group. One
number determines a run. `rules.py` says what must be true.
"""
