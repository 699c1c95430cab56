"""The simulator of whole brokers, several per run, on one virtual clock, with a simulated network and simulated disks,
and everything that can happen to them.

    tidelog sim --of cluster --runs 1000             seeds 0 to 999
    tidelog sim --of cluster --runs 1 --seed 17      one of them

Scenarios of several brokers, their faults, watches and rules live here; those of consumer groups in groups/.
"""
