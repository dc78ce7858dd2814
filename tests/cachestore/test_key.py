"""A key's canonical bytes: equal exactly when the fields mean the same."""

from __future__ import annotations

import enum
import hashlib
import math
import pickle
import struct
from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from poolrt.cachestore import ABSENT, Key
from poolrt.cachestore.key import Packed

SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(min_value=-(1 << 80), max_value=1 << 80),
    st.floats(allow_nan=False),
    st.text(),
    st.binary(),
)
NAMES = st.text(max_size=8)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4).map(tuple),
        st.dictionaries(st.one_of(NAMES, st.binary(max_size=4)), inner, max_size=4),
    ),
    max_leaves=12,
)
FIELDS = st.dictionaries(NAMES, VALUES, max_size=5)


def same_meaning(one: Any, other: Any) -> bool:
    """Tell independently of the encoder whether two values are the same field value."""
    if isinstance(one, (tuple, list)) and isinstance(other, (tuple, list)):
        return len(one) == len(other) and all(map(same_meaning, one, other))
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same_meaning(one[name], other[name]) for name in one)
    if isinstance(one, float):
        return struct.pack(">d", one) == struct.pack(">d", other)
    return bool(one == other)


@given(FIELDS)
def test_a_key_survives_its_canonical_bytes_and_has_their_sha256_as_digest(fields: dict[str, Any]) -> None:
    key = Key(fields)
    assert key.digest == hashlib.sha256(key.canonical).hexdigest()
    again = Key.from_canonical(key.canonical)
    assert again == key
    assert hash(again) == hash(key)
    assert same_meaning(again.fields, fields)


@pytest.mark.parametrize(
    "value",
    [
        *(
            sign * (1 << bits) + step
            for bits in (0, 5, 7, 8, 15, 16, 31, 32, 63)
            for sign in (-1, 1)
            for step in (-1, 0, 1)
            if bits < 63 or sign > 0 or step >= 0
        ),
        *("a" * size for size in (0, 31, 32, 255, 256, 65535, 65536)),
        *(b"a" * size for size in (0, 31, 32, 255, 256, 65535, 65536)),
        *((None,) * size for size in (0, 15, 16, 65535, 65536)),
        *(dict.fromkeys(range(size), False) for size in (0, 15, 16)),
        *(0.0, -0.0, 1.5, math.inf, math.nan, True, False, None, "ä€😀"),
    ],
    ids=lambda value: f"{type(value).__name__}-{len(value) if hasattr(value, '__len__') else value}",
)
def test_values_are_packed_as_msgpack_packs_them(value: Any) -> None:
    assert Key({"": value}).canonical == b"\x81\xa0" + msgpack.packb(value)


