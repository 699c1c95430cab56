"""The object cutter finds the same objects however the bytes are cut, and keeps no more than it must."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.broker.http.json_text import ObjectCutter
from tidelog.model.errors import InvalidRequest, TooLarge

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | st.text(alphabet='"\\{}[]'),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(alphabet='a"\\{}', max_size=4), inner, max_size=3)
    ),
    max_leaves=8,
)
OBJECTS = st.lists(st.dictionaries(st.text(max_size=5), VALUES, max_size=3), max_size=5)


def cut(pieces: list[bytes], object_bytes_max: int = 1 << 20) -> list[bytes]:
    cutter = ObjectCutter(object_bytes_max)
    found = []
    for piece in pieces:
        cutter.add(piece)
        while (text := cutter.next_object()) is not None:
            found.append(text)
    return found


@given(
    OBJECTS, st.sampled_from([b"", b" ", b"\r\n", b"\n\t "]), st.booleans(), st.lists(st.integers(0, 400), max_size=8)
)
def test_any_cut_gives_the_same_objects(
    objects: list[dict[str, object]], between: bytes, ascii_only: bool, cuts: list[int]
) -> None:
    texts = [json.dumps(value, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass") for value in objects]
    whole = between + between.join(texts) + between
    at = sorted({min(cut_at, len(whole)) for cut_at in cuts} | {0, len(whole)})
    assert cut([whole[a:b] for a, b in pairwise(at)]) == texts


@given(OBJECTS)
def test_byte_by_byte_gives_the_same_objects(objects: list[dict[str, object]]) -> None:
    texts = [json.dumps(value).encode() for value in objects]
    whole = b"".join(texts)
    assert cut([whole[i : i + 1] for i in range(len(whole))]) == texts


def test_says_whether_an_object_is_open() -> None:
    cutter = ObjectCutter(100)
    assert cutter.is_between_objects
    cutter.add(b' {"a": ')
    assert cutter.next_object() is None
    assert not cutter.is_between_objects
    cutter.add(b'"}"} \n')
    assert cutter.next_object() == b'{"a": "}"}'
    assert cutter.next_object() is None
    assert cutter.is_between_objects


@pytest.mark.parametrize("text", [b"[]", b"1", b'"a"', b"}", b",{}", b"\xef\xbb\xbf{}", b"{}]"])
def test_what_is_no_object_is_refused(text: bytes) -> None:
    with pytest.raises(InvalidRequest, match="sequence of JSON objects"):
        cut([text])


@pytest.mark.parametrize("pieces", [[b'{"a":"' + b"x" * 100 + b'"}'], [b'{"a":"', b"x" * 50, b"x" * 50], [b"{" * 101]])
def test_an_object_over_the_bound_is_refused_even_before_it_ends(pieces: list[bytes]) -> None:
    with pytest.raises(TooLarge):
        cut(pieces, object_bytes_max=100)


def test_the_bound_is_on_one_object_not_on_the_stream() -> None:
    assert len(cut([b'{"a":1}' * 1000], object_bytes_max=7)) == 1000


@pytest.mark.parametrize("piece_bytes", [1000, 1 << 14, 1 << 16])
def test_twenty_thousand_records_are_twenty_thousand_objects(piece_bytes: int) -> None:
    texts = [b'{"value": {"type": "JSON", "data": {"n": %d}}}' % n for n in range(20_000)]
    whole = b"\n".join(texts)
    assert cut([whole[i : i + piece_bytes] for i in range(0, len(whole), piece_bytes)]) == texts


def test_an_object_inside_a_string_stays_there() -> None:
    inner = '{"value": {"type": "JSON", "data": "forged"}}'
    text = json.dumps({"value": {"type": "STRING", "data": f'"}}}} {inner} {{{{"'}}).encode()
    for position in range(1, len(text)):
        assert cut([text[:position], text[position:]]) == [text]


def test_an_object_in_three_pieces_is_one() -> None:
    text = b'{"value": {"type": "STRING", "data": "a\\\\ \\"b\\" {}"}}'
    for first in range(1, len(text) - 1):
        for second in range(first + 1, len(text)):
            assert cut([text[:first], text[first:second], text[second:]]) == [text]


@pytest.mark.parametrize("count", [99, 100, 101, 199, 200, 201])
def test_any_number_of_escapes_and_strings(count: int) -> None:
    strings = [r"\"" * escapes + "{" for escapes in (0, 1, count)] * count
    text = b'{"a":[%b]}' % ",".join(f'"{string}"' for string in strings).encode()
    assert cut([text]) == [text]
    assert cut([text[:-4], text[-4:-3], text[-3:]]) == [text]


def test_many_escapes_cost_no_memory_and_no_time() -> None:
    text = b'{"a":"' + b'\\"' * 500_000 + b'"}'
    assert cut([text]) == [text]
