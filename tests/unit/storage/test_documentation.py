"""docs/data-files.md gives the layouts that the code packs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tidelog.storage import directory_identity, metainfo, rows, slot_entries, snapshot_format, two_copies

PAGE = (Path(__file__).parents[3] / "docs" / "data-files.md").read_text()
CODES = {"u8": "B", "u16": "H", "u32": "I", "u64": "Q", "i16": "h", "i32": "i", "i64": "q"}
COMMON = "HBBiQQ"
SIZES = {"B": 1, "H": 2, "I": 4, "Q": 8, "h": 2, "i": 4, "q": 8}


def table(heading: str) -> list[list[str]]:
    """The cells of the first table of bytes behind a heading."""
    lines = PAGE.partition(heading)[2].partition("| byte |")[2].splitlines()[2:]
    found = []
    for line in lines:
        if not line.startswith("|"):
            break
        found.append([cell.strip() for cell in line.strip("|").split("|")])
    return found


def layout(cells: list[list[str]], start: int) -> str:
    """The `struct` format of a table, whose positions must add up."""
    formats, position = "", start
    for byte, type_, name, *_ in cells:
        assert int(byte) == position, f"{name} is not at byte {byte}"
        if match := re.fullmatch(r"(\d+) bytes", type_):
            formats += f"{match[1]}{'s' if name else 'x'}"
            position += int(match[1])
        else:
            codes = "iq" * 5 if type_ == "5 x (i32, i64)" else CODES[type_]
            formats += codes
            position += sum(SIZES[code] for code in codes)
    return formats


def packed(format_: str) -> str:
    return format_.replace(" ", "").replace("?", "B").lstrip("<")


def test_the_common_fields() -> None:
    common = table("All rows begin and end alike:")
    assert layout(common[:6], 0) == COMMON
    assert common[7][:2] == [str(rows._CHECKED), "u32"]
    assert common[0][3] == f"0x{rows.MAGIC:X}"
    kinds = dict(re.findall(r"(\d) ([A-Z_]+)", common[2][3]))
    assert kinds == {str(kind.value): kind.name for kind in rows.Kind}


@pytest.mark.parametrize(
    ("heading", "format_"),
    [
        ("**BATCH, DELETE_RECORDS", rows._BODY.format),
        ("**HEADER**", rows._HEADER.format),
        ("**LINEAGE**", rows._LINEAGE.format),
        ("**PRODUCER**", rows._PRODUCER.format),
    ],
)
def test_the_layout_of_each_kind(heading: str, format_: str) -> None:
    assert COMMON + layout(table(heading), 24) == packed(format_)


def test_metainfo() -> None:
    cells = table("## Metainfo")
    assert layout(cells[:5], 0) == packed(two_copies._HEAD.format)
    assert int(cells[5][0]) == two_copies._HEAD.size
    assert cells[0][3] == f"0x{metainfo.MAGIC:X}"
    assert all(f"`{name}`" in PAGE for name in metainfo.Metainfo.__struct_fields__)


def test_the_identity() -> None:
    section = PAGE[PAGE.index("## Identity") : PAGE.index("## Slot stores")]
    assert f"0x{directory_identity.MAGIC:X}" in section
    assert all(f"`{name}`" in section for name in directory_identity.DirectoryIdentity.__struct_fields__)


def test_snapshots() -> None:
    cells = table("## Snapshots")
    assert layout(cells[:6], snapshot_format.HASH_BYTES) == packed(snapshot_format._HEAD.format)
    assert int(cells[6][0]) == snapshot_format.HASH_BYTES + snapshot_format._HEAD.size
    assert cells[0][3] == f"0x{snapshot_format.MAGIC:X}"
    assert f"up to {snapshot_format.CHUNK_BYTES} bytes of content" in PAGE


def test_the_head_of_a_slot_entry() -> None:
    cells = table("## Slot stores")
    assert "".join(CODES[type_] for _, type_, *_ in cells[:5]) == slot_entries._HEAD.format.lstrip(">")
    assert [int(byte) for byte, *_ in cells[:6]] == [0, 2, 4, 12, 20, slot_entries._HEAD.size]
    kinds = dict(re.findall(r"(0x[0-9A-F]{4}) ([A-Z]+)", cells[1][3]))
    assert kinds == {f"0x{kind.value:X}": kind.name for kind in slot_entries.EntryKind}
