"""The codec of data: dataclasses to plain values that messages carry, and back, checked by their type hints.

A dataclass or tuple becomes a list, an `IntEnum` an integer. Classes of a union have different numbers of fields, which
tell them apart. Messages of runs do not pass here: they are lists of numbers already.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import IntEnum
from functools import cache
from reprlib import repr as shorten
from types import NoneType, UnionType
from typing import Any, Final, TypeAlias, TypeVar, cast, get_args, get_origin, get_type_hints

import msgpack

from poolrt.cachestore.deferred_dataclass import fields

T = TypeVar("T")
_Decoder: TypeAlias = Callable[[Any], Any]
#: Types that messages carry as they are -> what stands for them. An integer may stand for a float, and stays one.
_PLAIN: Final[dict[Any, tuple[type, ...]]] = {
    float: (float, int),
    **{kind: (kind,) for kind in (int, str, bytes, bool, list, dict, NoneType)},
}


def encode(value: object) -> list[Any]:
    """Return a dataclass as plain values."""
    return cast("list[Any]", msgpack.unpackb(pack(value)))


def pack(value: object) -> bytes:
    """Return a dataclass as bytes, which are cheaper to keep and to send than plain values."""
    return cast("bytes", msgpack.packb(value, default=_values))


def decode(kind: type[T], wire: object) -> T:
    """Return the dataclass that `encode` made plain. Raises ValueError that names the field which is malformed."""
    return cast("T", _decoder(cast("Any", kind))(wire))


def unpack(kind: type[T], data: bytes) -> T:
    """Return the dataclass that `pack` made bytes. Raises ValueError that names the field which is malformed."""
    return decode(kind, msgpack.unpackb(data))


@cache
def _names(kind: type[Any]) -> tuple[str, ...]:
    return tuple(field.name for field in fields(kind) if field.init)


def _values(value: object) -> tuple[Any, ...]:
    return tuple([getattr(value, name) for name in _names(cast("Any", type(value)))])


@cache
def _decoder(kind: Any) -> _Decoder:
    items = get_args(kind)
    if isinstance(kind, UnionType):
        return _union(items)
    if get_origin(kind) is tuple:
        if items[-1] is not ...:
            return _record([f"item {n}" for n in range(len(items))], items, lambda *values: values)
        item = _decoder(items[0])
        return lambda wire: tuple([item(each) for each in _check_list(wire)])
    if (get_origin(kind) or kind) in _PLAIN:
        return _plain(_PLAIN[get_origin(kind) or kind])
    if issubclass(kind, IntEnum):
        return cast("_Decoder", kind)
    hints, names = get_type_hints(kind), _names(kind)
    return _record([f"{kind.__name__}.{name}" for name in names], [hints[name] for name in names], kind)


def _plain(accepted: tuple[type, ...]) -> _Decoder:
    def decode(wire: Any) -> Any:
        if type(wire) not in accepted:
            raise ValueError(f"expected {accepted[0].__name__}, got {shorten(wire)}")
        return wire

    return decode


_check_list: Final = _plain((list,))


def _record(labels: Sequence[str], kinds: Sequence[Any], make: Callable[..., Any]) -> _Decoder:
    """Return the decoder of a number of values, each of its own type and named by a label in errors."""
    decoders = [_decoder(kind) for kind in kinds]

    def decode(wire: Any) -> Any:
        if len(_check_list(wire)) != len(decoders):
            raise ValueError(f"expected {', '.join(labels)}, got {len(wire)} values")
        values: list[Any] = []
        try:
            for item, value in zip(decoders, wire, strict=True):
                values.append(item(value))
        except ValueError as error:
            raise ValueError(f"{labels[len(values)]}: {error}") from None
        return make(*values)

    return decode


def _union(kinds: Sequence[Any]) -> _Decoder:
    """Return the decoder of one class or None, or of one of several dataclasses."""
    if NoneType in kinds:
        (some,) = (_decoder(kind) for kind in kinds if kind is not NoneType)
        return lambda wire: None if wire is None else some(wire)
    by_length = {len(_names(kind)): _decoder(kind) for kind in kinds}

    def decode(wire: Any) -> Any:
        if len(_check_list(wire)) not in by_length:
            raise ValueError(f"expected one of {', '.join(kind.__name__ for kind in kinds)}, got {len(wire)} values")
        return by_length[len(wire)](wire)

    return decode
