"""The simulator of the Paxos log: the pure cores of a small group of replicas on an event heap, thousands of runs a
minute.

python -m tidelog.sim.paxos --runs 1000            seeds 0 to 999 python -m tidelog.sim.paxos --seed 17 --trace      one
of them, with every event printed

The cores are production code; network, disks and operators are simulated, and no event loop runs. Partitions that
commit by majority are simulated in whole brokers, in sim/cluster.
"""
