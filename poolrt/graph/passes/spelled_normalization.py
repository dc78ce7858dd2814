"""Recognise layer normalization and RMS normalization in graphs that spell them out, as exporters do."""

from __future__ import annotations

import math

from poolrt.cachestore.deferred_dataclass import dataclass, replace

from ..ir import GraphIR, Node
from .rewriter import Rewriter, only_reader


@dataclass(frozen=True, slots=True)
class _Match:
    """What is normalised, its last node, whether a mean is subtracted, constants, and the results of all other nodes."""

    source: int
    last: Node
    centered: bool
    epsilon: float
    scale: int | None
    shift: int | None
    replaced: tuple[int, ...]


def use_normalization(ir: GraphIR) -> GraphIR:
    """Replace x / sqrt(mean(x^2) + epsilon) along the last dimension by one node, with constant scale and shift if they follow.

    It is a layer normalization if x is itself a difference from its mean.
    """
    finder = _Finder(ir)
    found = {match.last.output: match for node in ir.nodes if (match := finder.match(node)) is not None}
    if not found:
        return ir
    replaced = {value for match in found.values() for value in match.replaced}
    new = Rewriter(ir)
    for node in ir.nodes:
        match = found.get(node.output)
        if match is not None:
            flags = () if match.centered else ("rms_norm",)
            inputs = [match.source]
            for constant, flag in ((match.scale, "use_scale"), (match.shift, "use_shift")):
                if constant is not None:
                    flags = (*flags, flag)
                    inputs.append(new.constant(ir.constants[constant].reshape((ir.values[node.output].dims[-1],))))
            attrs = {"epsilon": match.epsilon, "flags": flags}
            new.nodes.append(replace(node, kind="layer_normalization", inputs=tuple(inputs), attrs=attrs))
        elif node.output not in replaced:
            new.nodes.append(node)
    return new.finish()


