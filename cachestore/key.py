"""Identity of a cached object: a table of named fields with one canonical byte string.

The canonical form is msgpack with dictionaries sorted by their packed keys and the smallest encodings: every value is
framed by its length and carries its type, so no two different tables share bytes. Equality of values:

- `1`, `1.0`, `True`, `"1"` and `b"1"` all differ;
- a list and a tuple of the same items are the same (both mean "a sequence"); `fields` gives tuples back;
- `-0.0` differs from `0.0`, since code generated from them differs; all NaNs are one value, since their bits carry no
  meaning;
- text is compared by code points, without Unicode normalisation.

Nothing here depends on the process: no `hash()`, no addresses, no order of insertion.

The packer is here, since msgpack's takes a millisecond to import and a warm start only packs.
"""

from __future__ import annotations

import itertools
import math
import struct
from collections.abc import Mapping
from functools import lru_cache
from operator import itemgetter
from typing import Any, Final

from .digests import sha256
from .immutable import Immutable

#: The values of a field. Dictionaries may have any of the scalars as keys.
Value = None | bool | int | float | str | bytes | tuple["Value", ...] | list["Value"] | Mapping[Any, "Value"]

#: Deepest nesting of sequences and dictionaries.
MAX_DEPTH: Final = 64

#: msgpack extension code of an integer outside 64 bits: its big-endian two's complement, as short as possible.
_BIG_INTEGER: Final = 1

_NAN: Final = float("nan")

#: msgpack's codes: with a size within the code and the largest such, then with a size of 1, 2 and 4 bytes; 0 for none.
_TEXT: Final = (0xA0, 31, 0xD9, 0xDA, 0xDB)
_BYTES: Final = (0, -1, 0xC4, 0xC5, 0xC6)
_SEQUENCE: Final = (0x90, 15, 0, 0xDC, 0xDD)
_TABLE: Final = (0x80, 15, 0, 0xDE, 0xDF)
_EXTENSION: Final = (0, -1, 0xC7, 0xC8, 0xC9)
#: The longest text, in characters, of those that are kept packed: data types and layouts.
_SHORT: Final = 16
_FLOAT: Final = struct.Struct(">Bd")
#: Code, form, least integer, and the first one that is too large; the smallest forms first.
_INTEGERS: Final = (
    (0xCC, ">BB", 0, 1 << 8), (0xCD, ">BH", 0, 1 << 16), (0xCE, ">BI", 0, 1 << 32), (0xCF, ">BQ", 0, 1 << 64),
    (0xD0, ">Bb", -1 << 7, 0), (0xD1, ">Bh", -1 << 15, 0), (0xD2, ">Bi", -1 << 31, 0), (0xD3, ">Bq", -1 << 63, 0),
)  # fmt: skip


def is_digest(text: str) -> bool:
    """Return whether text from outside is a digest, and so safe as a file's name."""
    return len(text) == 64 and not text.strip("0123456789abcdef")


