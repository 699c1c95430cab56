"""Production adapters of the ports: the system's clock and entropy, and the disk threads."""
