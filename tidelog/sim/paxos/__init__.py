"""The simulator of the Paxos log: the pure cores of a small group on an event heap, thousands of lives a minute.

python -m tidelog.sim.paxos --runs 1000            seeds 0 to 999
python -m tidelog.sim.paxos --seed 17 --trace      one of them, told event by event

The cores are shipped code; network, disks and operators are made up here, and no event loop runs. Partitions that
commit by majority are simulated in whole brokers, in sim/cluster.
"""
