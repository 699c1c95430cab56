"""The parts of every simulator: seeds, virtual clock, disk, network, processes, machines, histories, runs by seed."""
