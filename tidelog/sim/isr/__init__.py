"""Simulator of one primary-backup partition: the shipped cores of leader, follower and controller, with everything else
simulated.

A scenario is a sequence of steps, each with random numbers of its own, so that leaving one out changes nothing of the
others. Steps act on a `World`; `truth.py` says what must hold, and `sometimes.py` what must happen now and then.
Partitions of whole brokers are simulated in sim/cluster.
"""
