"""The inner ring of the simulator: the pure cores of the Paxos log on an event heap, thousands of lives a minute.

python -m tidelog.sim.ring1 --runs 1000            seeds 0 to 999
python -m tidelog.sim.ring1 --seed 17 --trace      one of them, told event by event
"""
