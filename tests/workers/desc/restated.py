"""Descriptors and attributes stated again, with numbers of other types that stand for the same values."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from fractions import Fraction
from math import copysign
from random import Random
from typing import Any, Final

import numpy as np

from poolrt.workers.desc import MemoryDesc
from poolrt.workers.desc.typed import Typed

#: Of every type that stands for integers and for other numbers; those that do not have a value are left out.
_TYPES: Final[tuple[Callable[[Any], Any], ...]] = (
    int, float, Fraction, np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint64, np.float16, np.float32, np.float64,
    np.longdouble, np.array, lambda value: np.array(value, np.float64), lambda value: np.array(value, np.float32),
    lambda value: np.array(value, np.int64),
)  # fmt: skip


def restated(rng: Random, value: Any) -> Any:
    """Return an equal value: its numbers of other types, its tuples as lists or arrays, its descriptors made anew."""
    if value is None or isinstance(value, (str, bool)):
        return rng.choice(_OTHERS[type(value)])(value)
    if isinstance(value, (int, float)):
        return _number(rng, value)
    if isinstance(value, tuple):
        if value and all(type(item) in (int, float) for item in value) and rng.random() < 0.3:
            return np.array(value)
        return rng.choice((tuple, list))([restated(rng, item) for item in value])
    if isinstance(value, MemoryDesc):
        return MemoryDesc(*(restated(rng, part) for part in (value.dims, value.dtype, value.tag, value.strides)))
    assert isinstance(value, Typed)
    names = [each.name for each in dataclasses.fields(value) if each.init]  # type: ignore[arg-type]
    return dataclasses.replace(value, **{name: restated(rng, getattr(value, name)) for name in names})  # type: ignore[type-var]


def with_zeros(rng: Random, value: Any) -> Any:
    """Return data with some of its floats 0.0 or -0.0, if they may be."""
    if isinstance(value, tuple):
        return tuple(with_zeros(rng, item) for item in value)
    if isinstance(value, float) and (not value or rng.random() < 0.3):
        return rng.choice((0.0, -0.0))
    if isinstance(value, Typed):
        for each in dataclasses.fields(value):  # type: ignore[arg-type]
            changed = with_zeros(rng, getattr(value, each.name)) if each.init else None
            try:
                value = dataclasses.replace(value, **({each.name: changed} if each.init else {}))  # type: ignore[type-var]
            except ValueError:  # not for this algorithm
                continue
    return value


def _number(rng: Random, value: float) -> Any:
    found: list[Any] = []
    for kind in _TYPES:
        try:
            with np.errstate(over="ignore"):
                other = kind(value)
        except (OverflowError, ValueError):
            continue
        # Not ``other == value``: NumPy would round a float to the type of the other.
        if float(other) == value and copysign(1.0, other) == copysign(1.0, value):
            found.append(other)
    return rng.choice(found)


_OTHERS: Final[dict[type, tuple[Callable[[Any], Any], ...]]] = {
    type(None): (lambda _: None,),
    str: (str, np.str_),
    bool: (bool, np.bool_, np.array),
}
