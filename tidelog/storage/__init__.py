"""Partition logs on disk: segments of batches, a catalog of checksummed rows beside each, metainfo in two copies.

Synchronous, over the `Files` port. `docs/data-files.md` draws the bytes.
"""
