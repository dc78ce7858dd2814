"""Bounds are checked in a message's bytes: what msgpack would decode within them is decoded, all else is refused before."""

from __future__ import annotations

import tracemalloc
from typing import Any

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from poolrt.workers.ipc.bounded_decoding import DEPTH_LIMIT, Payload, find_last_field, skip_items, unpack_bounded

_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False) | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=20) | st.dictionaries(st.text(), inner),
)
#: Values of every first byte that the encoder writes: each size of text, bytes, list and table.
_LONG: list[Any] = [
    *("x" * n for n in (31, 32, 255, 256, 65535, 65536)),
    *(b"x" * n for n in (0, 255, 256, 65535, 65536)),
    *([None] * n for n in (15, 16, 65535, 65536)),
    *({str(i): 1.5 for i in range(n)} for n in (15, 16, 65536)),
    [127, 128, 255, 256, 65535, 65536, 2**32 - 1, 2**32, -1, -32, -33, -128, -129, -32769, -(2**31) - 1],
]


def _count(value: Any) -> int:
    """Return the number of objects that a value is made of."""
    if isinstance(value, list):
        return 1 + sum(map(_count, value))
    if isinstance(value, dict):
        return 1 + len(value) + sum(map(_count, value.values()))
    return 1


def _cut(data: bytes, sizes: list[int]) -> Payload:
    pieces, at = [], 0
    for size in sizes:
        pieces.append(memoryview(data)[at : at + size])
        at += size
    return Payload([*pieces, memoryview(data)[at:]], len(data))


@settings(max_examples=40)
@given(_VALUES, st.lists(st.integers(0, 40), max_size=5))
def test_a_value_is_decoded_within_its_number_of_items_and_refused_below(value: Any, sizes: list[int]) -> None:
    data, items = msgpack.packb(value), _count(value)
    assert skip_items(data, 0, 1, items) == len(data)
    assert unpack_bounded(_cut(data, sizes), items, len(data)) == value
    if items > 1:
        with pytest.raises(ValueError, match=f"more than {items - 1} items"):
            skip_items(data, 0, 1, items - 1)


@pytest.mark.parametrize("value", _LONG, ids=lambda value: f"{type(value).__name__}-{len(value)}")
def test_every_size_of_value_is_decoded(value: Any) -> None:
    data = msgpack.packb([value, 7])
    assert unpack_bounded(data, 200_000, 100_000) == [value, 7]
    with pytest.raises(ValueError, match="truncated"):
        skip_items(data[:-2], 0, 1, 200_000)


@given(st.binary(max_size=60))
def test_arbitrary_bytes_are_decoded_as_msgpack_does_or_refused(data: bytes) -> None:
    try:
        found = unpack_bounded(data, 100, 100)
    except ValueError:
        return
    assert repr(found) == repr(msgpack.unpackb(data))  # NaN is unequal to itself


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        (b"\xdd\xff\xff\xff\xff" * 3, "items"),
        (b"\xdf\xff\xff\xff\xff", "items"),
        (b"\xdd\x00\x00\x00\x01" * (DEPTH_LIMIT + 1) + b"\x90", "levels"),
        (b"\x92\x90", "truncated"),
        (b"\xdb\xff\xff\xff\xff", "truncated"),
        (b"\xc1", "begins no item"),
        (b"\xc7\x01\x01\x01", "begins no item"),
        (b"\x90\x90", "follow"),
        (b"\xa3abc", "3 exceeds"),
        (b"\xa2\xff\xff", "utf-8"),
        (b"\x81\x01\x01", "int is not allowed"),
    ],
)
def test_what_breaks_a_bound_is_refused_with_the_reason(data: bytes, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        unpack_bounded(data, 1000, 2)


def test_the_last_field_of_a_message_is_found_if_it_is_long_bytes() -> None:
    data = msgpack.packb([6, 5, b"x" * 70_000])
    assert find_last_field(data[:100], 10) == ([6, 5], len(data) - 70_000, 70_000)
    for other in ([6, 5], [6, b"x" * 70_000, 5], [b"x" * 70_000], {"a": 1}, [6, 5, "x" * 70_000]):
        packed = msgpack.packb(other)
        assert find_last_field(packed, 10) is None
    with pytest.raises(ValueError, match="more than 10 items"):
        find_last_field(msgpack.packb([6, [1] * 20, b"x" * 70_000]), 10)


def test_a_long_payload_whose_first_piece_breaks_a_limit_is_not_joined() -> None:
    rest = memoryview(bytes(64 << 20))
    for first in (b"\x91" * 100, b"\xdd\x7f\xff\xff\xff"):
        tracemalloc.start()
        with pytest.raises(ValueError, match="more than"):
            unpack_bounded(Payload([memoryview(first), rest], len(first) + len(rest)), 1000, 1000)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 1 << 20
    # A first piece that ends inside an item says nothing yet
    parts = [memoryview(b"\x92\xa3a"), memoryview(b"bc\x01")]
    assert unpack_bounded(Payload(parts, 6), 1000, 1000) == ["abc", 1]
