"""Compute on the rows of a product what follows it element by element, before they become a batch again."""

from __future__ import annotations

import math

from poolrt.cachestore.deferred_dataclass import replace
from poolrt.workers.desc import MemoryDesc

from ..ir import GraphIR, Node
from .rewriter import Rewriter, only_reader

_PRODUCTS = frozenset({"matmul", "inner_product"})


def keep_rows_flat(ir: GraphIR) -> GraphIR:
    """Move the reshape that follows a product of matrices behind the functions and sums that read it alone.

    The product and what follows it are neighbours then, so that later passes find biases, activations and residuals.
    """
    return _Flattening(ir).run()


class _Flattening:
    def __init__(self, ir: GraphIR) -> None:
        self._ir = ir
        self._new = Rewriter(ir)
        self._readers = ir.readers()
        self._leaving = ir.output_values()
        self._products = {value for node in ir.nodes if node.kind in _PRODUCTS for value in node.outputs}
        #: The rows of a value, and the reshape that makes it of them; no node of the new graph does so yet.
        self._rows: dict[int, tuple[int, Node]] = {}

    def run(self) -> GraphIR:
        for node in self._ir.nodes:
            if self._is_batch_of_rows(node):
                self._rows[node.output] = node.inputs[0], node
            elif (source := self._followed(node)) is not None and (flat := self._flat(node, source)) is not None:
                dims, dtype = self._ir.values[node.output].dims, self._ir.values[node.output].dtype
                rows = self._new.value(MemoryDesc((math.prod(dims[:-1]), dims[-1]), dtype))
                self._new.nodes.append(replace(node, inputs=flat, outputs=(rows,)))
                self._rows[node.output] = rows, _reshape(f"{node.name}/batch", rows, node.output, dims)
                self._rows.pop(source)
            else:
                for value in node.uses():
                    self._make(value)
                self._new.nodes.append(node)
        for value in tuple(self._rows):
            if value in self._leaving:
                self._make(value)
        return self._new.finish()

    def _make(self, value: int) -> None:
        if value in self._rows:
            self._new.nodes.append(self._rows.pop(value)[1])

    def _is_batch_of_rows(self, node: Node) -> bool:
        if node.kind != "reshape" or node.inputs[0] not in self._products:
            return False
        source, result = self._ir.values[node.inputs[0]].dims, self._ir.values[node.output].dims
        alone = only_reader(node.inputs[0], self._readers, self._leaving) is not None
        return alone and len(source) == 2 and len(result) > 2 and source[-1] == result[-1]

    def _followed(self, node: Node) -> int | None:
        """Return the operand that a node reads alone, of the result's shape, and whose rows are known."""
        if node.kind not in ("eltwise", "binary", "sum") or node.post_ops or node.quantisation or len(node.inputs) > 2:
            return None
        for value in node.inputs:
            alone = only_reader(value, self._readers, self._leaving) is node
            if value in self._rows and alone and self._ir.values[value].dims == self._ir.values[node.output].dims:
                return value
        return None

    def _flat(self, node: Node, source: int) -> tuple[int, ...] | None:
        """Return the operands of a node as rows; None if one is broadcast over some rows only."""
        dims = self._ir.values[source].dims
        shapes = [self._flat_shape(self._ir.values[value].dims, dims) for value in node.inputs]
        operands = []
        for value, shape in zip(node.inputs, shapes, strict=True):
            if None in shapes or shape is None:
                return None
            if value in self._rows:
                operands.append(self._rows[value][0])
            elif value in self._new.constants:
                operands.append(self._new.constant(self._new.constants[value].reshape(shape)))
            else:
                operands.append(self._new.value(MemoryDesc(shape, self._ir.values[value].dtype)))
                self._new.nodes.append(_reshape(f"{node.name}/rows", value, operands[-1], shape))
        return tuple(operands)

    def _flat_shape(self, given: tuple[int, ...], batch: tuple[int, ...]) -> tuple[int, ...] | None:
        """Return the shape, as rows, of an operand of a function whose result has the shape ``batch``."""
        if given == batch:
            return math.prod(batch[:-1]), batch[-1]
        return (1, given[-1]) if math.prod(given[:-1]) == 1 else None


def _reshape(name: str, source: int, result: int, dims: tuple[int, ...]) -> Node:
    return Node("reshape", name, (source,), (result,), {"shape": dims, "axes": ()})
