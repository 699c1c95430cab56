"""The simulator of one primary-backup partition: the cores of both sides and the controller's decisions, and nothing
else real.

A scenario is a sequence of steps, each with its own dice, so that leaving one out changes nothing of the others. What
the steps act on is a `World`; what must hold is in `truth.py`; what must happen now and then in `sometimes.py`.
Partitions of whole brokers are simulated in sim/cluster.
"""
