"""Operands of expressions in kernels, and conversions between the types of numbers."""

from __future__ import annotations

from typing import Any, Final

import llvmlite.ir as ir
import numpy as np
from llvmlite.ir import IRBuilder
from llvmlite.ir.values import Value

from poolrt.cachestore.deferred_dataclass import dataclass

from . import types


class Refused(Exception):
    """A function is not in the language of kernels. ``place`` is file and line, empty as long as they are not known."""

    def __init__(self, reason: str, place: str = "") -> None:
        super().__init__(reason, place)
        self.reason = reason
        self.place = place

    def __str__(self) -> str:
        return f"{self.reason} ({self.place})" if self.place else self.reason


@dataclass(frozen=True, slots=True)
class Typed:
    """A value that is computed when the kernel runs."""

    kind: types.Type
    value: Value


@dataclass(frozen=True, slots=True)
class Known:
    """A Python object that is known when the kernel is compiled: a number, a text, a function, a module."""

    object: Any


#: A tuple has several operands.
Operand = Typed | Known | tuple["Operand", ...]

_LEAST: Final = -(2**63)
_MOST: Final = 2**63 - 1


def typed(operand: Operand) -> Typed:
    """Return a number as a value."""
    if isinstance(operand, Typed):
        return operand
    if isinstance(operand, tuple):
        raise Refused("a tuple is no number")
    value = operand.object
    if isinstance(value, bool | np.bool_):
        return Typed(types.boolean, types.boolean.lowered(int(value)))
    if isinstance(value, np.float32):
        return Typed(types.float32, types.float32.lowered(float(value)))
    if isinstance(value, int | np.integer):
        if not _LEAST <= value <= _MOST:
            raise Refused(f"{value} does not fit into int64")
        return Typed(types.int64, types.int64.lowered(int(value)))
    if isinstance(value, float):
        return Typed(types.float64, types.float64.lowered(float(value)))
    raise Refused(f"{value!r} is no number")


def is_number(operand: Operand) -> bool:
    """Return whether an operand is a value, or becomes one."""
    return isinstance(operand, Typed) or (
        isinstance(operand, Known) and isinstance(operand.object, bool | int | float | np.floating | np.integer)
    )


def is_numeric(kind: types.Type) -> bool:
    """Return whether a type is one of single numbers."""
    return isinstance(kind, types.Integer | types.Boolean | types.Float)


def common(*kinds: types.Type) -> types.Type:
    """Return the type that holds numbers of several types; as in NumPy, int64 with float32 is float64."""
    first = kinds[0]
    if all(kind == first for kind in kinds):
        return first
    if not all(map(is_numeric, kinds)):
        raise Refused(f"no type holds {' and '.join(map(str, dict.fromkeys(kinds)))}")
    kinds = tuple(kind for kind in kinds if kind != types.boolean)
    if all(kind == kinds[0] for kind in kinds):
        return kinds[0]
    return types.float64


def cast(b: IRBuilder, operand: Operand, kind: types.Type) -> Value:
    """Return an operand as a value of a type. Numbers are converted as by Python's `int` and `float`."""
    given = typed(operand)
    value = given.value
    if given.kind == kind:
        return value
    if not is_numeric(given.kind) or not is_numeric(kind):
        raise Refused(f"expect {kind}, not {given.kind}")
    if kind == types.boolean:
        zero = ir.Constant(value.type, 0)
        if isinstance(given.kind, types.Float):
            return b.fcmp_unordered("!=", value, zero)
        return b.icmp_signed("!=", value, zero)
    if given.kind == types.boolean:
        value, given = b.zext(value, types.int64.lowered), Typed(types.int64, value)
    if kind == types.int64:
        return b.fptosi(value, kind.lowered) if isinstance(given.kind, types.Float) else value
    if isinstance(given.kind, types.Integer):
        return b.sitofp(value, kind.lowered)
    return b.fpext(value, kind.lowered) if kind == types.float64 else b.fptrunc(value, kind.lowered)
