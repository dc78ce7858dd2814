"""Compute on 8-bit integers what a graph dequantises, computes in float32 and quantises again.

Quantising is a reorder with a scale, and maybe a zero point, of dst; dequantising one with those of src. Convolutions and
products take both factors as they are stored, the addition and the bounds that follow, and requantise their result; so do
products of batches of computed matrices, if their result is quantised. Zero points of weights are multiplied by sums of rows.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from poolrt.cachestore.deferred_dataclass import dataclass, replace
from poolrt.workers.desc import LIMITS, Arg, MemoryDesc

from ..constant import Constant
from ..ir import GraphIR, Node, PostOpUse, QuantisationUse
from .quantising import are_in_rows
from .rewriter import Rewriter, only_reader

_PRODUCTS: Final = ("convolution", "matmul", "inner_product")
_BYTES: Final = ("u8", "s8")
_BOUNDS: Final = ("clip", "clip_v2")
#: Outputs of a group at least that integers have a kernel for; of 4 if all outputs are whole blocks of 16.
_LEAST_OUTPUTS: Final = 8
#: Rows and columns, each, of right matrices of a batch at least: packing smaller ones takes longer than floats.
_LEAST_SIZE: Final = 32


@dataclass(frozen=True, slots=True)
class _Stored:
    """A quantised tensor: the value that is stored, its scales (one for each index under ``mask``) and its zero point."""

    value: int
    scale: NDArray[np.float64]
    mask: int
    point: int

    @property
    def single(self) -> float:
        """The scale of a tensor that has one."""
        return float(self.scale.reshape(-1)[0])


@dataclass(frozen=True, slots=True)
class _Quantised:
    """The results of the nodes that quantise a value, the last of which is stored, and how."""

    results: tuple[int, ...]
    stored: _Stored


def fold_quantisation(ir: GraphIR) -> GraphIR:
    """Replace products, sums, functions, maximum pooling and views between quantised tensors, on the CPU."""
    if not any(desc.dtype in _BYTES for desc in ir.values.values()):
        return ir
    finder = _Finder(ir)
    found: dict[int, list[Node]] = {}
    for node in reversed(ir.nodes):
        if node.output not in finder.absorbed and (nodes := finder.fold(node)):
            found[nodes[-1].output] = nodes
    for node in ir.nodes:
        if node.output in found:
            finder.new.nodes += found[node.output]
        elif node.output not in finder.absorbed:
            finder.new.nodes.append(node)
    return _restore_constants(finder.new.finish() if found else ir)


def _restore_constants(ir: GraphIR) -> GraphIR:
    """Dequantise the constants that float32 operations are left with; the others have no readers."""
    finder, readers = _Finder(ir), ir.readers()
    new = Rewriter(ir)
    for node in ir.nodes:
        stored = finder.dequantised(node.output) if readers[node.output] else None
        constant = None if stored is None else ir.constants.get(stored.value)
        if stored is None or constant is None or node.output in ir.output_values():
            new.nodes.append(node)
            continue
        sizes = tuple(size if stored.mask >> axis & 1 else 1 for axis, size in enumerate(constant.dims))
        values = (constant.float64() - stored.point) * stored.scale.reshape(sizes)
        new.constants[node.output] = Constant(values.astype(np.float32))
    return new.finish()


class _Finder:
    """Finds what can be folded. ``absorbed`` are the results that no node computes any more."""

    def __init__(self, ir: GraphIR) -> None:
        self.new = Rewriter(ir)
        self.absorbed: set[int] = set()
        self._reshaped: dict[int, int] = {}
        self._signs: dict[int, int] = {}
        self._ir = ir
        self._producers = {node.output: node for node in ir.nodes}
        self._readers = ir.readers()
        self._leaving = ir.output_values()

    def fold(self, node: Node) -> list[Node]:
        """Return the node that takes a node's place, and views before it; nothing if the node stays."""
        if (node.engine or self._ir.engine) != "cpu" or node.implementation or node.quantisation or node.post_ops:
            return []
        if self._ir.values[node.output].dtype != "f32":
            return []
        if node.kind in _PRODUCTS:
            return self._product(node)
        if node.kind in ("sum", "binary"):
            return self._combination(node)
        if node.kind == "eltwise":
            return self._function(node)
        is_max = node.kind == "pooling" and node.attrs["algorithm"] == "max"
        return self._same(node) if is_max or node.kind in ("reshape", "transpose") else []

    def _product(self, node: Node) -> list[Node]:
        if not self._is_fast(node):
            return []
        src, weights = (self.dequantised(value) for value in node.inputs[:2])
        shape = self._ir.values[node.inputs[1]].dims
        ndims = len(shape)
        if src is None or weights is None or src.mask or not self._is_within(src):
            return []
        output = 1 << ndims - 1 if node.kind == "matmul" else 1
        batch = self._is_batch(node)
        shift = 0
        if (weights.point or self._dtype(weights.value) != "s8") and not batch:
            found = self._signed(node, weights)
            if found is None:
                return []
            weights, shift = found
        if weights.mask not in (0, output) or (batch and len(node.inputs) > 2):
            return []
        bias = None
        if len(node.inputs) > 2 and (bias := self._number(node.inputs[2])) is None:
            return []
        results, residual, post_ops, quantised = self._follow(node)
        if batch and quantised is None:
            return []
        before: list[Node] = []
        if shift:
            if any(use.kind == "binary" for use in post_ops):
                return []
            before, more = self._less_sums(node, src, weights, shift)
            post_ops = [more, *post_ops]
        # What is added as it is stored has a scale of its own: all is divided by that.
        unit = 1.0 if residual is None else residual.single
        values = [src.value, weights.value]
        if bias is None and residual is not None and residual.point:
            channels = shape[-1 if node.kind == "matmul" else 0]
            bias = np.zeros((1,) * (ndims - 1) + (channels,) if node.kind == "matmul" else (channels,))
        if bias is not None:
            moved = bias / unit - (0 if residual is None else residual.point)
            values.append(self.new.constant(Constant(moved.astype(np.float32))))
        quantisation = [
            *self._uses(Arg.SRC, src),
            *self._uses(Arg.WEIGHTS, replace(weights, scale=weights.scale / unit)),
        ]
        if quantised is not None:
            quantisation += self._uses(Arg.DST, replace(quantised, scale=quantised.scale / unit))
        elif unit != 1.0:
            quantisation += self._uses(Arg.DST, _Stored(-1, np.array([1.0 / unit]), 0, 0))
        chain = tuple(
            use if use.kind == "binary" else replace(use, alpha=use.alpha / unit, beta=use.beta / unit)
            for use in post_ops
        )
        self.absorbed.update(results[:-1])
        return [
            *before,
            replace(
                node, inputs=tuple(values), outputs=(results[-1],), post_ops=chain, quantisation=tuple(quantisation)
            ),
        ]

    def _signed(self, node: Node, weights: _Stored) -> tuple[_Stored, int] | None:
        """Return known weights of a product of matrices as s8 without a zero point, and what is to be subtracted from each."""
        constant = self._ir.constants.get(weights.value, self.new.constants.get(weights.value))
        if node.kind != "matmul" or constant is None or not -255 <= weights.point <= 255:
            return None
        numbers, point = constant.array, weights.point
        if constant.dtype == "u8":
            numbers, point = (numbers ^ np.uint8(128)).view(np.int8), point - 128
        if weights.value not in self._signs:
            self._signs[weights.value] = self.new.constant(Constant(numbers, None, "s8"))
        return replace(weights, value=self._signs[weights.value], point=0), point

    def _less_sums(self, node: Node, src: _Stored, weights: _Stored, shift: int) -> tuple[list[Node], PostOpUse]:
        """Return nodes for the sums of rows times a number that is to be subtracted from weights, and the step that adds them.

        (x - a)(w - b) = (x - a) w - b (x - a).
        """
        *rows, columns = self._ir.values[node.output].dims
        shape = self._ir.values[node.inputs[1]].dims
        ones = self.new.constant(Constant(np.ones((*shape[:-1], 1), np.int8), None, "s8"))
        sums, wide = self.new.value(MemoryDesc((*rows, 1), "f32")), self.new.value(MemoryDesc((*rows, columns), "f32"))
        uses = tuple(self._uses(Arg.SRC, src))
        scale = -shift * np.broadcast_to(weights.scale, (columns,)).reshape(*(1,) * len(rows), columns)
        factor = self.new.constant(Constant(scale.astype(np.float32)))
        product = replace(
            node, name=f"{node.name}/sums", inputs=(src.value, ones), outputs=(sums,), post_ops=(), quantisation=uses
        )
        times = Node("binary", f"{node.name}/shift", (sums, factor), (wide,), {"algorithm": "mul"})
        return [product, times], PostOpUse("binary", "add", value=wide)

    def _is_within(self, stored: _Stored) -> bool:
        """Return whether the type of a tensor holds its zero point, with which convolutions fill padding."""
        low, high = LIMITS[self._dtype(stored.value)]
        return low <= stored.point <= high

    def _dtype(self, value: int) -> str:
        """Return the data type of a value of the graph, or of a constant that is new."""
        new = self.new.constants.get(value)
        return self._ir.values[value].dtype if new is None else new.dtype

    def _is_fast(self, node: Node) -> bool:
        """Return whether integers have more than a reference implementation for the shape of a product, which takes less time."""
        dims = self._ir.values[node.inputs[1]].dims
        if node.kind != "convolution":
            return not self._is_batch(node) or min(dims[-2:]) >= _LEAST_SIZE
        groups = int(node.number("groups"))
        outputs = dims[0] // groups
        fills_blocks = outputs >= _LEAST_OUTPUTS or (outputs == 4 and dims[0] % 16 == 0)
        return len(dims) in (3, 4) and (groups == 1 or fills_blocks or self._is_depthwise(node))

    def _is_batch(self, node: Node) -> bool:
        """Return whether a product has several right matrices, which are packed each time."""
        return node.kind == "matmul" and math.prod(self._ir.values[node.inputs[1]].dims[:-2]) != 1

    def _is_depthwise(self, node: Node) -> bool:
        if node.kind != "convolution":
            return False
        src, weights = (self._ir.values[value].dims for value in node.inputs[:2])
        return int(node.number("groups")) == src[1] == weights[0]

    def _follow(self, node: Node) -> tuple[list[int], _Stored | None, list[PostOpUse], _Stored | None]:
        """Return the results from a node to the last that it absorbs, what is added as it is stored, post-ops, and the end."""
        results, residual, post_ops = [node.output], None, list[PostOpUse]()
        while (reader := self._reader(results[-1])) is not None:
            if not reader.quantisation and (bound := _bound(reader)) is not None:
                post_ops.append(bound)
            elif not (post_ops or self._is_depthwise(node)) and (other := self._added(reader, results[-1])) is not None:
                found = self.dequantised(other)
                if found is not None and (found.mask or found.single <= 0.0):
                    break
                value = other if found is None else found.value
                # A constant keeps its row-major layout; the operand of a post-op needs the layout of the result.
                if value in self._ir.constants or self._ir.values[value].dims != self._ir.values[results[-1]].dims:
                    break
                residual = found
                post_ops.append(PostOpUse("binary", "add", value=value))
            else:
                if (quantised := self._quantised(results[-1])) is not None:
                    return [*results, *quantised.results], residual, post_ops, quantised.stored
                break
            results.append(reader.output)
        return results, residual, post_ops, None

    def _combination(self, node: Node) -> list[Node]:
        """Add or multiply two quantised tensors as they are stored, if the result is quantised again."""
        stored = [self.dequantised(value) for value in self._operands(node)]
        if len(stored) != 2 or any(each is None or each.mask for each in stored):
            return []
        results, post_ops = [node.output], list[PostOpUse]()
        reader = self._reader(node.output)
        if reader is not None and not reader.quantisation and (bound := _bound(reader)) is not None:
            if bound.algorithm != "relu":
                return []
            results.append(reader.output)
            post_ops.append(bound)
        algorithm = str(node.attrs.get("algorithm", "add"))
        nodes = self._quantised_node(node, "binary", {"algorithm": algorithm}, stored, results, tuple(post_ops))
        return [*self._widened(nodes[0]), *nodes[1:]] if nodes else []

    def _widened(self, node: Node) -> list[Node]:
        """Return a combination, after a view of its second operand with as many dimensions as the result."""
        second, dims = node.inputs[1], self._ir.values[node.output].dims
        known = self._ir.values.get(second)
        constant = self._ir.constants.get(second, self.new.constants.get(second))
        sizes = constant.dims if known is None and constant is not None else self._ir.values[second].dims
        if len(sizes) == len(dims):
            return [node]
        wide = (*(1,) * (len(dims) - len(sizes)), *sizes)
        if constant is not None:
            return [replace(node, inputs=(node.inputs[0], self.new.constant(constant.reshape(wide))))]
        value = self.new.value(MemoryDesc(wide, self._dtype(second)))
        view = Node("reshape", f"{node.name}/wide", (second,), (value,), {"shape": wide, "axes": ()})
        return [view, replace(node, inputs=(node.inputs[0], value))]

    def _function(self, node: Node) -> list[Node]:
        """Apply a function to a quantised tensor as it is stored, if the result is quantised again."""
        src = self.dequantised(node.inputs[0])
        if src is None or src.mask:
            return []
        return self._quantised_node(node, node.kind, node.attrs, [src], [node.output], ())

    def _quantised_node(
        self,
        node: Node,
        kind: str,
        attrs: Mapping[str, Any],
        sources: Sequence[_Stored | None],
        results: list[int],
        post_ops: tuple[PostOpUse, ...],
    ) -> list[Node]:
        """Return a node between tensors as they are stored, nothing if the last of its results is not quantised."""
        quantised = self._quantised(results[-1])
        if quantised is None:
            return []
        *inner, last = quantised.results
        self.absorbed.update((*results, *inner))
        stored = [source for source in sources if source is not None]
        uses = [
            use for arg, source in zip((Arg.SRC, Arg.SRC_1), stored, strict=False) for use in self._uses(arg, source)
        ]
        uses += self._uses(Arg.DST, quantised.stored)
        return [
            replace(
                node, kind=kind, inputs=tuple(source.value for source in stored), outputs=(last,), attrs=attrs,
                post_ops=post_ops, quantisation=tuple(uses),
            )
        ]  # fmt: skip

    def _operands(self, node: Node) -> tuple[int, ...]:
        """Return the operands of an addition or multiplication, first one with all elements; nothing if there are others.

        The second may have numbers that differ along some dimensions, as divisors may.
        """
        if self._is_addition(node):
            return node.inputs
        if node.kind != "binary" or node.attrs["algorithm"] not in ("add", "mul") or node.quantisation:
            return ()
        first, second = node.inputs
        dims = self._ir.values[node.output].dims
        if self._ir.values[first].dims != dims:
            first, second = second, first
        sizes = self._ir.values[second].dims
        producer = self._producers.get(second)
        if producer is not None and producer.kind == "reshape":
            inner = self._ir.values[producer.inputs[0]].dims
            if sizes == (*(1,) * (len(sizes) - len(inner)), *inner):
                second = producer.inputs[0]
        wide = (*(1,) * (len(dims) - len(sizes)), *sizes)
        fits = are_in_rows(dims, [dim for dim, size in enumerate(wide) if size != 1])
        return (first, second) if self._ir.values[first].dims == dims and fits else ()

    def _same(self, node: Node) -> list[Node]:
        """Move or compare numbers as they are stored, if the result is quantised as the source was."""
        src, quantised = self.dequantised(node.inputs[0]), self._quantised(node.output)
        if quantised is None or src is None or src.mask:
            return []
        *inner, last = quantised.results
        same = (src.single, src.point) == (quantised.stored.single, quantised.stored.point)
        if not same or self._ir.values[src.value].dtype != self._ir.values[last].dtype:
            return []
        self.absorbed.update((node.output, *inner))
        return [replace(node, inputs=(src.value,), outputs=(last,))]

    def _reader(self, value: int) -> Node | None:
        """Return the node on the same engine that alone reads a value, and is not absorbed."""
        node = only_reader(value, self._readers, self._leaving)
        if node is None or node.output in self.absorbed or node.engine or node.implementation or node.post_ops:
            return None
        return node

    def _is_addition(self, node: Node) -> bool:
        is_add = (node.kind == "sum" and "scales" not in node.attrs) or (
            node.kind == "binary" and node.attrs["algorithm"] == "add"
        )
        values = self._ir.values
        return (
            is_add
            and not node.quantisation
            and len(node.inputs) == 2
            and all(values[value] == values[node.output] for value in node.inputs)
        )

    def _added(self, node: Node, value: int) -> int | None:
        """Return the other operand if ``node`` adds two tensors of one shape, one of them ``value``."""
        if not self._is_addition(node):
            return None
        first, second = node.inputs
        return second if first == value else first

    def dequantised(self, value: int) -> _Stored | None:
        """Return the quantised tensor that a value is dequantised from, None if it is not."""
        node = self._producers.get(value)
        if node is not None and node.kind == "reshape":
            return self._padded(node)
        if node is None or node.kind != "reorder" or node.post_ops or node.attrs["tag"]:
            return None
        if self._ir.values[node.inputs[0]].dtype not in _BYTES or self._ir.values[value].dtype != "f32":
            return None
        return self._quantisation(node, node.inputs[0], Arg.SRC)

    def _padded(self, view: Node) -> _Stored | None:
        """Return a quantised constant that has more dimensions of 1 in front, as a product of matrices in a batch reads it."""
        (source,), dims = view.inputs, self._ir.values[view.output].dims
        sizes = self._ir.values[source].dims
        added = len(dims) - len(sizes)
        stored = self.dequantised(source) if added > 0 and dims == (*(1,) * added, *sizes) else None
        constant = (
            None if stored is None else self._ir.constants.get(stored.value, self.new.constants.get(stored.value))
        )
        if stored is None or constant is None:
            return None
        if view.output not in self._reshaped:
            self._reshaped[view.output] = self.new.constant(constant.reshape(dims))
        return replace(stored, value=self._reshaped[view.output], mask=stored.mask << added)

    def _quantised(self, value: int) -> _Quantised | None:
        """Return how a value is quantised by the nodes that alone read it, None if it is not."""
        results: list[int] = []
        scale, point = np.ones(1), 0
        reader = self._reader(value)
        if reader is not None and (divisor := self._operand(reader, "div")) is not None:
            # ONNX's definition, spelled out: divide, round, add the zero point
            results.append(reader.output)
            scale = np.array([divisor])
            reader = self._reader(reader.output)
            if reader is None or reader.kind != "eltwise" or reader.attrs["algorithm"] != "round":
                return None
            results.append(reader.output)
            reader = self._reader(reader.output)
            if reader is not None and (added := self._operand(reader, "add")) is not None:
                if not (added.is_integer() and abs(added) <= LIMITS["u8"][1]):
                    return None
                results.append(reader.output)
                point = int(added)
                reader = self._reader(reader.output)
        if reader is None or reader.kind != "reorder" or reader.attrs["tag"]:
            return None
        if self._ir.values[reader.output].dtype not in _BYTES or bool(reader.quantisation) == bool(results):
            return None
        found = self._quantisation(reader, reader.output, Arg.DST) if not results else _Stored(-1, scale, 0, point)
        if found is None or found.mask or found.single <= 0.0:
            return None
        return _Quantised((*results, reader.output), found)

    def _operand(self, node: Node, algorithm: str) -> float | None:
        """Return the constant number that a binary node combines its first operand with."""
        if node.kind != "binary" or node.attrs["algorithm"] != algorithm or node.quantisation:
            return None
        constant = self._ir.constants.get(node.inputs[1])
        if (
            constant is None
            or constant.float64().size != 1
            or self._ir.values[node.inputs[0]] != self._ir.values[node.output]
        ):
            return None
        return float(constant.float64().reshape(-1)[0])

    def _quantisation(self, node: Node, value: int, arg: Arg) -> _Stored | None:
        """Return constant scales and a zero point of one argument, None if there are others."""
        numbers: dict[str, tuple[NDArray[np.float64], int]] = {}
        for use in node.quantisation:
            constant = self._ir.constants.get(use.value)
            if use.arg != arg or constant is None:
                return None
            numbers[use.kind] = constant.float64().reshape(-1), use.mask
        scale, mask = numbers.get("scales", (np.ones(1), 0))
        points, _ = numbers.get("zero_points", (np.zeros(1), 0))
        if not np.all(points == points[0]) or not np.all(np.isfinite(scale)):
            return None
        return _Stored(value, scale, mask, int(points[0]))

    def _number(self, value: int) -> NDArray[np.float64] | None:
        """Return a constant, dequantised if it is stored as s32."""
        if (constant := self._ir.constants.get(value)) is not None:
            return constant.float64()
        node = self._producers.get(value)
        if node is None or node.kind != "reorder" or node.post_ops or node.attrs["tag"]:
            return None
        constant = self._ir.constants.get(node.inputs[0])
        found = None if constant is None else self._quantisation(node, node.inputs[0], Arg.SRC)
        if constant is None or found is None or constant.dtype != "s32":
            return None
        sizes = tuple(size if found.mask >> axis & 1 else 1 for axis, size in enumerate(constant.dims))
        return (constant.float64() - found.point) * found.scale.reshape(sizes)

    def _uses(self, arg: Arg, stored: _Stored) -> Sequence[QuantisationUse]:
        """Return scales and zero point as new constants; a zero point of 0 is left out."""
        scale = self.new.constant(Constant(stored.scale.astype(np.float32)))
        found = [QuantisationUse("scales", int(arg), stored.mask, scale)]
        if stored.point:
            point = self.new.constant(Constant(np.array([stored.point], np.int32), None, "s32"))
            found.append(QuantisationUse("zero_points", int(arg), 0, point))
        return found


def _bound(node: Node) -> PostOpUse | None:
    """Return a relu or clip as a post-op."""
    if node.kind != "eltwise" or node.post_ops:
        return None
    algorithm, alpha, beta = str(node.attrs["algorithm"]), node.number("alpha"), node.number("beta")
    if algorithm in _BOUNDS or (algorithm == "relu" and alpha == 0.0):
        return PostOpUse("eltwise", algorithm, alpha, beta)
    return None
