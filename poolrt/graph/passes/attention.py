"""Recognise attention in graphs that spell it out: a product, a scale, a mask, a softmax and another product."""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from poolrt.cachestore.deferred_dataclass import dataclass, replace
from poolrt.workers.desc import MemoryDesc

from ..ir import GraphIR, Node
from .rewriter import Rewriter, only_reader

#: The rank of attention's tensors; matrices with fewer batch dimensions get more.
_RANK = 4
#: The largest depth that an implementation made for speed has.
_DEEPEST = 2048
#: Types of all tensors of a match; those of f16 are computed in f32 between the first product and the result.
_TYPES: Final = ("f32", "f16")
#: Masks that are added to the scores one after the other, such as a bias of positions and one of padding.
_MOST_MASKS = 3


@dataclass(frozen=True, slots=True)
class _Match:
    """The operands of a recognised attention, its scale, and the results of the nodes that it replaces."""

    query: int
    transposed_key: int
    value: int
    masks: tuple[int, ...]
    scale: float
    replaced: tuple[int, ...]

    @property
    def operands(self) -> tuple[int, ...]:
        """The values that the attention reads."""
        return self.query, self.transposed_key, self.value, *self.masks


def use_attention(ir: GraphIR) -> GraphIR:
    """Replace softmax(scale * query key^T + mask) value by one node, where no other node reads a step between.

    Query and key may be scaled before they are multiplied, and weights that are NaN may be replaced by 0, as PyTorch exports
    attention. Several masks are added up first, once for all nodes that read the same ones. Scores of float16 stay in float32.
    Limitations: a row of scores that are all minus infinity gives 0 then, and not NaN; one with a score of NaN gives NaN, even
    if a graph replaces it.
    """
    producers = {node.output: node for node in ir.nodes}
    finder = _Finder(ir, producers)
    found: dict[int, _Match] = {}
    replaced: set[int] = set()
    for node in ir.nodes:
        match = finder.match(node)
        # In a chain of products and softmaxes the second product of one attention could be the first one of the next.
        if match is not None and replaced.isdisjoint(match.operands) and found.keys().isdisjoint(match.replaced):
            found[node.output] = match
            replaced.update(match.replaced)
    if not found:
        return ir
    new = Rewriter(ir)
    sums: dict[tuple[int, ...], int] = {}
    for node in ir.nodes:
        if node.output in replaced:
            continue
        match = found.get(node.output)
        if match is None:
            new.nodes.append(node)
        else:
            _append(new, node, match, ir, sums)
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
        if (
            self._type(product) not in _TYPES
            or not self._is_product(product)
            or (product.engine or ir.engine) != "cpu"
            or product.implementation
        ):
            return None
        weights, value = product.inputs
        replaced = self._guard(weights, product)
        softmax = self._producers.get(replaced[0]) if replaced else self._before(weights, product)
        if softmax is None or softmax.kind != "softmax" or softmax.attrs["algorithm"] != "accurate":
            return None
        if not self._is_plain(softmax) or not _is_beside(softmax, product):
            return None
        scores = ir.values[weights].dims
        if softmax.attrs["axis"] != len(scores) - 1:
            return None
        replaced, current = [*replaced, weights], softmax.inputs[0]
        masks: list[int] = []
        scale = 1.0
        while (node := self._before(current, product)) is not None and not self._is_product(node):
            replaced.append(current)
            factor = self._factor(node)
            if factor is not None:
                scale, current = scale * factor[1], factor[0]
            elif scale == 1.0 and (added := self._added(node, scores)) is not None:
                current = added[0]
                masks.append(added[1])
            else:
                return None
        if node is None:
            return None
        replaced.append(current)
        operands = []
        for operand in node.inputs:
            while (before := self._before(operand, product)) is not None and (
                factor := self._factor(before)
            ) is not None:
                replaced.append(operand)
                operand, scale = factor[0], scale * factor[1]
            operands.append(operand)
        match = _Match(operands[0], operands[1], value, tuple(masks), scale, tuple(replaced))
        return match if math.isfinite(scale) and self._fits(match, scores) else None

    def _guard(self, weights: int, product: Node) -> list[int]:
        """Return the values that a choice of 0 for weights that are NaN computes, the weights given to it first; else []."""
        choice = self._producers.get(weights)
        if choice is None or choice.kind != "select" or only_reader(weights, self._readers, self._leaving) is None:
            return []
        condition, zero, given = choice.inputs
        test, constant = self._producers.get(condition), self._ir.constants.get(zero)
        if test is None or test.kind != "binary" or test.attrs["algorithm"] != "ne" or test.inputs != (given, given):
            return []
        if constant is None or math.prod(constant.dims) != 1 or constant.float64().any():
            return []
        for node in (choice, test):
            if node.post_ops or node.quantisation or not _is_beside(node, product):
                return []
        alone = given not in self._leaving and all(node in (choice, test) for node in self._readers[given])
        alone = alone and only_reader(condition, self._readers, self._leaving) is choice
        same = self._ir.values[given] == self._ir.values[weights]
        return [given, condition] if alone and same else []

    def _before(self, value: int, last: Node) -> Node | None:
        """Return the node that computes a value for one reader, on the engine of ``last`` and in its data type."""
        node = self._producers.get(value)
        alone = only_reader(value, self._readers, self._leaving)
        if node is None or alone is None or not self._is_plain(node):
            return None
        return node if _is_beside(node, last) and self._type(node) == self._type(last) else None

    def _is_plain(self, node: Node) -> bool:
        types = {self._ir.values[value].dtype for value in (*node.inputs, *node.outputs)}
        return len(types) == 1 and not (node.post_ops or node.quantisation)

    def _type(self, node: Node) -> str:
        return self._ir.values[node.output].dtype

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

    def _added(self, node: Node, scores: tuple[int, ...], most: int = _MOST_MASKS) -> tuple[int, int] | None:
        """Return the scores, which may have ``most - 1`` masks already, and the mask that a node adds up."""
        is_sum = node.kind == "sum" and len(node.inputs) == 2 and "scales" not in node.attrs
        if not most or (not is_sum and (node.kind != "binary" or node.attrs["algorithm"] != "add")):
            return None
        # Of two tensors of scores, the mask is the one that no product computes.
        for given, mask in (node.inputs, node.inputs[::-1]):
            dims = self._ir.values[mask].dims
            if (
                self._ir.values[given].dims == scores
                and dims[-1] == scores[-1]
                and self._is_computed(given, scores, most)
            ):
                return given, mask
        return None

    def _is_computed(self, value: int, scores: tuple[int, ...], most: int) -> bool:
        """Return whether a product computes a value, multiplied by constants or not, and then masked or not."""
        node = self._producers.get(value)
        if node is not None and self._is_plain(node) and self._added(node, scores, most - 1) is not None:
            return True
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