class _Absent:
    """The value, in a difference, of a field that one of the two keys lacks."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "ABSENT"


ABSENT: Final = _Absent()


class Packed:
    """A value of a key that is packed already: a part that many keys have in common."""

    __slots__ = ("canonical",)

    def __init__(self, value: Any) -> None:
        """Pack a value. Raises what `Key` raises."""
        self.canonical = _pack(value)


class Key(Immutable):
    """The identity of a cached object: the fields that it was made from. Immutable.

    `fields` maps names to None, bool, int, float, str, bytes, and tuples, lists and dictionaries of these; a value may be
    `Packed`.
    Raises TypeError for any other type (the message names the field) and ValueError for text that is not valid Unicode
    or nesting deeper than `MAX_DEPTH`.
    """

    __slots__ = ("_digest", "canonical")

    #: The canonical bytes; equal keys have equal bytes and the other way round.
    canonical: bytes
    _digest: str | None

    def __init__(self, fields: Mapping[str, Any]) -> None:
        for name in fields:
            if not isinstance(name, str):
                raise TypeError(f"a key's field names are text, not {type(name).__name__}: {name!r}")
        object.__setattr__(self, "canonical", _pack(fields))
        object.__setattr__(self, "_digest", None)

    @classmethod
    def from_canonical(cls, canonical: bytes) -> Key:
        """Return the key with these canonical bytes.

        Raises ValueError when they are not the canonical form of any key.
        """
        import msgpack

        try:
            fields = _unpack(canonical)
        except (ValueError, TypeError, msgpack.UnpackException, RecursionError) as error:
            raise ValueError(f"not the canonical bytes of a key: {error}") from None
        try:
            key = cls(fields)
        except (TypeError, AttributeError) as error:
            raise ValueError(f"not the canonical bytes of a key: {error}") from None
        if key.canonical != canonical:
            raise ValueError("not the canonical bytes of a key: another encoding of the same fields")
        return key

    @property
    def digest(self) -> str:
        """SHA-256 of the canonical bytes, 64 hexadecimal characters."""
        digest = self._digest
        if digest is None:
            digest = sha256(self.canonical).hexdigest()
            object.__setattr__(self, "_digest", digest)
        return digest

    @property
    def fields(self) -> dict[str, Any]:
        """The fields as a new dictionary, sequences as tuples."""
        fields: dict[str, Any] = _unpack(self.canonical)
        return fields

    def diff(self, other: Key) -> dict[str, tuple[Any, Any]]:
        """Return the differences from `other`: path of the field -> (value here, value there).

        Dictionaries and sequences of equal length are followed to the differing leaves: `"toolchain.numba"`,
        `"dims[2]"`. A field that one side lacks has the value `ABSENT`. Equal keys give an empty dictionary.
        """
        differences: dict[str, tuple[Any, Any]] = {}
        _compare(self.fields, other.fields, "", differences)
        return differences

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Key) and self.canonical == other.canonical

    def __hash__(self) -> int:
        return hash(self.canonical)

    def __repr__(self) -> str:
        return f"<Key {self.digest[:12]} {self.fields!r}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return Key.from_canonical, (self.canonical,)


def _pack(value: Any, where: str = "") -> bytes:
    packed = bytearray()
    try:
        _pack_into(packed, value, where, 0)
    except UnicodeEncodeError as error:
        raise ValueError(f"text in a key is not valid Unicode: {error}") from None
    return bytes(packed)


#: Where a value is: a text, or the place of the table or sequence that it is in, its name or number there, and whether
#: that is a number. An error makes a text of it.
_Place = str | tuple["_Place", object, bool]


def _pack_into(packed: bytearray, value: Any, place: _Place, depth: int) -> None:
    """Pack `value` as of its base type, with sorted dictionaries and one NaN."""
    if value is None or value is True or value is False:
        packed.append(0xC0 if value is None else 0xC2 + value)
    elif isinstance(value, str):
        text = str.encode(value)
        packed += _frame(len(text), _TEXT) + text
    elif isinstance(value, int):
        packed += _pack_integer(int(value))
    elif isinstance(value, float):
        packed += _FLOAT.pack(0xCB, _NAN if math.isnan(value) else value)
    elif isinstance(value, bytes):
        packed += _frame(len(value), _BYTES) + value
    elif type(value) is Packed:
        packed += value.canonical
    elif depth >= MAX_DEPTH:
        raise ValueError(f"field {_text_of(place)} is nested deeper than {MAX_DEPTH}")
    elif isinstance(value, (tuple, list)):
        packed += _frame(len(value), _SEQUENCE)
        for index, item in enumerate(value):
            if type(item) is int:  # most are: sizes and strides
                packed += _pack_integer(item)
            else:
                _pack_into(packed, item, (place, index, True), depth + 1)
    elif isinstance(value, Mapping):
        items = sorted([(_pack_name(name, place), name, item) for name, item in value.items()], key=itemgetter(0))
        if any(one[0] == other[0] for one, other in itertools.pairwise(items)):
            raise ValueError(f"field {_text_of(place) or 'table'} has the same dictionary key twice")
        packed += _frame(len(items), _TABLE)
        for packed_name, name, item in items:
            packed += packed_name
            if type(item) is str and len(item) <= _SHORT:
                packed += _pack_text(item)
            else:
                _pack_into(packed, item, (place, name, False), depth + 1)
    else:
        raise TypeError(
            f"field {_text_of(place)} is a {type(value).__name__}; a key holds None, bool, int, float, str, bytes and tuples, "
            "lists and dictionaries of these"
        )


def _frame(size: int, codes: tuple[int, int, int, int, int]) -> bytes:
    """Return the code and the size of what follows. Raises ValueError for 4 GiB and more."""
    short, most, one, two, four = codes
    if size <= most:
        return bytes((short | size,))
    if one and size < 1 << 8:
        return bytes((one, size))
    if size < 1 << 16:
        return struct.pack(">BH", two, size)
    if size < 1 << 32:
        return struct.pack(">BI", four, size)
    raise ValueError(f"a key holds no value of {size} bytes or items")


def _pack_integer(number: int) -> bytes:
    if -0x20 <= number < 0x80:
        return bytes((number & 0xFF,))
    for code, form, low, high in _INTEGERS:
        if low <= number < high:
            return struct.pack(form, code, number)
    data = number.to_bytes(number.bit_length() // 8 + 1, "big", signed=True)
    frame = b"\xd8" if len(data) == 16 else _frame(len(data), _EXTENSION)
    return frame + bytes((_BIG_INTEGER,)) + data


def _text_of(place: _Place) -> str:
    if isinstance(place, str):
        return place
    where, step, is_number = place
    return f"{_text_of(where)}[{step}]" if is_number else _join(_text_of(where), step)


def _pack_name(name: object, place: _Place) -> bytes:
    if type(name) is str:
        return _pack_text(name)
    if name is None or isinstance(name, (bool, int, float, str, bytes)):
        return _pack(name)
    raise TypeError(f"field {_text_of(place) or 'table'} has a dictionary key of type {type(name).__name__}")


@lru_cache(maxsize=1024)
def _pack_text(text: str) -> bytes:
    """Pack the name of a field, or a short text; most keys have the same ones."""
    return _pack(text)


def _unpack(canonical: bytes) -> Any:
    import msgpack

    return msgpack.unpackb(canonical, use_list=False, strict_map_key=False, ext_hook=_big_integer)


def _big_integer(code: int, data: bytes) -> int:
    if code != _BIG_INTEGER:
        raise ValueError(f"unknown extension {code}")
    return int.from_bytes(data, "big", signed=True)


def _join(where: str, name: object) -> str:
    text = name if isinstance(name, str) else repr(name)
    return f"{where}.{text}" if where else text


def _compare(here: Any, there: Any, where: str, differences: dict[str, tuple[Any, Any]]) -> None:
    if isinstance(here, dict) and isinstance(there, dict):
        for name in [*here, *(name for name in there if name not in here)]:
            _compare(here.get(name, ABSENT), there.get(name, ABSENT), _join(where, name), differences)
    elif isinstance(here, tuple) and isinstance(there, tuple) and len(here) == len(there):
        for index, (one, other) in enumerate(zip(here, there, strict=True)):
            _compare(one, other, f"{where}[{index}]", differences)
    elif here is ABSENT or there is ABSENT or _pack(here, where) != _pack(there, where):
        differences[where] = (here, there)
