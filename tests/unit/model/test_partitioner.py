"""Keys go where every other Kafka producer sends them."""

from __future__ import annotations

import random

import aiokafka.partitioner
import pytest

from tidelog.model.partitioner import murmur2, partition_for_key

JAVA = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}
"""Signed, as the Java client's own tests (`UtilsTest.testMurmur2`) state them."""


@pytest.mark.parametrize("key", JAVA)
def test_hashes_are_javas(key: bytes) -> None:
    assert murmur2(key) == JAVA[key] & 0xFFFFFFFF


def test_aiokafka_agrees_on_every_length() -> None:
    dice = random.Random(1)
    for length in [*range(70), 1000, 4096]:
        key = dice.randbytes(length)
        assert murmur2(key) == aiokafka.partitioner.murmur2(key) & 0xFFFFFFFF


def test_the_partition_drops_the_sign_bit_as_java_does() -> None:
    assert partition_for_key(b"foobar", 10) == (-790332482 & 0x7FFFFFFF) % 10
    assert partition_for_key(b"abc", 12) == 479470107 % 12


def test_partitions_are_in_range_and_all_used() -> None:
    used = [partition_for_key(b"key-%d" % number, 7) for number in range(200)]
    assert set(used) == set(range(7))
    assert {partition_for_key(b"%d" % number, 1) for number in range(10)} == {0}
