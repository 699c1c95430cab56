"""Partition logs on disk: segments of record batches, and beside each segment a catalog, an index file with one
checksummed row per batch. What a replica must remember of a log (metainfo) is stored in two copies.

Synchronous, over the `Files` port. `docs/data-files.md` draws the bytes.
"""
