"""Leaves of decision trees, of any data types and layouts."""

from __future__ import annotations

from ...desc import Arg, PrimitiveAttr, TreeLeaves
from ...engines.target import Target
from ..program import Program
from .implementation import ReferenceImplementation
from .tables import Tables


class ReferenceTreeLeaves(ReferenceImplementation[TreeLeaves]):
    """One row in one tree after another."""

    name = "ref:tree_leaves"

    def reject(self, op: TreeLeaves, attr: PrimitiveAttr, target: Target) -> str | None:
        if attr.post_ops or not attr.is_plain:
            return "post-ops, scales and zero points are not supported"
        return None

    def program(self, op: TreeLeaves, attr: PrimitiveAttr, target: Target) -> Program:
        if op.dst.elements == 0:
            return Program((), ())
        tables = Tables(attr)
        records = [tables.tensor(arg, md) for arg, md in op.memories().items()]
        args = (*records, ("i", op.levels))
        return tables.program("tree_leaves", args, op.dst.elements, [(int(Arg.DST), op.dst)])