@given(
    st.integers(min_value=1 << 64, max_value=1 << 300) | st.integers(max_value=-(1 << 63) - 1, min_value=-(1 << 300))
)
def test_integers_beyond_64_bits_are_packed_as_msgpacks_extension(number: int) -> None:
    data = number.to_bytes(number.bit_length() // 8 + 1, "big", signed=True)
    assert Key({"": number}).canonical == b"\x81\xa0" + msgpack.packb(msgpack.ExtType(1, data))


@given(FIELDS, FIELDS)
def test_keys_are_equal_and_have_no_difference_exactly_when_their_fields_mean_the_same(
    one: dict[str, Any], other: dict[str, Any]
) -> None:
    same = same_meaning(one, other)
    assert (Key(one) == Key(other)) == same
    assert (Key(one).diff(Key(other)) == {}) == same


@given(FIELDS, st.randoms(use_true_random=False))
def test_the_order_of_fields_does_not_matter(fields: dict[str, Any], random: Any) -> None:
    items = list(fields.items())
    random.shuffle(items)
    assert Key(dict(items)).canonical == Key(fields).canonical


@given(FIELDS)
def test_a_value_that_is_packed_already_gives_the_same_key(fields: dict[str, Any]) -> None:
    packed = {name: Packed(value) for name, value in fields.items()}
    assert Key(packed) == Key(fields)
    assert Key({"several": [fields, fields]}) == Key({"several": [Packed(fields), fields]})


@given(st.binary(max_size=64))
def test_arbitrary_bytes_are_either_canonical_or_refused(data: bytes) -> None:
    try:
        key = Key.from_canonical(data)
    except ValueError:
        return
    assert key.canonical == data


@pytest.mark.parametrize("first", [1, 1.0, True, "1", b"1", (1,), {"1": 1}, None, 0, 0.0, -0.0, False, "", b"", ()])
def test_values_that_look_alike_differ(first: Any) -> None:
    everything: list[Any] = [1, 1.0, True, "1", b"1", (1,), {"1": 1}, None, 0, 0.0, -0.0, False, "", b"", ()]
    equal = [value for value in everything if Key({"x": value}) == Key({"x": first})]
    assert len(equal) == 1


def test_lists_and_tuples_are_the_same() -> None:
    assert Key({"x": [1, [2]]}) == Key({"x": (1, (2,))})
    assert Key({"x": [1, [2]]}).fields == {"x": (1, (2,))}


def test_every_nan_is_the_same_and_equal_to_itself() -> None:
    other = struct.unpack(">d", bytes.fromhex("fff8000000000123"))[0]
    assert Key({"x": math.nan}) == Key({"x": other})
    assert Key({"x": math.nan}).diff(Key({"x": other})) == {}


@pytest.mark.parametrize("number", [2**63 - 1, 2**63, 2**64 - 1, 2**64, -(2**63), -(2**63) - 1, 2**200, -(2**200)])
def test_integers_of_any_size_are_kept(number: int) -> None:
    assert Key.from_canonical(Key({"x": number}).canonical).fields == {"x": number}


def test_subclasses_count_as_their_base_types() -> None:
    class Kind(enum.IntEnum):
        A = 3

    class Name(enum.StrEnum):
        B = "b"

    assert Key({"k": Kind.A, "n": Name.B}) == Key({"k": 3, "n": "b"})


@pytest.mark.parametrize("value", [{1, 2}, object(), bytearray(b"x"), 1j, range(3)])
def test_other_types_are_refused_with_the_fields_name(value: object) -> None:
    with pytest.raises(TypeError, match=r"outer\.inner\[1\]"):
        Key({"outer": {"inner": [0, value]}})


def test_field_names_must_be_text() -> None:
    fields: Any = {1: 2}
    with pytest.raises(TypeError, match="field names are text"):
        Key(fields)


def test_text_that_is_not_unicode_is_refused() -> None:
    with pytest.raises(ValueError, match="Unicode"):
        Key({"x": "\ud800"})


def test_endless_nesting_is_refused() -> None:
    value: list[Any] = []
    value.append(value)
    with pytest.raises(ValueError, match="nested deeper"):
        Key({"x": value})


@pytest.mark.parametrize(
    "data",
    [
        msgpack.packb([1]),
        msgpack.packb({1: 2}),
        b"\x82\xa1b\x01\xa1a\x01",  # not sorted
        b"\x81\xa1a\xcc\x01",  # 1 in two bytes
        b"\x82\xa1a\x01\xa1a\x01",  # the same name twice
        b"\x81\xa1a\x01\x00",  # something behind the end
        b"",
    ],
)
def test_bytes_that_no_key_has_are_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="canonical"):
        Key.from_canonical(data)


def test_a_difference_names_the_leaves_that_differ() -> None:
    here = Key({"dims": (1, 2, 3), "toolchain": {"numba": "0.61", "numpy": "2"}, "only": 1, "same": None})
    there = Key({"dims": (1, 5, 3), "toolchain": {"numba": "0.60", "numpy": "2"}, "more": 2, "same": None})
    assert here.diff(there) == {
        "dims[1]": (2, 5),
        "toolchain.numba": ("0.61", "0.60"),
        "only": (1, ABSENT),
        "more": (ABSENT, 2),
    }


def test_a_difference_in_type_alone_is_a_difference() -> None:
    assert Key({"x": 1}).diff(Key({"x": True})) == {"x": (1, True)}


def test_changing_the_fields_does_not_change_the_key() -> None:
    fields: dict[str, Any] = {"x": [1]}
    key = Key(fields)
    fields["x"].append(2)
    key.fields["x"] = ()
    assert key.fields == {"x": (1,)}


def test_a_key_can_be_pickled() -> None:
    key = Key({"x": (1, b"2")})
    assert pickle.loads(pickle.dumps(key)) == key  # noqa: S301
