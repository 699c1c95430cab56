"""The deterministic simulator: the shipped broker on a virtual clock and a disk that fails, run by seed."""
