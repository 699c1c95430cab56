"""Simulator of a whole cluster: several shipped brokers on one virtual clock, with a simulated network, simulated disks
and injected faults.

    tidelog sim --of cluster --runs 1000             seeds 0 to 999
    tidelog sim --of cluster --runs 1 --seed 17      one of them

The scenarios of a cluster, their faults, the hooks that observe brokers and the rules that are checked live here;
those of consumer groups in groups/.
"""
