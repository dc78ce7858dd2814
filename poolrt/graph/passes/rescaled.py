"""Give products of integers the scale that their sums are multiplied by.

Models that are quantised while they run multiply bytes to int32, convert the sums to float32 and multiply these by both
scales. Integer kernels do all of it in registers.
"""

from __future__ import annotations

from typing import Final

from poolrt.cachestore.deferred_dataclass import replace
from poolrt.workers.desc import Arg, MemoryDesc

from ..constant import Constant
from ..ir import GraphIR, Node, QuantisationUse
from .rewriter import Rewriter, only_reader

_PRODUCTS: Final = ("convolution", "matmul")


def rescale_products(ir: GraphIR) -> GraphIR:
    """Replace conversions of integer sums and multiplications by the scales of products, on the CPU."""
    finder = _Finder(ir)
    for node in ir.nodes:
        finder.fold(node)
    for node in ir.nodes:
        if node.output in finder.found:
            finder.new.nodes += finder.found[node.output]
        elif node.output not in finder.absorbed:
            finder.new.nodes.append(node)
    return finder.new.finish() if finder.found else ir


class _Finder:
    """Finds products to rescale: ``found`` are the nodes for a result, ``absorbed`` the results that no node computes."""

    def __init__(self, ir: GraphIR) -> None:
        self.new = Rewriter(ir)
        self.found: dict[int, list[Node]] = {}
        self.absorbed: set[int] = set()
        self._ir = ir
        self._readers = ir.readers()
        self._leaving = ir.output_values()

    def fold(self, node: Node) -> None:
        """Replace the last node of a chain that begins with a product of bytes."""
        types = [self._ir.values[value].dtype for value in (*node.inputs, node.output)]
        if node.kind not in _PRODUCTS or types[0] not in ("u8", "s8") or types[1:] != ["s8", "s32"]:
            return
        if (node.engine or self._ir.engine) != "cpu" or node.implementation or node.post_ops:
            return
        # A zero point of the sums would be added after they are scaled.
        if any(use.kind == "scales" or use.arg == Arg.DST for use in node.quantisation):
            return
        converted = self._reader(node.output)
        if converted is None or converted.kind != "reorder" or converted.quantisation or converted.attrs["tag"]:
            return
        scaled = self._reader(converted.output)
        if self._ir.values[converted.output].dtype != "f32" or scaled is None or scaled.quantisation:
            return
        uses = self._scale(node, scaled, converted.output)
        if uses is None:
            return
        results = [node.output, converted.output, scaled.output]
        views, quantisation = uses
        inputs = node.inputs
        added = self._reader(scaled.output)
        bias = None if added is None else self._bias(node, added, scaled.output)
        if added is not None and bias is not None:
            inputs = (*inputs, self.new.constant(bias))
            results.append(added.output)
        self.absorbed.update(results[:-1])
        product = replace(node, inputs=inputs, outputs=(results[-1],), quantisation=(*node.quantisation, quantisation))
        self.found[results[-1]] = [*views, product]

    def _scale(self, product: Node, scaled: Node, sums: int) -> tuple[list[Node], QuantisationUse] | None:
        """Return the scale that ``scaled`` multiplies sums by, as a row, and the view that makes it one."""
        values = self._ir.values
        if scaled.kind != "binary" or scaled.attrs["algorithm"] != "mul" or values[scaled.output] != values[sums]:
            return None
        if values[scaled.inputs[0]].dtype != "f32" or scaled.inputs.count(sums) != 1:
            return None
        (factor,) = (value for value in scaled.inputs if value != sums)
        desc, mask, arg = values[factor], 0, Arg.SRC
        channels = values[sums].ndims - 1 if product.kind == "matmul" else 1
        if desc.dtype != "f32":
            return None
        if desc.elements != 1:
            sizes = (1,) * (values[sums].ndims - desc.ndims) + desc.dims
            if any(size != 1 for axis, size in enumerate(sizes) if axis != channels):
                return None
            rank = values[product.inputs[1]].ndims
            arg, mask = Arg.WEIGHTS, 1 << (rank - 1 if product.kind == "matmul" else 0)
        if factor in self._ir.constants:
            row = self.new.constant(self._ir.constants[factor].reshape((desc.elements,)))
            return [], QuantisationUse("scales", int(arg), mask, row)
        row = self.new.value(MemoryDesc((desc.elements,), "f32"))
        attrs = {"shape": (desc.elements,), "axes": ()}
        view = Node("reshape", f"{scaled.name}/row", (factor,), (row,), attrs)
        return [view], QuantisationUse("scales", int(arg), mask, row)

    def _bias(self, product: Node, added: Node, scaled: int) -> Constant | None:
        """Return the constant row that ``added`` adds to a product, in the shape of its bias."""
        values = self._ir.values
        if added.kind != "binary" or added.attrs["algorithm"] != "add" or added.quantisation or added.post_ops:
            return None
        if values[added.output] != values[scaled] or added.inputs.count(scaled) != 1 or len(product.inputs) != 2:
            return None
        (value,) = (each for each in added.inputs if each != scaled)
        constant, rank = self._ir.constants.get(value), values[scaled].ndims
        channels = rank - 1 if product.kind == "matmul" else 1
        wide = None if constant is None else (1,) * (rank - len(constant.dims)) + constant.dims
        if constant is None or wide is None or constant.dtype != "f32":
            return None
        if any(size != (values[scaled].dims[axis] if axis == channels else 1) for axis, size in enumerate(wide)):
            return None
        count = values[scaled].dims[channels]
        return constant.reshape((*(1,) * (rank - 1), count) if product.kind == "matmul" else (count,))

    def _reader(self, value: int) -> Node | None:
        """Return the node on the same engine that alone reads a value."""
        node = only_reader(value, self._readers, self._leaving)
        if node is None or node.engine or node.implementation or node.post_ops:
            return None
        return node
