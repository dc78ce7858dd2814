"""Run implementations on problems with values drawn in each run, and compare with float64 by benchdnn's rule."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from poolrt.workers.desc import PrimitiveAttr
from poolrt.workers.implementations.contract import REFERENCE
from poolrt.workers.implementations.primitive_desc import PrimitiveDesc, primitive_descs
from tests.references import assert_close, results, rounded
from tests.workers.implementations.reference.drawing import DOUBT, Runner

from .problems import Cell, problems, summand, threshold, values
from .table import offered

#: The share of a cell's results that must not be 0: an implementation that writes only zeros must not pass by chance.
LEAST_NONZERO: Final = 0.05
#: The same for softmax of whole numbers, where one result of a row at most is not 0.
LEAST_NONZERO_OF_SOFTMAX: Final = 0.02
#: The share of cells in other types than f32 that implementations of f32 compute in `make test`.
SHARE_OF_TYPES: Final = 1 / 96
#: The same for reference implementations, of which types other than f32 have another kernel each. Tests of their own draw
#: any types for each operation, too.
SHARE_OF_REFERENCES: Final = 1 / 32
#: What has no other results: gradients of a softmax of whole numbers, none of them negative, are never more than 0.
ALL_ZEROS: Final = tuple(Cell("softmax", "backward_data", dtype) for dtype in ("u64", "u32", "u16", "u8"))


@dataclass(slots=True)
class _Found:
    """What was computed of a cell: by implementation how many problems whose results are not all 0."""

    right: Counter[str] = field(default_factory=Counter)
    programs: set[object] = field(default_factory=set)
    #: Whether some were verified as another cell's.
    again: bool = False
    nonzero: int = 0
    elements: int = 0

    def is_trusted(self, cell: Cell) -> bool:
        """Return whether enough results are not 0."""
        of_softmax = cell.kind == "softmax" and cell.dtype.startswith(("s", "u"))
        least = LEAST_NONZERO_OF_SOFTMAX if of_softmax else LEAST_NONZERO
        return self.again or self.nonzero >= least * self.elements


class Verification:
    """Verifies implementations on one engine. ``seed`` is to be another one in each run; what fails names it.

    ``most`` limits how many problems of a cell an implementation computes, apart from those whose results are all 0;
    which ones, is drawn, and more are if too many results are 0. Without it, it computes all. Of a cell, a program on
    memories that were verified before is not computed again. That is so for most of training: values depend on the
    operation and its memories alone.

    With ``most``, implementations that f32 has too compute only some of the cells in other types, drawn for each seed: their
    loops are the same, their loads and stores have tests of their own. Of reference implementations these are more.
    """

    def __init__(self, runner: Runner, seed: int, most: int | None = None) -> None:
        self.seed = seed
        self.most = most
        self.target = runner.target
        self._runner = runner
        self._verified: set[object] = set()

    def verify(self, cell: Cell) -> set[str]:
        """Return the names of all implementations of a cell; raise AssertionError where one of them is wrong."""
        drawn = problems(cell)
        # Training and inference draw the same problems: most of their programs are equal, and one is computed once
        random.Random(f"{self.seed} {cell.kind} {cell.prop.partition('_')[0]} {cell.dtype}").shuffle(drawn)
        found, left_out = _Found(), self._left_out(cell)
        for most in dict.fromkeys((self.most, None)):
            for op in drawn:
                for pd in primitive_descs(op, PrimitiveAttr(), self.target):
                    if pd.impl_name() in left_out:
                        found.right[pd.impl_name()] += 1
                    elif most is None or found.right[pd.impl_name()] < most:
                        self._verify(cell, pd, found)
            if found.is_trusted(cell) or cell in ALL_ZEROS:
                break
        else:
            raise AssertionError(
                f"seed {self.seed}: only {found.nonzero} of {found.elements} results of {cell} are not 0"
            )
        return set(found.right)

    def _left_out(self, cell: Cell) -> set[str]:
        """Return the names of implementations that do not compute a cell."""
        if self.most is None or cell.dtype == "f32":
            return set()
        drawn = random.Random(f"{self.seed} types {cell}").random()
        names = {*offered(cell._replace(dtype="f32"), self.target), "nested:f32"}
        return {
            name for name in names if drawn >= (SHARE_OF_REFERENCES if name.startswith(REFERENCE) else SHARE_OF_TYPES)
        }

    def _verify(self, cell: Cell, pd: PrimitiveDesc, found: _Found) -> None:
        """Compute a program, unless it was computed before, and add it to what was found of a cell."""
        name = pd.impl_name()
        program = (cell.kind, name, pd.program(), tuple(pd.memories().items()))
        if program in found.programs:
            return
        found.programs.add(program)
        if program in self._verified:
            found.again = True
            found.right[name] += 1
            return
        wanted = self.compute(pd)
        nonzero = sum(int(np.count_nonzero(want)) for want in wanted)
        found.nonzero += nonzero
        found.elements += sum(want.size for want in wanted)
        found.right[name] += int(nonzero > 0)
        self._verified.add(program)

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
            added = summand(pd.op, args, name, arg)
            limit, doubt = threshold(pd.op, dtype, name), DOUBT.get(pd.op.kind, 0.0)
            assert_close(got[arg], want, dtype, limit, f"{problem} argument {int(arg)}", added, doubt)
        return [rounded(want, memories[arg].dtype) for arg, want in wanted.items()]
