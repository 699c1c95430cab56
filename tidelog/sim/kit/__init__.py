"""The parts that simulators share: seeds, virtual clock, disk, network, processes, machines, histories, batches of runs
with their output, the shrinker of scenarios.

Scenarios, faults and rules of one simulator live with that simulator; no module here imports one.
"""
