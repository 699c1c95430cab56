"""The name of a value, as a journal keeps it: at each feature level, and read whatever the level."""

from __future__ import annotations

import msgspec
import pytest

from tidelog.broker.consensus.stored import Identity, decode_identity, encode_identity, journal_level
from tidelog.replication.paxos.state import NOP, Kind, Value
from tidelog.storage.slot_entries import EntryKind, Head, name_for
from tidelog.storage.slot_loader import StoredSlot, StoredSlots

DIGEST = bytes(range(16))
IDENTITY = Identity(Value(Kind.APPEND, 65537, 40, 3, DIGEST, 0), True)
FIRST_LEVEL = msgspec.msgpack.encode(
    [{"kind": 2, "birth": 65537, "base_offset": 40, "count": 3, "digest": DIGEST, "begin": 0}, True]
)
"""An identity as version 0.2.0 wrote it."""


@pytest.mark.parametrize("kind", Kind)
@pytest.mark.parametrize("level", [1, 2])
def test_it_is_read_whatever_the_level(kind: Kind, level: int) -> None:
    identity = Identity(msgspec.structs.replace(IDENTITY.value, kind=kind), False)
    assert decode_identity(encode_identity(identity, level), DIGEST) == identity


def test_at_the_first_level_it_is_as_older_versions_read_it() -> None:
    assert encode_identity(IDENTITY, 1) == FIRST_LEVEL
    assert decode_identity(FIRST_LEVEL, b"") == IDENTITY


@pytest.mark.parametrize("value", [IDENTITY.value, NOP], ids=["longest", "shortest"])
@pytest.mark.parametrize("level", [1, 2])
def test_a_row_names_an_entry_from_the_second_level_on(value: Value, level: int) -> None:
    """Older versions do not know such a row."""
    head = Head(EntryKind.SLOT, 1, 2, value.digest, encode_identity(Identity(value, False), level))
    assert (name_for(head) != b"") == (level > 1)


@pytest.mark.parametrize("content", [b"", b"\x92", b"\x92\x01\x02", bytes(29), b"\xff" * 30])
def test_anything_else_is_none(content: bytes) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        decode_identity(content, DIGEST)


def test_a_journal_is_of_the_level_of_its_newest_slot() -> None:
    def stored(*levels: int) -> StoredSlots:
        slots = StoredSlots(None, None, [], is_amnesiac=False)
        for position, level in enumerate(levels):
            content = encode_identity(IDENTITY, level) if level else None
            slots.slots.append(StoredSlot(position, 1, content, is_faulty=not level))
        return slots

    found = [journal_level(stored(*levels)) for levels in ((), (1,), (2,), (1, 2), (2, 1), (2, 0), (0,))]
    assert found == [1, 1, 2, 2, 1, 2, 1]
