"""Reduction along runs of neighbouring dimensions, the work on few results divided by threads."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from itertools import groupby
from typing import Final, NamedTuple

from ...desc import WRAPPING, Arg, PrimitiveAttr, Reduction
from ...engines.target import Target
from ...kernels.spec import KernelSpec
from ..program import Launch, LaunchArgument, Program
from .blocks import EVERY_TYPE, LANES, lane_size, refuse
from .byte_sums import NativeByteSums
from .implementation import NativeImplementation
from .whole_reduction import EXACT, NativeWholeReduction

#: Columns that an item covers if results are adjacent.
_STRIP: Final = 64
#: The fewest elements of a part of one result, and of a result that one thread computes alone.
_LEAST_PART: Final = 1024
_LEAST_SHARE: Final = 8192
#: Vectors or rows that are added to one intermediate sum, at least.
_LEAST_GROUP: Final = 64
#: Elements of runs so short that to begin one takes as long as its sum, and of a source for which two launches are worth it.
_SHORT_RUN: Final = 256
_LEAST_APART: Final = 1024
#: Elements of a source from which on few columns are worth two launches; rows that take less time as they are; rows of the first
#: launch at least.
_LEAST_WIDE: Final = 4096
_FEW_ROWS: Final = 64
_LEAST_ROWS: Final = 4
#: Algorithm -> (the term of an element, the last step); the term of norms depends on p.
_PLAIN: Final = {
    "sum": ("sum", ""),
    "mean": ("sum", "mean"),
    "max": ("max", ""),
    "min": ("min", ""),
    "mul": ("mul", ""),
}
_POWERS: Final = {1.0: "abs", 2.0: "square"}


class _Run(NamedTuple):
    """Neighbouring dimensions that are kept, or reduced."""

    reduced: bool
    size: int


class _Shape(NamedTuple):
    """A row-major source as (before, outer, kept, inner, columns); outer and inner are reduced."""

    before: int
    outer: int
    kept: int
    inner: int
    columns: int

    @property
    def reduced(self) -> int:
        """How many elements are reduced to one."""
        return self.outer * self.inner

    @property
    def items(self) -> int:
        """The pieces that can be computed in parallel without dividing a result."""
        return self.before * self.kept * -(-self.columns // _STRIP)

    @property
    def sums(self) -> int:
        """The number of sums of groups, one for each column if an item is a part of a row."""
        return _STRIP * self.items if self.columns > _STRIP else 0

    @property
    def results(self) -> int:
        """The elements of the destination."""
        return self.before * self.kept * self.columns

    @property
    def apart(self) -> tuple[_Shape, _Shape] | None:
        """Return both runs one after the other, the outer one over whole rows, if the inner one is short; else None."""
        is_short = self.columns == 1 and 1 < self.inner <= _SHORT_RUN
        if self.outer == 1 or not is_short or self.reduced * self.results < _LEAST_APART:
            return None
        return (
            _Shape(self.before, 1, 1, self.outer, self.kept * self.inner),
            _Shape(1, 1, self.results, self.inner, 1),
        )

    def wide(self) -> tuple[_Shape, ...]:
        """Return rows of few columns as fewer rows of more, and these columns reduced; this shape alone if that takes longer."""
        several = [rows for rows in range(_STRIP // self.columns, 1, -1) if self.inner % rows == 0]
        if self.outer > 1 or self.columns == 1 or not several or self.reduced * self.results < _LEAST_WIDE:
            return (self,)
        rows = several[0]
        if self.columns * rows < LANES or self.inner <= max(_FEW_ROWS, _LEAST_ROWS * rows):
            return (self,)
        return (
            _Shape(self.before, 1, self.kept, self.inner // rows, self.columns * rows),
            _Shape(self.before, 1, self.kept, rows, self.columns),
        )


class NativeReduction(NativeImplementation[Reduction]):
    """Contiguous runs, or 64 independent columns; with fewer results than threads, as many parts of each.

    Of more than two runs of dimensions, the first ones are reduced before the others. Short runs in many places are first added
    up to one, whose columns are adjacent. With parts, each thread leaves its partial results in the scratchpad, and a launch of
    one item makes the results of them.
    """

    name = "native:reduction"
    stays_inside = True

    def reject(self, op: Reduction, attr: PrimitiveAttr, target: Target) -> str | None:
        if attr.post_ops:
            return "post-ops are not supported"
        op = self.complete(op, attr, target)
        for md in (op.src, op.dst):
            if not md.is_plain:
                return f"{md.tag}; only row-major is supported"
        refused = refuse(op.src, op.dst, dtypes=EVERY_TYPE)
        if refused:
            return refused
        if op.algorithm in EXACT and op.src.dtype in WRAPPING:
            return f"{op.algorithm} of {op.src.dtype}, which float64 does not hold"
        if op.algorithm not in _PLAIN and op.p not in _POWERS:
            return f"algorithm {op.algorithm} with p = {op.p:g} is not supported"
        return None

    def threads(self, op: Reduction, target: Target) -> int:
        """Return into how many parts each result is divided, 0 if it is not."""
        before, shape = _stages(op)
        threads = max(1, target.threads)
        apart = shape.apart
        items = apart[0].items if apart else shape.items
        if before or not items or items >= 4 * threads or items % threads == 0:
            return 0
        share = shape.reduced * shape.results // _LEAST_SHARE
        parts = min(threads, shape.reduced // _LEAST_PART, share)
        return parts if parts > 1 else 0

    def program(self, op: Reduction, attr: PrimitiveAttr, target: Target) -> Program:
        if op.dst.elements == 0:
            return Program((), ())
        (before, shape), parts = _stages(op), max(1, target.threads)
        if parts == 1:
            shapes = [*before, *(shape.apart or [shape])]
            return _in_turn([part for whole in shapes for part in whole.wide()], op)
        step, result, root = _algorithm(op)
        dtype, lane = op.dst.dtype, lane_size(op.dst.dtype)
        between, areas = _between(dtype)
        partial: LaunchArgument = ("s", 0)
        sums = lane * parts * shape.results
        kernel, divided = _launch(0, shape, ("m", (Arg.SRC, 0)), partial, sums, op, parts)
        gathered = _Shape(1, 1, 1, parts, shape.results)
        _, last = _launch(1, gathered, partial, ("m", (Arg.DST, 0)), sums, op, at_once=True)
        return Program(
            (
                _kernel(kernel, step, "", False, dtype, between),
                _kernel("strided", _merging(step), result, root, between, dtype),
            ),
            (divided, last),
            scratchpad=sums + areas * lane * max(parts * shape.sums, gathered.sums),
        )


def _in_turn(shapes: list[_Shape], op: Reduction) -> Program:
    """Return a program that reduces shapes one after the other, each a result of the one before."""
    step, result, root = _algorithm(op)
    dtype, lane = op.dst.dtype, lane_size(op.dst.dtype)
    between, areas = _between(dtype)
    places = [0, *itertools.accumulate(lane * shape.results for shape in shapes[:-1])]
    sums, last = places[-1], len(shapes) - 1
    src: LaunchArgument = ("m", (int(Arg.SRC), 0))
    kernels, launches = list[KernelSpec](), list[Launch]()
    for number, shape in enumerate(shapes):
        dst: LaunchArgument = ("m", (int(Arg.DST), 0)) if number == last else ("s", places[number])
        part, launch = _launch(0, shape, src, dst, sums, op)
        term, source = (_merging(step), between) if number else (step, dtype)
        end = (result, root, source, dtype) if number == last else ("", False, source, between)
        kernel = _kernel(part, term, *end)
        if kernel not in kernels:
            kernels.append(kernel)
        launches.append(launch._replace(kernel=kernels.index(kernel)))
        src = dst
    most = max(shape.sums for shape in shapes)
    return Program(tuple(kernels), tuple(launches), scratchpad=sums + areas * lane * most)


def _between(dtype: str) -> tuple[str, int]:
    """Return the data type of intermediate results, and how many areas the sums of groups need.

    These are the sums and their totals, unless the destination holds the totals.
    """
    between = "f32" if lane_size(dtype) == 4 else "f64"
    return between, 1 if dtype == between else 2


def _algorithm(op: Reduction) -> tuple[str, str, bool]:
    """Return the term of an element, the last step, and whether the square root is taken."""
    if op.algorithm in _PLAIN:
        return *_PLAIN[op.algorithm], False
    root = op.p == 2.0 and not op.algorithm.startswith("norm_lp_power")
    return _POWERS[op.p], op.algorithm.rpartition("_")[2], root


def _merging(step: str) -> str:
    """Return the term of an intermediate result."""
    return "sum" if step in _POWERS.values() else step


def _kernel(part: str, step: str, result: str, root: bool, src: str, dst: str) -> KernelSpec:
    return KernelSpec.of("reduction", part=part, step=step, result=result, root=root, src_type=src, dst_type=dst)


def _launch(
    number: int,
    shape: _Shape,
    src: LaunchArgument,
    dst: LaunchArgument,
    sums: int,
    op: Reduction,
    parts: int = 1,
    at_once: bool = False,
) -> tuple[str, Launch]:
    """Return which kernel reduces a shape, and its launch: over all items of all parts, or one item ``at_once``."""
    in_rows = shape.columns == 1
    group = max(_LEAST_GROUP, math.isqrt(shape.reduced // (LANES if in_rows else 1)))
    numbers = (shape.before * shape.kept, shape.kept, shape.outer, shape.inner, shape.columns, parts, group)
    items = parts * shape.items
    each, work = (items, 1) if at_once else (1, items)
    totals = sums + lane_size(op.dst.dtype) * parts * shape.sums
    # A mean divides by the number of all elements, also if a launch before has added them up.
    count = op.src.elements // op.dst.elements
    floats: tuple[LaunchArgument, ...] = (("f", float(count)), ("f", op.eps))
    return "row" if in_rows else "strided", Launch(
        number, (src, dst, *(("i", n) for n in (*numbers, each)), ("s", sums), ("s", totals), *floats), work
    )


def _stages(op: Reduction) -> tuple[list[_Shape], _Shape]:
    """Return what is reduced first, one shape after the other, and the shape of the last two runs.

    The first runs are reduced first: over rows of everything behind them, which are vectors.
    """
    runs, before = _runs(op.src.dims, op.dst.dims), list[_Shape]()
    while (shape := _shape(runs)) is None:
        ahead = 1 if runs[0].reduced else runs.pop(0).size
        first, following, rest = runs[0].size, runs[1].size, runs[2:]
        before.append(_Shape(ahead, 1, 1, first, following * math.prod(run.size for run in rest)))
        runs = [_Run(False, ahead * following), *rest]
    return before, shape


def _runs(src: Sequence[int], dst: Sequence[int]) -> list[_Run]:
    """Return dimensions joined if neighbours are both kept or both reduced."""
    sizes = [(s != d, s) for s, d in zip(src, dst, strict=True) if s != 1]
    return [
        _Run(reduced, math.prod(size for _, size in run)) for reduced, run in groupby(sizes, key=lambda pair: pair[0])
    ]


def _shape(runs: Sequence[_Run]) -> _Shape | None:
    """Return the shape of runs; None if they are too many."""
    found = [1, 1, 1, 1, 1]
    place = len(found) - 1
    for reduced, size in reversed(runs):
        if (place % 2 == 1) != reduced:
            place -= 1
        if place < 0:
            return None
        found[place] = size
        place -= 1
    return _Shape(*found)


IMPLEMENTATIONS = (NativeWholeReduction(), NativeByteSums(), NativeReduction())
