"""Computes problems whose sources end where a page begins that cannot be read: a kernel that reads behind one ends the process.

``python -m tests.workers.support.reading LEVEL SEED MOST`` computes, for an ISA level, problems of each implementation that says
of itself that it reads nothing behind arguments: ``MOST`` in f32 and some other data types, or all in every type (0). It prints
each before it computes it.
"""

from __future__ import annotations

import ctypes
import mmap
import random
import sys
from collections import Counter
from collections.abc import Iterator

import numpy as np

from poolrt.workers.desc import PrimitiveAttr
from poolrt.workers.implementations.primitive_desc import PrimitiveDesc, primitive_descs
from tests.workers.cases import KINDS, cases
from tests.workers.levels import target_of
from tests.workers.native_runner import Array, GuardedBuffer, NativeRunner

from .problems import cells, problems, values

_PAGE = mmap.PAGESIZE
#: The share of other data types, which are read by the same loops, unless all problems are computed.
_SHARE_OF_TYPES = 1 / 8


class EdgeBuffer(GuardedBuffer):
    """Memory that ends where a page begins that cannot be read."""

    def __init__(self, nbytes: int) -> None:
        whole = -(-nbytes // _PAGE) * _PAGE
        self._map = mmap.mmap(-1, whole + _PAGE)
        memory = np.frombuffer(self._map, np.uint8)
        memory[:whole] = 0xFF
        end = memory.ctypes.data + whole
        if ctypes.CDLL(None).mprotect(ctypes.c_void_p(end), ctypes.c_size_t(_PAGE), 0):
            raise OSError("a page cannot be protected")
        self.content = memory[whole - nbytes : whole]
        self.address = end - nbytes

    def assert_nothing_behind_was_written(self) -> None:
        """Do nothing: who writes there does not come back."""


class EdgeRunner(NativeRunner):
    """Runs primitives on sources of which nothing behind the end can be read."""

    def memory(self, nbytes: int, is_written: bool) -> GuardedBuffer:
        return GuardedBuffer(nbytes) if is_written else EdgeBuffer(nbytes)


def stated(level: str, seed: int) -> Iterator[tuple[str, PrimitiveDesc, dict[int, Array] | None]]:
    """Yield what implementations that read nothing behind arguments accept, with arguments or None, in an order that is drawn."""
    target = target_of(level)
    found: list[tuple[str, PrimitiveDesc, dict[int, Array] | None]] = []
    for cell in cells():
        for op in problems(cell):
            found += [(cell.dtype, pd, None) for pd in primitive_descs(op, PrimitiveAttr(), target)]
    for kind in KINDS:
        for case in cases(kind):
            found += [("case", pd, case.args) for pd in primitive_descs(case.op, case.attr, target)]
    distinct = {
        (dtype, pd.impl_name(), pd.op, pd.attr): (dtype, pd, args) for dtype, pd, args in found if pd.stays_inside()
    }
    drawn = [*distinct.values()]
    random.Random(seed).shuffle(drawn)
    yield from drawn


def main(level: str, seed: int, most: int) -> None:
    """Compute the problems."""
    runner, computed = EdgeRunner(), Counter[tuple[str, str, str]]()
    for dtype, pd, args in stated(level, seed):
        which = pd.op.kind, pd.impl_name(), dtype
        drawn = dtype in ("f32", "case") or random.Random(f"{seed} {which}").random() < _SHARE_OF_TYPES
        if most and (computed[which] >= most or not drawn):
            continue
        computed[which] += 1
        print(f"{pd.impl_name()} {pd.op} {pd.attr}", flush=True)
        runner.run(pd, values(pd.op, pd.attr, seed) if args is None else args)
    print(f"{len(computed)} kinds, {computed.total()} problems")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
