"""Recognise attention in graphs that spell it out: a product, a scale, a mask, a softmax and another product."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from poolrt.workers.desc import MemoryDesc

from ..ir import GraphIR, Node
from .rewriter import Rewriter, only_reader

#: The rank of attention's tensors; matrices with fewer batch dimensions get more.
_RANK = 4
#: The largest depth that an implementation made for speed has.
_DEEPEST = 2048


@dataclass(frozen=True, slots=True)
class _Match:
    """The operands of a recognised attention, its scale, and the results of the nodes that it replaces."""

    query: int
    transposed_key: int
    value: int
    mask: int | None
    scale: float
    replaced: tuple[int, ...]


def use_attention(ir: GraphIR) -> GraphIR:
    """Replace softmax(scale * query key^T + mask) value by one node, where no other node reads a step between.

    Limitation: a row of scores that are all minus infinity gives 0 then, and not NaN.
    """
    producers = {node.output: node for node in ir.nodes}
    finder = _Finder(ir, producers)
    found = {node.output: match for node in ir.nodes if (match := finder.match(node)) is not None}
    if not found:
        return ir
    replaced = {value for match in found.values() for value in match.replaced}
    new = Rewriter(ir)
    for node in ir.nodes:
        if node.output in replaced:
            continue
        match = found.get(node.output)
        if match is None:
            new.nodes.append(node)
        else:
            _append(new, node, match, ir)
    return new.finish()


class _Finder:
    def __init__(self, ir: GraphIR, producers: dict[int, Node]) -> None:
        self._ir = ir
        self._producers = producers
        self._readers = ir.readers()
        self._leaving = ir.output_values()

    def match(self, product: Node) -> _Match | None:
        """Return the attention that ends with a product, None if there is none."""
        ir = self._ir
        if not self._is_product(product) or (product.engine or ir.engine) != "cpu" or product.implementation:
            return None
        weights, value = product.inputs
        softmax = self._before(weights, product)
        if softmax is None or softmax.kind != "softmax" or softmax.attrs["algorithm"] != "accurate":
            return None
        scores = ir.values[weights].dims
        if softmax.attrs["axis"] != len(scores) - 1:
            return None
        replaced, current = [weights], softmax.inputs[0]
        mask, scale = None, 1.0
        while (node := self._before(current, product)) is not None and not self._is_product(node):
            replaced.append(current)
            factor = self._factor(node)
            if factor is not None:
                scale, current = scale * factor[1], factor[0]
            elif mask is None and scale == 1.0 and (added := self._added(node, scores)) is not None:
                current, mask = added
            else:
                return None
        if node is None or not math.isfinite(scale):
            return None
        query, transposed = node.inputs
        match = _Match(query, transposed, value, mask, scale, (*replaced, current))
        return match if self._fits(match, scores) else None

    def _before(self, value: int, last: Node) -> Node | None:
        """Return the node that computes a value for one reader, on the engine of ``last`` and in float32."""
        node = self._producers.get(value)
        alone = only_reader(value, self._readers, self._leaving)
        if node is None or alone is None or not self._is_plain(node):
            return None
        return node if (node.engine, node.implementation) == (last.engine, last.implementation) else None

    def _is_plain(self, node: Node) -> bool:
        of_float32 = all(self._ir.values[value].dtype == "f32" for value in (*node.inputs, *node.outputs))
        return of_float32 and not (node.post_ops or node.quantisation)

    def _is_product(self, node: Node) -> bool:
        return node.kind == "matmul" and len(node.inputs) == 2 and self._is_plain(node)

    def _factor(self, node: Node) -> tuple[int, float] | None:
        """Return what a node multiplies by a constant, and that."""
        if node.kind == "eltwise" and node.attrs["algorithm"] == "linear" and node.number("beta") == 0.0:
            return node.inputs[0], node.number("alpha")
        if node.kind != "binary" or node.attrs["algorithm"] not in ("mul", "div"):
            return None
        first, second = node.inputs
        if node.attrs["algorithm"] == "mul" and first in self._ir.constants:
            first, second = second, first
        constant = self._ir.constants.get(second)
        if constant is None or math.prod(constant.dims) != 1 or self._ir.values[first] != self._ir.values[node.output]:
            return None
        number = float(constant.float64().reshape(-1)[0])
        if node.attrs["algorithm"] == "mul":
            return first, number
        return (first, 1.0 / number) if number else None

    def _added(self, node: Node, scores: tuple[int, ...]) -> tuple[int, int] | None:
        """Return the scores and the mask that a node adds up."""
        is_sum = node.kind == "sum" and len(node.inputs) == 2 and "scales" not in node.attrs
        if not is_sum and (node.kind != "binary" or node.attrs["algorithm"] != "add"):
            return None
        # Of two tensors of scores, the mask is the one that no product computes.
        for given, mask in (node.inputs, node.inputs[::-1]):
            dims = self._ir.values[mask].dims
            if self._ir.values[given].dims == scores and dims[-1] == scores[-1] and self._is_computed(given):
                return given, mask
        return None

    def _is_computed(self, value: int) -> bool:
        """Return whether a product computes a value, multiplied by constants or not."""
        node = self._producers.get(value)
        while node is not None and (factor := self._factor(node)) is not None:
            node = self._producers.get(factor[0])
        return node is not None and self._is_product(node)

    def _fits(self, match: _Match, scores: tuple[int, ...]) -> bool:
        """Return whether all shapes are those of attention: heads share keys and values if there is one of each."""
        query, key, value = (self._ir.values[each].dims for each in (match.query, match.transposed_key, match.value))
        *batch, _, _ = scores
        shared = len(batch) > 1 and list(key[:-2]) == [*batch[:-1], 1]
        return (
            len(scores) <= _RANK
            and list(query[:-2]) == batch
            and (list(key[:-2]) == batch or shared)
            and key[:-2] == value[:-2]
            and max(query[-1], value[-1]) <= _DEEPEST
        )


def _append(new: Rewriter, product: Node, match: _Match, ir: GraphIR) -> None:
    """Add the node that replaces a match, and the views of its operands."""

    def view(kind: str, what: str, value: int, dims: tuple[int, ...], perm: tuple[int, ...] = ()) -> int:
        result = new.value(MemoryDesc(dims, "f32"))
        attrs = {"perm": perm} if kind == "transpose" else {"shape": dims, "axes": ()}
        new.nodes.append(Node(kind, f"{product.name}/{what}", (value,), (result,), attrs))
        return result

    def padded(what: str, value: int, dims: tuple[int, ...]) -> int:
        return value if len(dims) == _RANK else view("reshape", what, value, (*(1,) * (_RANK - len(dims)), *dims))

    transposed = ir.values[match.transposed_key].dims
    rank = len(transposed)
    turned = (*transposed[:-2], transposed[-1], transposed[-2])
    key = view("transpose", "key", match.transposed_key, turned, (*range(rank - 2), rank - 1, rank - 2))
    operands = [
        padded("query", match.query, ir.values[match.query].dims),
        padded("keys", key, turned),
        padded("value", match.value, ir.values[match.value].dims),
    ]
    if match.mask is not None:
        operands.append(padded("mask", match.mask, ir.values[match.mask].dims))
    dims = ir.values[product.output].dims
    attention = replace(
        product, kind="attention", inputs=tuple(operands), attrs={"scale": match.scale, "causal": False}
    )
    if len(dims) == _RANK:
        new.nodes.append(attention)
        return
    result = new.value(MemoryDesc((*(1,) * (_RANK - len(dims)), *dims), "f32"))
    new.nodes.append(replace(attention, outputs=(result,)))
    new.nodes.append(
        Node("reshape", f"{product.name}/dst", (result,), product.outputs, {"shape": dims, "axes": ()})
    )  # fmt: skip
