"""Members of a classic group in a simulated cluster: the processes of `tidelog.sim.groups`, whose coordinator is a
whole broker with a disk, a network, replicas and a controller."""
