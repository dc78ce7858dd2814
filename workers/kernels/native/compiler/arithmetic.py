"""Operators and functions of numbers in kernels: what they compute is what Python and NumPy do, in 64 bits.

An integer divided by zero gives zero, as in NumPy.
"""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable
from typing import Any, Final

import llvmlite.ir as ir
import numpy as np
from llvmlite.ir import IRBuilder
from llvmlite.ir.values import Value

from . import types
from .operands import Known, Operand, Refused, Typed, cast, common, is_numeric, typed

Emit = Callable[[IRBuilder, list[Operand]], Operand]

_PYTHON: Final[dict[type[ast.AST], Callable[..., Any]]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod, ast.BitAnd: operator.and_, ast.BitOr: operator.or_,
    ast.BitXor: operator.xor, ast.LShift: operator.lshift, ast.RShift: operator.rshift, ast.Pow: operator.pow,
}  # fmt: skip
_COMPARED: Final[dict[type[ast.AST], tuple[str, Callable[[Any, Any], Any]]]] = {
    ast.Eq: ("==", operator.eq), ast.NotEq: ("!=", operator.ne), ast.Lt: ("<", operator.lt),
    ast.LtE: ("<=", operator.le), ast.Gt: (">", operator.gt), ast.GtE: (">=", operator.ge),
}  # fmt: skip
_INTEGERS: Final[dict[type[ast.operator], str]] = {
    ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.BitAnd: "and_", ast.BitOr: "or_", ast.BitXor: "xor",
    ast.LShift: "shl", ast.RShift: "ashr",
}  # fmt: skip
_FLOATS: Final[dict[type[ast.operator], str]] = {ast.Add: "fadd", ast.Sub: "fsub", ast.Mult: "fmul", ast.Div: "fdiv"}
_BITS: Final = (ast.BitAnd, ast.BitOr, ast.BitXor)
_FOLDED: Final = (bool, int, float)
#: Largest power that is computed as products.
_MOST_PRODUCTS: Final = 16


def binary(b: IRBuilder, kind: type[ast.operator], left: Operand, right: Operand) -> Operand:
    """Return the result of an operator."""
    if isinstance(left, Known) and isinstance(right, Known) and _folds(left) and _folds(right):
        return Known(_PYTHON[kind](left.object, right.object))
    if kind is ast.Pow:
        return _power(b, left, right)
    x, y = typed(left), typed(right)
    both = common(x.kind, y.kind)
    if not is_numeric(both):
        raise Refused(f"{kind.__name__} has no operands of {both}")
    if both == types.boolean and kind not in _BITS:
        both = types.int64
    if kind is ast.Div and both == types.int64:
        both = types.float64
    first, second = cast(b, x, both), cast(b, y, both)
    if isinstance(both, types.Float):
        if kind not in _FLOATS:
            raise Refused(f"{kind.__name__} has no operands of {both}")
        return Typed(both, getattr(b, _FLOATS[kind])(first, second))
    if kind in (ast.FloorDiv, ast.Mod):
        quotient, remainder = _divided(b, first, second)
        return Typed(both, quotient if kind is ast.FloorDiv else remainder)
    return Typed(both, getattr(b, _INTEGERS[kind])(first, second))


def _folds(operand: Known) -> bool:
    return type(operand.object) in _FOLDED


def _divided(b: IRBuilder, x: Value, y: Value) -> tuple[Value, Value]:
    """Return quotient and remainder, rounded down; both are 0 if y is 0, or if the quotient does not fit."""
    kind = x.type
    zero, one = kind(0), kind(1)
    if isinstance(y, ir.Constant) and y.constant > 0:
        if y.constant & (y.constant - 1) == 0:
            return b.ashr(x, kind(y.constant.bit_length() - 1)), b.and_(x, kind(y.constant - 1))
        bad = None
    else:
        overflows = b.and_(b.icmp_signed("==", x, kind(-(2**63))), b.icmp_signed("==", y, kind(-1)))
        bad = b.or_(b.icmp_signed("==", y, zero), overflows)
        y = b.select(bad, one, y)
    quotient, remainder = b.sdiv(x, y), b.srem(x, y)
    differs = b.and_(b.icmp_signed("!=", remainder, zero), b.icmp_signed("<", b.xor(remainder, y), zero))
    quotient = b.select(differs, b.sub(quotient, one), quotient)
    remainder = b.select(differs, b.add(remainder, y), remainder)
    if bad is None:
        return quotient, remainder
    return b.select(bad, zero, quotient), b.select(bad, zero, remainder)


def _power(b: IRBuilder, left: Operand, right: Operand) -> Operand:
    """Return a power of a float: products for a small whole exponent."""
    x = typed(left)
    if not isinstance(x.kind, types.Float):
        raise Refused("a power is of a float")
    if isinstance(right, Known) and type(right.object) is int and 0 < right.object <= _MOST_PRODUCTS:
        found, square, left_over = None, x.value, right.object
        while left_over:
            if left_over & 1:
                found = square if found is None else b.fmul(found, square)
            left_over >>= 1
            square = b.fmul(square, square) if left_over else square
        return Typed(x.kind, found)
    return _intrinsic("pow")(b, [left, right])