class _Finder:
    def __init__(self, ir: GraphIR) -> None:
        self._ir = ir
        self._producers = {value: node for node in ir.nodes for value in node.outputs}
        self._readers = ir.readers()
        self._leaving = ir.output_values()

    def match(self, quotient: Node) -> _Match | None:
        """Return the normalization whose division is ``quotient``, None if there is none."""
        found = self._divided(quotient)
        if found is None:
            return None
        source, root, replaced = found
        dims = self._ir.values[source].dims
        total = self._before(root, quotient, "eltwise", "sqrt")
        if total is None or self._ir.values[quotient.output].dims != dims:
            return None
        mean, epsilon = self._plus_number(total.inputs[0], quotient)
        squares = self._mean_of(mean, quotient)
        if squares is None or not 0.0 <= epsilon < math.inf:
            return None
        square = self._before(squares, quotient, "eltwise", "square") or self._before(
            squares, quotient, "binary", "mul"
        )
        if square is None or set(square.inputs) != {source}:
            return None
        replaced += [root, total.inputs[0], mean, squares]
        centered = self._centered(source, square, quotient)
        if centered is not None:
            replaced += [source, centered[1]]
        last, scale, shift = quotient, None, None
        following = self._constant_after(last, "mul", dims)
        if following is not None:
            replaced.append(last.output)
            last, scale = following
        following = self._constant_after(last, "add", dims) if centered is not None else None
        if following is not None:
            replaced.append(last.output)
            last, shift = following
        given = source if centered is None else centered[0]
        return _Match(given, last, centered is not None, epsilon, scale, shift, tuple(dict.fromkeys(replaced)))

    def _divided(self, node: Node) -> tuple[int, int, list[int]] | None:
        """Return what is divided, by what, and what computes the reciprocal if the quotient is a product with that."""
        if node.kind != "binary" or not self._is_plain(node):
            return None
        if node.attrs["algorithm"] == "div":
            return node.inputs[0], node.inputs[1], []
        if node.attrs["algorithm"] == "mul":
            for source, factor in (node.inputs, node.inputs[::-1]):
                reciprocal = self._before(factor, node, "binary", "div")
                if reciprocal is not None and self._number(reciprocal.inputs[0]) == 1.0:
                    return source, reciprocal.inputs[1], [factor]
        return None

    def _plus_number(self, value: int, last: Node) -> tuple[int, float]:
        """Return what a number is added to, and that; a number that is not finite if there is none."""
        node = self._before(value, last, "eltwise", "linear")
        if node is not None and node.number("alpha") == 1.0:
            return node.inputs[0], node.number("beta")
        node = self._before(value, last, "binary", "add")
        for given, number in () if node is None else (node.inputs, node.inputs[::-1]):
            found = self._number(number)
            if found is not None:
                return given, found
        return value, math.inf

    def _mean_of(self, value: int, last: Node) -> int | None:
        """Return the value whose mean along the last dimension another is."""
        node = self._before(value, last, "reduction", "mean")
        if node is None:
            node = self._before(value, last, "pooling", "avg_include_padding")
            if node is None or any((*node.integers("padding_l"), *node.integers("padding_r"))):
                return None
            kernel = node.integers("kernel")
            if not math.prod(kernel) == kernel[-1] == self._ir.values[node.inputs[0]].dims[-1]:
                return None
        given = self._ir.values[node.inputs[0]].dims
        return node.inputs[0] if self._ir.values[value].dims == (*given[:-1], 1) else None

    def _centered(self, source: int, square: Node, quotient: Node) -> tuple[int, int] | None:
        """Return what the source is the difference of: a tensor and its mean."""
        node = self._producers.get(source)
        if (
            node is None
            or node.kind != "binary"
            or node.attrs["algorithm"] != "sub"
            or not self._is_beside(node, quotient)
        ):
            return None
        alone = source not in self._leaving and all(each in (square, quotient) for each in self._readers[source])
        return (
            (node.inputs[0], node.inputs[1])
            if alone and self._mean_of(node.inputs[1], node) == node.inputs[0]
            else None
        )

    def _constant_after(self, node: Node, algorithm: str, dims: tuple[int, ...]) -> tuple[Node, int] | None:
        """Return the only reader of a node if it multiplies by or adds one number for each channel, and these."""
        reader = only_reader(node.output, self._readers, self._leaving)
        if reader is None or reader.kind != "binary" or reader.attrs["algorithm"] != algorithm:
            return None
        if not self._is_plain(reader) or not self._is_beside(reader, node):
            return None
        other = reader.inputs[1] if reader.inputs[0] == node.output else reader.inputs[0]
        constant = self._ir.constants.get(other)
        if constant is None or constant.dims[-1:] != dims[-1:] or math.prod(constant.dims) != dims[-1]:
            return None
        return (reader, other) if self._ir.values[reader.output].dims == dims else None

    def _before(self, value: int, last: Node, kind: str, algorithm: str) -> Node | None:
        """Return the node of a kind that computes a value for one reader, on the engine of ``last`` and in float32."""
        node = self._producers.get(value)
        if node is None or node.kind != kind or node.attrs["algorithm"] != algorithm or not self._is_beside(node, last):
            return None
        return node if self._is_plain(node) and only_reader(value, self._readers, self._leaving) is not None else None

    def _is_plain(self, node: Node) -> bool:
        of_float32 = all(self._ir.values[value].dtype == "f32" for value in (*node.inputs, *node.outputs))
        return of_float32 and not (node.post_ops or node.quantisation or node.implementation)

    def _is_beside(self, node: Node, other: Node) -> bool:
        return (node.engine, node.implementation) == (other.engine, other.implementation)

    def _number(self, value: int) -> float | None:
        """Return a constant that is one number."""
        constant = self._ir.constants.get(value)
        return (
            float(constant.float64().reshape(-1)[0]) if constant is not None and math.prod(constant.dims) == 1 else None
        )
