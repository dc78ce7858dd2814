"""Computes problems on memory between pages that cannot be touched: a kernel that leaves its memory ends the process.

``python -m tests.workers.support.reading LEVEL SEED MOST [KIND...]`` computes on an ISA level with extensions, for a
quarter of the implementations, ``MOST`` problems in f32 and some in other data types, or all of all in every type (0). With
kinds of operations, it computes ``MOST`` problems that are drawn at random, for each implementation of these, and
compares them with float64. It prints each before it computes it. All arguments end where such a page begins, or begin
where one ends; so does the scratchpad. Arguments of implementations that may read behind them end 64 bytes before it.
"""

from __future__ import annotations

import ctypes
import mmap
import random
import sys
from collections import Counter
from collections.abc import Iterator, Mapping

import numpy as np

from poolrt.workers.desc import PrimitiveAttr, Reorder
from poolrt.workers.execution.native_binding import RealizedPrimitive
from poolrt.workers.implementations.primitive_desc import PrimitiveDesc, primitive_descs
from poolrt.workers.memory.buffer import SLACK
from tests.workers.cases import KINDS, cases
from tests.workers.levels import target_of
from tests.workers.native_runner import Array, GuardedBuffer, NativeRunner

from .problems import cells, problems, values

_PAGE = mmap.PAGESIZE
#: The share of other data types, which are read by the same loops, unless all problems are computed.
_SHARE_OF_TYPES = 1 / 16
#: The share of implementations that compute a problem in f32, unless all problems are computed.
_SHARE_OF_IMPLEMENTATIONS = 1 / 4
#: The share of implementations that may read behind arguments, unless all problems are computed: these are the smaller part of
#: what a graph gives its inputs to.
_SHARE_OF_OTHERS = 1 / 4
_UNTOUCHED = 0xFF


class EdgeBuffer(GuardedBuffer):
    """Memory between two pages that cannot be touched: ``room`` bytes before the second, or right behind the first.

    Its place in memory is a multiple of its items' size and no more, unless it begins with a page.
    """

    def __init__(self, nbytes: int, room: int = 0, at_start: bool = False) -> None:
        whole = -(-(nbytes + room) // _PAGE) * _PAGE
        self._map = mmap.mmap(-1, whole + 2 * _PAGE)
        memory = np.frombuffer(self._map, np.uint8)
        memory[_PAGE:-_PAGE] = _UNTOUCHED
        begin = memory.ctypes.data
        for page in (begin, begin + _PAGE + whole):
            if ctypes.CDLL(None).mprotect(ctypes.c_void_p(page), ctypes.c_size_t(_PAGE), 0):
                raise OSError("a page cannot be protected")
        start = _PAGE if at_start else _PAGE + whole - room - nbytes
        self.content = memory[start : start + nbytes]
        self._around = memory[_PAGE:start], memory[start + nbytes : _PAGE + whole]
        self.address = begin + start

    def assert_nothing_behind_was_written(self) -> None:
        for part in self._around:
            assert (part == _UNTOUCHED).all(), "a kernel wrote outside of its destination"


class EdgeRunner(NativeRunner):
    """Runs primitives on memory that ends, or in two parts begins, where a page is that cannot be touched."""

    _room, _at_start = 0, False

    def _run(
        self, pd: PrimitiveDesc, primitive: RealizedPrimitive, args: Mapping[int, Array], parts: int
    ) -> dict[int, Array]:
        self._room, self._at_start = 0 if pd.stays_inside() else SLACK, parts == 2
        return super()._run(pd, primitive, args, parts)

    def memory(self, nbytes: int, is_written: bool) -> GuardedBuffer:
        return EdgeBuffer(nbytes, self._room, self._at_start)

    def scratchpad(self, nbytes: int) -> GuardedBuffer:
        # It begins on a cache line, as each piece of it does.
        return EdgeBuffer(-(-nbytes // SLACK) * SLACK, SLACK, self._at_start)


def accepted(level: str, seed: int) -> Iterator[tuple[str, PrimitiveDesc, dict[int, Array] | None]]:
    """Yield what implementations accept, with arguments or None, in an order that is drawn."""
    target = target_of(level)
    found: list[tuple[str, PrimitiveDesc, dict[int, Array] | None]] = []
    for cell in cells():
        for op in problems(cell):
            found += [(cell.dtype, pd, None) for pd in primitive_descs(op, PrimitiveAttr(), target)]
    for kind in KINDS:
        for case in cases(kind):
            found += [("case", pd, case.args) for pd in primitive_descs(case.op, case.attr, target)]
    distinct = {(dtype, pd.impl_name(), pd.op, pd.attr): (dtype, pd, args) for dtype, pd, args in found}
    drawn = [*distinct.values()]
    random.Random(seed).shuffle(drawn)
    yield from drawn


def compute_listed(level: str, seed: int, most: int) -> None:
    """Compute problems of the table and of the cases."""
    runner, computed = EdgeRunner(), Counter[tuple[str, str, str]]()
    for dtype, pd, args in accepted(level, seed):
        which = pd.op.kind, pd.impl_name(), dtype
        share = _SHARE_OF_IMPLEMENTATIONS if dtype in ("f32", "case") else _SHARE_OF_TYPES
        share *= 1.0 if pd.stays_inside() else _SHARE_OF_OTHERS
        if most and (computed[which] >= most or random.Random(f"{seed} {which}").random() >= share):
            continue
        computed[which] += 1
        print(f"{pd.impl_name()} {pd.op} {pd.attr}", flush=True)
        given = values(pd.op, pd.attr, seed) if args is None else args
        for parts in (1, 2):
            runner.run(pd, given, parts)
    print(f"{len(computed)} kinds, {computed.total()} problems")


def compute_drawn(level: str, seed: int, most: int, kinds: list[str]) -> None:
    """Compute problems that are drawn at random."""
    from .test_random_problems import chained, offers
    from .verification import Verification

    verification, computed = Verification(EdgeRunner(target_of(level)), seed), Counter[str]()
    rng = random.Random(seed)
    for kind in kinds:
        computed.clear()
        for pd in offers(kind, verification, rng):
            if computed[pd.impl_name()] < most and not (isinstance(pd.op, Reorder) and pd.op.is_cross_engine):
                computed[pd.impl_name()] += 1
                pd = chained(pd, rng)
                print(f"{pd.impl_name()} {pd.op} {pd.attr}", flush=True)
                verification.compute(pd)
        print(f"{kind}: {dict(computed)}", flush=True)


if __name__ == "__main__":
    if sys.argv[4:]:
        compute_drawn(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4:])
    else:
        compute_listed(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
