"""The partition of a key: murmur2, as Kafka's own clients hash, so that all producers agree.

Austin Appleby's MurmurHash2, 32 bit, with the seed of `org.apache.kafka.common.utils.Utils.murmur2`. Java computes
with signed 32-bit integers and drops the sign bit of the result (`Utils.toPositive`); here the numbers are unsigned
and masked, which gives the same bits.
"""

from __future__ import annotations

import struct

_SEED = 0x9747B28C
_MULTIPLIER = 0x5BD1E995
_MASK = 0xFFFFFFFF
_POSITIVE = 0x7FFFFFFF
_WORD = struct.Struct("<I")


def murmur2(key: bytes) -> int:
    """Returns the unsigned 32-bit hash of a key."""
    tail = len(key) & 3
    body = len(key) - tail
    hashed = _SEED ^ len(key)
    for (word,) in _WORD.iter_unpack(key[:body]):
        mixed = word * _MULTIPLIER & _MASK
        hashed = (hashed * _MULTIPLIER ^ (mixed ^ mixed >> 24) * _MULTIPLIER) & _MASK
    if tail:
        hashed = (hashed ^ int.from_bytes(key[body:], "little")) * _MULTIPLIER & _MASK
    hashed = (hashed ^ hashed >> 13) * _MULTIPLIER & _MASK
    return hashed ^ hashed >> 15


def partition_for_key(key: bytes, partitions: int) -> int:
    """Returns the partition, 0 to `partitions` - 1, that every Kafka producer with the default partitioner chooses for
    `key`."""
    return (murmur2(key) & _POSITIVE) % partitions
