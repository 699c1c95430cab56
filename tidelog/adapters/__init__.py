"""Production adapters of the ports (`model/ports.py`): clocks, entropy, disk threads, TCP and TLS, files and
signals."""