def _is_beside(node: Node, other: Node) -> bool:
    """Return whether two nodes are computed on one engine, by the implementation that is named for both."""
    return (node.engine, node.implementation) == (other.engine, other.implementation)


def _append(new: Rewriter, product: Node, match: _Match, ir: GraphIR, sums: dict[tuple[int, ...], int]) -> None:
    """Add the node that replaces a match, the views of its operands, and the sum of its masks unless ``sums`` has it."""

    dtype = ir.values[product.output].dtype

    def view(kind: str, what: str, value: int, dims: tuple[int, ...], perm: tuple[int, ...] = ()) -> int:
        result = new.value(MemoryDesc(dims, dtype))
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
    if match.masks in sums:
        operands.append(sums[match.masks])
    elif match.masks:
        total, *others = (
            padded(f"mask{number or ''}", mask, ir.values[mask].dims) for number, mask in enumerate(match.masks)
        )
        for number, mask in enumerate(others):
            size = np.broadcast_shapes(new.dims(total), new.dims(mask))
            result = new.value(MemoryDesc(size, dtype))
            added = Node(
                "binary", f"{product.name}/masks{number or ''}", (total, mask), (result,), {"algorithm": "add"}
            )
            new.nodes.append(replace(added, engine=product.engine))
            total = result
        sums[match.masks] = total
        operands.append(total)
    dims = ir.values[product.output].dims
    attention = replace(
        product, kind="attention", inputs=tuple(operands), attrs={"scale": match.scale, "causal": False}
    )
    if len(dims) == _RANK:
        new.nodes.append(attention)
        return
    result = new.value(MemoryDesc((*(1,) * (_RANK - len(dims)), *dims), dtype))
    new.nodes.append(replace(attention, outputs=(result,)))
    new.nodes.append(
        Node("reshape", f"{product.name}/dst", (result,), product.outputs, {"shape": dims, "axes": ()})
    )  # fmt: skip
