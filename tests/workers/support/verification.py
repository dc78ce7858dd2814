"""Run every implementation that takes a problem of a cell, and compare with float64 by benchdnn's rule."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from poolrt.workers.desc import PrimitiveAttr
from poolrt.workers.primitives.primitive_desc import PrimitiveDesc, primitive_descs
from tests.references import assert_close, results
from tests.workers.primitives.reference.drawing import Runner

from .problems import Cell, problems, threshold, values

Arrays = dict[int, NDArray[Any]]


class Verification:
    """Verifies cells on one engine. A program on memories that were verified before is not computed again.

    That is so for most of training: values depend on the operation and its memories alone.
    """

    def __init__(self, runner: Runner) -> None:
        self.target = runner.target
        self._runner = runner
        self._verified: set[object] = set()

    def verify(self, cell: Cell) -> set[str]:
        """Return the names of all implementations of a cell; raise AssertionError where one of them is wrong."""
        right = set()
        for op in problems(cell):
            args: Arrays = {}
            wanted: Arrays = {}
            for pd in primitive_descs(op, PrimitiveAttr(), self.target):
                program = (cell.kind, pd.impl_name(), pd.program(), tuple(pd.memories().items()))
                if program not in self._verified:
                    if not wanted:
                        args = values(pd.op)
                        wanted = results(pd.op, PrimitiveAttr(), args)
                    self._compute(pd, args, wanted)
                    self._verified.add(program)
                right.add(pd.impl_name())
        return right

    def _compute(self, pd: PrimitiveDesc, args: Arrays, wanted: Arrays) -> None:
        got, memories, name = self._runner.results(pd, args), pd.memories(), pd.impl_name()
        assert set(got) == {int(arg) for arg in wanted}, f"{name} {pd.op}"
        for arg, want in wanted.items():
            dtype = memories[arg].dtype
            limit = threshold(pd.op.kind, dtype, name)
            assert_close(got[arg], want, dtype, limit, f"{name} {pd.op} argument {int(arg)}")
