"""The simulator of one shipped broker with its clients, on a machine that crashes.

Clients that ask one broker, the faults of its machine and what is to happen to it now and then live here. The cluster's
clients derive from these; whatever takes a second broker lives in sim/cluster.
"""
