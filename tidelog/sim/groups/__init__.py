"""Classic groups in simulation: the shipped coordinators and their core, on a log that several brokers lead in turn.

Members join, sync, beat, commit, fall silent, die and come back; their requests arrive late, twice or not at all; the
coordinator dies, is moved, or lives on without knowing that it was replaced, in whatever phase the group is. One number
determines a run. `rules.py` says what must be true.
"""
