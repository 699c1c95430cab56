"""The simulator of one shipped broker with its clients, on a machine that crashes.

The clients of one broker, the faults of its machine and the events that must happen now and then live here. The cluster
simulator's clients derive from these; everything with a second broker lives in sim/cluster.
"""
