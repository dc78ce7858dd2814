"""Elements of rows as resampling takes them: by their numbers, computed with as lanes or only moved, of every data type."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

import llvmlite.ir as ir
import numpy as np

from poolrt.cachestore.deferred_dataclass import dataclass

from .compiler import types
from .compiler.language import intrinsic
from .elements import STORED, elements, widened
from .vec import (
    F32,
    F64,
    I8,
    I16,
    I32,
    I64,
    LANES,
    VI,
    VM,
    Builder,
    Value,
    VectorType,
    call,
    dload,
    doubles,
    fload,
    isa_of,
    pointer,
    splat,
    vector,
)
from .whole_numbers import whole_numbers

_HALF: Final = LANES // 2
_VB: Final = ir.VectorType(I8, LANES)


@dataclass(frozen=True, slots=True)
class Samples:
    """What resampling uses of a data type: bytes of an element, a lane and a weight, and functions on addresses.

    Lanes in scratch memory are kept as they are. Elements that are only moved have no ``fill``.
    """

    size: int
    lane: int
    share: int
    load: Any  #: (address) -> lanes
    gather: Any  #: (row, table) -> lanes: elements whose numbers (16 int32) a table has
    pick: Any  #: the same if no number is more than 15 above the first; up to 60 bytes behind the row are read
    near: Any  #: the same if no number in a half is more than 7 above its first one
    far: Any  #: the same if no number is more than 31 above the first, and none above the last
    store: Any  #: (address, lanes)
    store_part: Any  #: (address, lanes, count)
    load_kept: Any  #: (address of scratch memory) -> lanes; also an array of weights
    keep: Any  #: (address of scratch memory, lanes)
    weight: Any  #: (address) -> a weight of a record
    fill: Any  #: (weight) -> it in every lane
    real: Any  #: np.float32 or np.float64


@lru_cache
def samples(dtype: str, moves: bool) -> Samples:
    """Return what kernels use of a data type; if they only move elements, that is one of integers without sign."""
    kinds: tuple[Mapping[ir.Type, Any], ...] = ({}, _PERMUTES, _PERMUTES_OF_HALVES, _PERMUTES_OF_TWO)
    gather, pick, near, far = (_make_gather(dtype, moves, permutes) for permutes in kinds)
    if moves:
        raw = whole_numbers(dtype, "max")
        return Samples(
            raw.size, raw.size, 4, raw.load, gather, pick, near, far, raw.store, raw.store_part, raw.load, raw.store, fload,
            None, np.float32,
        )  # fmt: skip
    of = elements(dtype)
    kept = of.lanes_as
    weight = fload if of.real is np.float32 else dload
    return Samples(
        of.size, kept.size, kept.size, of.load, gather, pick, near, far, of.store, of.store_part, kept.load, kept.store,
        weight, of.fill, of.real,
    )  # fmt: skip


def make_repeated(dtype: str, times: int) -> Any:
    """Return the intrinsic that loads as many elements, whole numbers, as make a vector if each is there so many ``times``."""
    kind = STORED[dtype]
    lanes = VectorType(f"i{kind.width}", ir.VectorType(kind, LANES), types.int64)

    @intrinsic
    def repeated(_: Any, place: types.Integer) -> Any:
        def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
            few = ir.VectorType(kind, LANES // times)
            found = b.load(pointer(b, a[0], few), align=1)
            numbers = ir.Constant(ir.VectorType(I32, LANES), [lane // times for lane in range(LANES)])
            return b.shuffle_vector(found, ir.Constant(few, ir.Undefined), numbers)

        return lanes(types.int64), emit

    return repeated


def _make_gather(dtype: str, moves: bool, permutes: Mapping[ir.Type, Any]) -> Any:
    kind = STORED[dtype]
    if moves:
        lanes = VectorType(f"i{kind.width}", ir.VectorType(kind, LANES), types.int64)
    else:
        lanes = vector if elements(dtype).real is np.float32 else doubles

    @intrinsic
    def gather(_: Any, row: types.Integer, table: types.Integer) -> Any:
        def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
            numbers = b.load(pointer(b, a[1], VI), align=4)
            permute = permutes.get(kind)
            found = permute(b, a[0], numbers, kind) if permute else None
            found = _gathered(b, a[0], numbers, kind) if found is None else found
            return found if moves else widened(b, found, dtype)

        return lanes(types.int64, types.int64), emit

    return gather


def _gathered(b: Builder, row: Value, numbers: Value, kind: ir.Type) -> Value:
    """Return elements by their numbers; of fewer bytes than an instruction reads, the next ones are read, too."""
    size = {F32: 4, F64: 8}.get(kind) or kind.width // 8
    read = I32 if kind in (I8, I16) else kind
    wide = ir.VectorType(I64, LANES)
    offsets = b.mul(b.sext(numbers, wide), ir.Constant(wide, [size] * LANES))
    where = b.inttoptr(b.add(splat(b, row), offsets), ir.VectorType(read.as_pointer(), LANES))
    found = ir.VectorType(read, LANES)
    every = ir.Constant(VM, [1] * LANES)
    name = f"llvm.masked.gather.v16{'f' if read in (F32, F64) else 'i'}{8 * max(size, 4)}.v16p0"
    got = call(b, name, where, I32(min(size, 4)), every, ir.Constant(found, None), result=found)
    return b.trunc(got, ir.VectorType(kind, LANES)) if read != kind else got


def _permuted_words(b: Builder, row: Value, numbers: Value, kind: ir.Type) -> Value | None:
    """Return elements of 32 bits by a permutation of those from the first one, None if the level has none."""
    if isa_of(b) != "x86-64-v4":
        return None
    first, rest = _first(b, numbers)
    return b.bitcast(_words_from(b, row, first, rest), ir.VectorType(kind, LANES))


def _permuted_words_of_two(b: Builder, row: Value, numbers: Value, kind: ir.Type) -> Value | None:
    """Return elements of 32 bits by permutations of those from the first one and of those up to the last one.

    None if the level has none. If the last one is less than 15 above the first, both are permutations from the first one.
    """
    near = _permuted_words(b, row, numbers, kind)
    if near is None:
        return None
    first, rest = _first(b, numbers)
    last = b.sext(b.extract_element(numbers, I32(LANES - 1)), I64)
    begin = b.sub(last, I64(LANES - 1))
    begin = b.select(b.icmp_signed(">", begin, first), begin, first)
    far = _words_from(b, row, begin, b.sub(numbers, splat(b, b.trunc(begin, I32))))
    return _near_or_far(b, rest, near, b.bitcast(far, near.type))


def _words_from(b: Builder, row: Value, begin: Value, numbers: Value) -> Value:
    """Permute 16 floats of a row from number ``begin`` on by the lowest four bits of ``numbers``."""
    found = b.load(pointer(b, b.add(row, b.shl(begin, I64(2))), ir.VectorType(F32, LANES)), align=4)
    return call(b, "llvm.x86.avx512.permvar.sf.512", found, numbers)


def _near_or_far(b: Builder, rest: Value, near: Value, far: Value) -> Value:
    """Return ``near`` in lanes of numbers less than 16 above the first, ``far`` in others."""
    return b.select(b.icmp_signed("<", rest, ir.Constant(VI, [LANES] * LANES)), near, far)


@intrinsic
def vpick_far(_: Any, row: types.Integer, table: types.Integer) -> Any:
    """Return floats whose numbers (16 int32) a table has, none of them more than 31 above the first.

    Up to 124 bytes behind the row are read.
    """

    def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
        numbers = b.load(pointer(b, a[1], VI), align=4)
        first, rest = _first(b, numbers)
        near = _permuted_words(b, a[0], numbers, F32)
        if near is None:
            return _gathered(b, a[0], numbers, F32)
        return _near_or_far(b, rest, near, _words_from(b, a[0], b.add(first, I64(LANES)), rest))

    return vector(types.int64, types.int64), emit


def _permuted_bytes(b: Builder, row: Value, numbers: Value, kind: ir.Type) -> Value | None:
    """Return bytes by a permutation of those from the first one, None if the level has none."""
    if isa_of(b) in ("", "x86-64"):
        return None
    first, rest = _first(b, numbers)
    found = b.load(pointer(b, b.add(row, first), _VB), align=1)
    return call(b, "llvm.x86.ssse3.pshuf.b.128", found, b.trunc(rest, _VB), result=_VB)


def _first(b: Builder, numbers: Value) -> tuple[Value, Value]:
    """Return the first number, and how far all are above it."""
    first = b.extract_element(numbers, I32(0))
    return b.sext(first, I64), b.sub(numbers, splat(b, first))


def _permuted_halves(b: Builder, row: Value, numbers: Value, kind: ir.Type) -> Value | None:
    """Return elements of 32 bits by two permutations of those from the first one of each half, None if the level has none."""
    if isa_of(b) != "x86-64-v3":
        return _permuted_words(b, row, numbers, kind)
    found = []
    for half in range(2):
        lanes = ir.Constant(ir.VectorType(I32, _HALF), [_HALF * half + lane for lane in range(_HALF)])
        own = b.shuffle_vector(numbers, numbers, lanes)
        first = b.extract_element(own, I32(0))
        undefined = ir.Constant(own.type, ir.Undefined)
        zeros = ir.Constant(own.type, [0] * _HALF)
        rest = b.sub(own, b.shuffle_vector(b.insert_element(undefined, first, I32(0)), undefined, zeros))
        floats = ir.VectorType(F32, _HALF)
        place = b.add(row, b.shl(b.sext(first, I64), I64(2)))
        near = b.load(pointer(b, place, floats), align=4)
        found.append(call(b, "llvm.x86.avx2.permps", near, rest, result=floats))
    whole = b.shuffle_vector(*found, ir.Constant(VI, list(range(LANES))))
    return b.bitcast(whole, ir.VectorType(kind, LANES))


_PERMUTES: Final[Mapping[ir.Type, Any]] = {F32: _permuted_words, I32: _permuted_words, I8: _permuted_bytes}
_PERMUTES_OF_TWO: Final[Mapping[ir.Type, Any]] = {F32: _permuted_words_of_two, I32: _permuted_words_of_two}
_PERMUTES_OF_HALVES: Final = {**_PERMUTES, F32: _permuted_halves, I32: _permuted_halves}