def unary(b: IRBuilder, kind: type[ast.AST], operand: Operand) -> Operand:
    """Return a number negated, inverted or as it is."""
    if isinstance(operand, Known) and _folds(operand):
        folded: dict[type[ast.AST], Callable[[Any], Any]] = {
            ast.USub: operator.neg, ast.UAdd: operator.pos, ast.Invert: operator.invert, ast.Not: operator.not_
        }  # fmt: skip
        return Known(folded[kind](operand.object))
    given = typed(operand)
    if kind is ast.Not:
        return Typed(types.boolean, b.not_(cast(b, given, types.boolean)))
    if kind is ast.UAdd:
        return given
    if kind is ast.USub and isinstance(given.kind, types.Float):
        return Typed(given.kind, b.fneg(given.value))
    if not isinstance(given.kind, types.Integer | types.Boolean):
        raise Refused(f"{kind.__name__} has no operand of {given.kind}")
    value = cast(b, given, types.int64)
    return Typed(types.int64, b.neg(value) if kind is ast.USub else b.not_(value))


def compare(b: IRBuilder, kind: type[ast.AST], left: Operand, right: Operand) -> Operand:
    """Return whether a comparison is true; it is false for NaN, but for that of inequality."""
    if isinstance(left, Known) and isinstance(right, Known):
        if kind in (ast.Is, ast.IsNot):
            return Known((left.object is right.object) == (kind is ast.Is))
        return Known(bool(_COMPARED[kind][1](left.object, right.object)))
    if kind not in _COMPARED:
        raise Refused(f"{kind.__name__} compares no values")
    sign = _COMPARED[kind][0]
    x, y = typed(left), typed(right)
    both = common(x.kind, y.kind)
    first, second = cast(b, x, both), cast(b, y, both)
    if isinstance(both, types.Float):
        found = (b.fcmp_unordered if sign == "!=" else b.fcmp_ordered)(sign, first, second)
    elif isinstance(both, types.Integer | types.Boolean):
        found = (b.icmp_unsigned if both == types.boolean else b.icmp_signed)(sign, first, second)
    else:
        raise Refused(f"values of {both} are not compared")
    return Typed(types.boolean, found)


def _conversion(kind: types.Type) -> Emit:
    def emit(b: IRBuilder, given: list[Operand]) -> Operand:
        (operand,) = given
        if isinstance(operand, Known) and isinstance(operand.object, str):  # "inf"
            operand = Known(float(operand.object))
        return Typed(kind, cast(b, operand, kind))

    return emit


def _extremum(sign: str) -> Emit:
    """Return the function of the smallest or largest number; as in Python, the first one if others are not beyond it."""

    def emit(b: IRBuilder, given: list[Operand]) -> Operand:
        first, *others = (typed(operand) for operand in given)
        found = first
        for other in others:
            both = common(found.kind, other.kind)
            x, y = cast(b, found, both), cast(b, other, both)
            is_float = isinstance(both, types.Float)
            beyond = b.fcmp_ordered(sign, y, x) if is_float else b.icmp_signed(sign, y, x)
            found = Typed(both, b.select(beyond, y, x))
        return found

    return emit


def _intrinsic(name: str) -> Emit:
    """Return a function of LLVM's on floats: float32 if all arguments are, else float64."""

    def emit(b: IRBuilder, given: list[Operand]) -> Operand:
        kind = _float(given)
        suffix = "f32" if kind == types.float32 else "f64"
        return _call(b, f"llvm.{name}.{suffix}", kind, given)

    return emit


def _library(name: str) -> Emit:
    """Return a function of the C library on floats."""

    def emit(b: IRBuilder, given: list[Operand]) -> Operand:
        kind = _float(given)
        return _call(b, name + ("f" if kind == types.float32 else ""), kind, given)

    return emit


def _float(given: list[Operand]) -> types.Type:
    kind = common(*(typed(operand).kind for operand in given))
    return kind if kind == types.float32 else types.float64


def _call(b: IRBuilder, name: str, kind: types.Type, given: list[Operand]) -> Typed:
    function = b.module.globals.get(name)
    if function is None:
        function = ir.Function(b.module, ir.FunctionType(kind.lowered, [kind.lowered] * len(given)), name)
    return Typed(kind, b.call(function, [cast(b, operand, kind) for operand in given]))


def _absolute(b: IRBuilder, given: list[Operand]) -> Operand:
    value = typed(given[0])
    if isinstance(value.kind, types.Float):
        return _intrinsic("fabs")(b, given)
    number = cast(b, value, types.int64)
    return Typed(types.int64, b.select(b.icmp_signed("<", number, number.type(0)), b.neg(number), number))


def _remainder(b: IRBuilder, given: list[Operand]) -> Operand:
    """Return the remainder of a quotient rounded towards zero."""
    kind = _float(given)
    x, y = (cast(b, operand, kind) for operand in given)
    return Typed(kind, b.frem(x, y))


#: Python's functions that kernels may call -> what writes their code.
FUNCTIONS: Final[dict[Any, Emit]] = {
    int: _conversion(types.int64), float: _conversion(types.float64), bool: _conversion(types.boolean),
    np.float32: _conversion(types.float32), np.float64: _conversion(types.float64), np.int64: _conversion(types.int64),
    min: _extremum("<"), max: _extremum(">"), abs: _absolute, math.fabs: _intrinsic("fabs"),
    math.sqrt: _intrinsic("sqrt"), np.sqrt: _intrinsic("sqrt"), math.exp: _intrinsic("exp"), math.log: _intrinsic("log"),
    math.pow: _intrinsic("pow"), math.sin: _intrinsic("sin"), math.cos: _intrinsic("cos"), np.rint: _intrinsic("rint"),
    np.floor: _intrinsic("floor"), np.ceil: _intrinsic("ceil"), np.trunc: _intrinsic("trunc"),
    math.tan: _library("tan"), math.atan: _library("atan"), math.asin: _library("asin"), math.acos: _library("acos"),
    math.tanh: _library("tanh"),
    math.erf: _library("erf"), math.erfc: _library("erfc"), math.expm1: _library("expm1"),
    math.log1p: _library("log1p"), np.fmod: _remainder,
}  # fmt: skip
