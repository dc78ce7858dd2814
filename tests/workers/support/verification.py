"""Run implementations on problems with values drawn in each run, and compare with float64 by benchdnn's rule."""

from __future__ import annotations

import random
from collections import Counter
from typing import Final

import numpy as np
from numpy.typing import NDArray

from poolrt.workers.desc import Arg, PrimitiveAttr
from poolrt.workers.implementations.primitive_desc import PrimitiveDesc, primitive_descs
from tests.references import assert_close, results, rounded
from tests.workers.implementations.reference.drawing import DOUBT, Runner

from .problems import RECURRENT, Cell, problems, summand, threshold, values

#: The share of a cell's results that must not be 0: an implementation that writes only zeros must not pass by chance.
LEAST_NONZERO: Final = 0.05
#: What has no other results: gradients of a softmax of whole numbers, none of them negative, are never more than 0.
ALL_ZEROS: Final = (Cell("softmax", "backward_data", "u8"),)


class Verification:
    """Verifies implementations on one engine. ``seed`` is to be another one in each run; what fails names it.

    ``most`` limits how many problems of a cell an implementation computes, apart from those whose results are all 0; which
    ones, is drawn. Without it, it computes all. Of a cell, a program on memories that were verified before is not computed
    again. That is so for most of training: values depend on the operation and its memories alone.
    """

    def __init__(self, runner: Runner, seed: int, most: int | None = None) -> None:
        self.seed = seed
        self.most = most
        self.target = runner.target
        self._runner = runner
        self._verified: set[object] = set()

    def verify(self, cell: Cell) -> set[str]:
        """Return the names of all implementations of a cell; raise AssertionError where one of them is wrong."""
        right, again, nonzero, elements = Counter[str](), False, 0, 0
        drawn = problems(cell)
        random.Random(f"{self.seed} {cell}").shuffle(drawn)
        for op in drawn:
            for pd in primitive_descs(op, PrimitiveAttr(), self.target):
                name = pd.impl_name()
                if self.most is not None and right[name] >= self.most:
                    continue
                program = (cell.kind, name, pd.program(), tuple(pd.memories().items()))
                known, found = program in self._verified, 0
                if not known:
                    wanted = self.compute(pd)
                    found = sum(int(np.count_nonzero(want)) for want in wanted)
                    nonzero += found
                    elements += sum(want.size for want in wanted)
                    self._verified.add(program)
                again = again or known
                right[name] += int(known or found > 0)
        trusted = again or cell in ALL_ZEROS or nonzero >= LEAST_NONZERO * elements
        assert trusted, f"seed {self.seed}: only {nonzero} of {elements} results of {cell} are not 0"
        return set(right)

    def compute(self, pd: PrimitiveDesc) -> list[NDArray[np.float64]]:
        """Return what an implementation must write and has written; raise AssertionError where that is something else."""
        args = values(pd.op, pd.attr, self.seed)
        wanted, memories, name = results(pd.op, pd.attr, args), pd.memories(), pd.impl_name()
        problem = f"seed {self.seed}: {name} {pd.op} {pd.attr}"
        try:
            got = self._runner.results(pd, args)
        except AssertionError as error:
            raise AssertionError(f"{problem}: {error}") from error
        assert set(got) == {int(arg) for arg in wanted}, problem
        for arg, want in wanted.items():
            dtype = memories[arg].dtype
            added = summand(pd.op, args) if arg == Arg.DST or pd.op.kind in RECURRENT else 0.0
            limit, doubt = threshold(pd.op.kind, dtype, name), DOUBT.get(pd.op.kind, 0.0)
            assert_close(got[arg], want, dtype, limit, f"{problem} argument {int(arg)}", added, doubt)
        return [rounded(want, memories[arg].dtype) for arg, want in wanted.items()]
