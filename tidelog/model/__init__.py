"""Types shared by all of tidelog: ids, record batches, the cluster image, errors, and ports (protocols for I/O).

Nothing here does I/O, and nothing here imports any other part of tidelog.
"""
