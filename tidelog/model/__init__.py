"""The vocabulary everything else is written in: ids, record batches, the cluster image, errors, ports.

Nothing here does I/O, and nothing here imports any other part of tidelog.
"""
