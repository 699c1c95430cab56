"""The inner ring of the simulator: the pure cores of the Paxos log on an event heap, thousands of lives a minute.

python -m tidelog.sim.paxos --runs 1000            seeds 0 to 999
python -m tidelog.sim.paxos --seed 17 --trace      one of them, told event by event
"""
