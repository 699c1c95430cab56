"""The parts that simulators share: seeds, virtual clock, disk, network, processes, machines, histories, batches of runs
and what is printed of them, the shrinker.

What knows one simulator's scenarios, faults or rules lives with that simulator, and nothing here imports one.
"""
