"""`Graph`: build a graph of primitives operation by operation, with oneDNN's names and meanings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from poolrt.workers.desc import MemoryDesc, data_type

from . import passes, shapes
from .assembly import Assembly
from .constant import Constant
from .eltwise import parameters
from .errors import GraphError
from .ir import Attribute, GraphIR
from .values import Operand, Padding, Spatial, Value, padding_sides, spatial
from .wire import wire_form

_ENGINE_KINDS = ("cpu", "opencl")


class Graph:
    """A graph of primitives on named inputs and outputs, built once and loaded into a pool.

    Every operation checks shapes at once and returns a `Value`. Where it takes a tensor it also takes a NumPy array, a
    number or a list of numbers, which becomes a constant: float32 arrays are kept without a copy (do not change them
    before the graph is loaded), float64 and float16 become float32, integers are taken where float32 is exact.
    Tensors are float32 and row-major as the user sees them; the layouts inside are the plan's business.

    Every operation takes ``name=`` for messages and traces; without one it is numbered. Every error is a `GraphError`
    that names operation, node and argument: ``convolution 'conv1': weights: expect 3 input channels, got 4``.
    """

    def __init__(self, name: str = "graph", engine: str = "cpu") -> None:
        """Start an empty graph for an engine: ``cpu``, ``opencl`` or ``opencl:<index>``."""
        self.name = name
        self.engine = engine
        self._assembly = Assembly()
        self._inputs: dict[str, int] = {}
        self._outputs: dict[str, int] = {}

    def __repr__(self) -> str:
        counts = f"{len(self._inputs)} inputs, {len(self._assembly.nodes)} nodes, {len(self._outputs)} outputs"
        return f"<poolrt.Graph {self.name!r}: {counts}>"

    @property
    def engine(self) -> str:
        """The engine that the graph is for; setting another raises GraphError where there is none of that name."""
        return self._engine

    @engine.setter
    def engine(self, engine: str) -> None:
        kind, colon, index = engine.partition(":")
        if kind not in _ENGINE_KINDS or (colon and not index.isdecimal()):
            raise GraphError(f"graph {self.name!r}: engine: expect cpu, opencl or opencl:<index>, got {engine!r}")
        self._engine = engine

    @property
    def inputs(self) -> dict[str, tuple[int, ...]]:
        """The shape of each input by name, in the order they were made."""
        return {name: self._assembly.dims[value] for name, value in self._inputs.items()}

    @property
    def outputs(self) -> dict[str, tuple[int, ...]]:
        """The shape of each output by name, in the order they were made."""
        return {name: self._assembly.dims[value] for name, value in self._outputs.items()}

    def input(self, name: str, shape: Sequence[int], dtype: DTypeLike = "float32") -> Value:
        """Add an input that every run gives by this name: ``shape`` is fixed, ``dtype`` is float32."""
        if name in self._inputs:
            raise GraphError(f"input {name!r}: there is an input of this name already")
        try:
            dims = MemoryDesc(tuple(shape), "f32").dims
            if min(dims, default=1) < 1:
                raise ValueError(f"expect sizes of at least 1, got {dims}")
        except (TypeError, ValueError) as error:
            raise GraphError(f"input {name!r}: shape: {error}") from error
        try:
            is_float32 = data_type(dtype if isinstance(dtype, str) else np.dtype(dtype)) == "f32"
        except (TypeError, ValueError) as error:
            raise GraphError(f"input {name!r}: dtype: {error}") from error
        if not is_float32:
            raise GraphError(f"input {name!r}: dtype: expect float32, got {dtype}")
        value = self._assembly.value(dims)
        self._inputs[name] = value.id
        return value

    def output(self, name: str, value: Value) -> None:
        """Name a value as a result of every run."""
        if name in self._outputs:
            raise GraphError(f"output {name!r}: there is an output of this name already")
        if getattr(value, "owner", None) is not self._assembly:
            raise GraphError(f"output {name!r}: value: expect a value of this graph")
        self._outputs[name] = value.id

    def convolution(
        self,
        src: Operand,
        weights: Operand,
        bias: Operand | None = None,
        *,
        strides: Spatial = 1,
        padding: Padding = 0,
        dilations: Spatial = 0,
        groups: int = 1,
        name: str | None = None,
    ) -> Value:
        """Cross-correlate src (N, IC, *spatial) with weights (OC, IC / groups, *kernel); bias is (OC,).

        ``strides`` and ``dilations`` are one integer or one for each spatial dimension; a dilation counts the elements
        skipped between taps, so 0 is a dense kernel. ``padding`` is one integer, one for each spatial dimension, or a
        pair (before, after) for each. The result is (N, OC, *out).
        """
        with self._assembly.making("convolution", name) as node:
            value = node.operand("src", src)
            operands = [value, node.operand("weights", weights), *node.optional("bias", bias)]
            return node.add(operands, **_window(value.ndim - 2, strides, padding, dilations), groups=int(groups))

    def pooling(
        self,
        src: Operand,
        algorithm: str,
        kernel: Spatial,
        *,
        strides: Spatial = 1,
        padding: Padding = 0,
        dilations: Spatial = 0,
        name: str | None = None,
    ) -> Value:
        """Pool windows of src (N, C, *spatial) with ``max``, ``avg_include_padding`` or ``avg_exclude_padding``.

        The other arguments are those of `convolution`, the kernel one integer or one for each spatial dimension.
        """
        with self._assembly.making("pooling", name) as node:
            value = node.operand("src", src)
            size = spatial("kernel", kernel, value.ndim - 2)
            window = _window(value.ndim - 2, strides, padding, dilations)
            return node.add([value], algorithm=algorithm, kernel=size, **window)

    def matmul(self, src: Operand, weights: Operand, bias: Operand | None = None, *, name: str | None = None) -> Value:
        """Multiply src (..., M, K) by weights (..., K, N); bias is (N,) or (1, ..., 1, N).

        Batch dimensions broadcast as in NumPy: a missing one counts as 1, and a 1 is repeated.
        """
        with self._assembly.making("matmul", name) as node:
            left, right, extra = node.operand("src", src), node.operand("weights", weights), node.optional("bias", bias)
            for argument, value in (("src", left), ("weights", right)):
                if value.ndim < 2:
                    raise ValueError(f"{argument}: expect rank >= 2, got {value.shape}")
            *batch, rows, depth = left.shape
            if left.ndim > 2 and right.ndim == 2 and right.shape[0] == depth:
                # One product instead of a batch of them that share their weights.
                row = [node.view(b, (1, *b.shape[-1:])) for b in extra]
                product = node.add([node.view(left, (-1, depth)), right, *row])
                return node.view(product, (*batch, rows, right.shape[1]))
            rank = max(left.ndim, right.ndim)
            return node.add([node.ranked(value, rank) for value in (left, right, *extra)])

    def inner_product(
        self, src: Operand, weights: Operand, bias: Operand | None = None, *, name: str | None = None
    ) -> Value:
        """Multiply src (N, IC) by the transpose of weights (OC, IC); bias is (OC,), the result (N, OC).

        Of src (N, IC, *spatial) and weights (OC, IC, *spatial) all dimensions but the first are taken as one.
        """
        with self._assembly.making("inner_product", name) as node:
            left, right = node.operand("src", src), node.operand("weights", weights)
            if left.ndim > 2 and left.shape[1:] == right.shape[1:]:
                left, right = (node.view(value, (value.shape[0], -1)) for value in (left, right))
            return node.add([left, right, *node.optional("bias", bias)])

    def eltwise(
        self,
        src: Operand,
        algorithm: str,
        alpha: float | None = None,
        beta: float | None = None,
        *,
        name: str | None = None,
    ) -> Value:
        """Apply a function of one variable to every element.

        ``relu`` (alpha 0: slope below 0) ``tanh elu`` (alpha 1) ``square abs sqrt linear`` (alpha 1 * x + beta 0)
        ``logistic exp log clip`` (to alpha .. beta) ``gelu_erf hardsigmoid`` (alpha 1/6 * x + beta 1/2, clipped to
        0 .. 1) ``hardswish`` (x times hardsigmoid) ``softplus`` (log(1 + exp(alpha 1 * x)) / alpha) ``swish`` (x times
        logistic(alpha 1 * x)) ``mish``.
        """
        with self._assembly.making("eltwise", name) as node:
            first, second = parameters(algorithm, alpha, beta)
            return node.add([node.operand("src", src)], algorithm=algorithm, alpha=first, beta=second)

    def binary(self, src0: Operand, src1: Operand, algorithm: str, *, name: str | None = None) -> Value:
        """Combine two tensors element by element with ``add sub mul div max`` or ``min``.

        Shapes broadcast as in NumPy: a missing leading dimension counts as 1, and a 1 is repeated.
        """
        with self._assembly.making("binary", name) as node:
            operands = [node.operand("src0", src0), node.operand("src1", src1)]
            rank = max(operand.ndim for operand in operands)
            return node.add([node.ranked(operand, rank) for operand in operands], algorithm=algorithm)

    def sum(self, srcs: Sequence[Operand], *, name: str | None = None) -> Value:
        """Add tensors of one shape."""
        with self._assembly.making("sum", name) as node:
            return node.add(node.many("srcs", srcs))

    def concat(self, srcs: Sequence[Operand], axis: int, *, name: str | None = None) -> Value:
        """Join tensors along an axis (negative: from the end); all other dimensions are equal."""
        with self._assembly.making("concat", name) as node:
            operands = node.many("srcs", srcs)
            ndims = operands[0].ndim if operands else 1
            return node.add(operands, axis=shapes.axis_of(axis, ndims))

    def softmax(self, src: Operand, axis: int = -1, algorithm: str = "accurate", *, name: str | None = None) -> Value:
        """Normalise exponentials along an axis (negative: from the end); ``algorithm="log"`` gives their logarithm."""
        with self._assembly.making("softmax", name) as node:
            value = node.operand("src", src)
            return node.add([value], axis=shapes.axis_of(axis, value.ndim), algorithm=algorithm)

    def batch_normalization(
        self,
        src: Operand,
        mean: Operand,
        variance: Operand,
        scale: Operand | None = None,
        shift: Operand | None = None,
        *,
        epsilon: float = 1e-5,
        name: str | None = None,
    ) -> Value:
        """Return (src - mean) / sqrt(variance + epsilon) * scale + shift for src (N, C, ...); the others are (C,).

        Without ``scale`` it is 1, without ``shift`` 0.
        """
        with self._assembly.making("batch_normalization", name) as node:
            value = node.operand("src", src)
            channels = value.shape[1:2]
            given = {
                "mean": mean,
                "variance": variance,
                "scale": np.ones(channels, np.float32) if scale is None else scale,
                "shift": np.zeros(channels, np.float32) if shift is None else shift,
            }
            channelwise = [node.operand(argument, operand) for argument, operand in given.items()]
            return node.add([value, *channelwise], epsilon=float(epsilon))

    def lrn(
        self,
        src: Operand,
        local_size: int = 5,
        alpha: float = 1e-4,
        beta: float = 0.75,
        k: float = 1.0,
        *,
        name: str | None = None,
    ) -> Value:
        """Return src / (k + alpha / local_size * s) ** beta for src (N, C, ...).

        s is the sum of squares over the ``local_size`` channels around each.
        """
        with self._assembly.making("lrn", name) as node:
            attrs = {"local_size": int(local_size), "alpha": float(alpha), "beta": float(beta), "k": float(k)}
            return node.add([node.operand("src", src)], **attrs)

    def reshape(self, src: Operand, shape: Sequence[int], *, name: str | None = None) -> Value:
        """Return the same elements, in row-major order, in another shape; one size may be -1 and is then inferred."""
        with self._assembly.making("reshape", name) as node:
            return node.view(node.operand("src", src), shape)

    def squeeze(self, src: Operand, axes: Sequence[int] | int | None = None, *, name: str | None = None) -> Value:
        """Drop dimensions of size 1: those at ``axes``, or all of them."""
        with self._assembly.making("squeeze", name) as node:
            value = node.operand("src", src)
            if axes is None:
                axes = [axis for axis, size in enumerate(value.shape) if size == 1]
            dropped = _axes(axes, value.ndim)
            for axis in dropped:
                if value.shape[axis] != 1:
                    raise ValueError(f"axes: dimension {axis} of {value.shape} is not 1")
            return node.view(value, [size for axis, size in enumerate(value.shape) if axis not in dropped])

    def unsqueeze(self, src: Operand, axes: Sequence[int] | int, *, name: str | None = None) -> Value:
        """Insert dimensions of size 1 so that they stand at ``axes`` of the result."""
        with self._assembly.making("unsqueeze", name) as node:
            value = node.operand("src", src)
            ndims = value.ndim + (1 if isinstance(axes, int) else len(axes))
            added = _axes(axes, ndims)
            sizes = iter(value.shape)
            return node.view(value, [1 if axis in added else next(sizes) for axis in range(ndims)])

    def transpose(self, src: Operand, perm: Sequence[int] | None = None, *, name: str | None = None) -> Value:
        """Permute dimensions: dimension i of the result is dimension perm[i] of src; without ``perm``, reverse them."""
        with self._assembly.making("transpose", name) as node:
            value = node.operand("src", src)
            axes = range(value.ndim - 1, -1, -1) if perm is None else perm
            return node.add([value], perm=tuple(shapes.axis_of(axis, value.ndim, "perm") for axis in axes))

    def reorder(self, src: Operand, format_tag: str = "", *, name: str | None = None) -> Value:
        """Return the same tensor; ``format_tag`` is checked against its rank.

        A tag is a hint and no more: the plan chooses layouts, inserts the reorders that they need, and hands out
        row-major outputs.
        """
        with self._assembly.making("reorder", name) as node:
            value = node.operand("src", src)
            try:
                MemoryDesc(value.shape, "f32", format_tag)
            except ValueError as error:
                raise ValueError(f"format_tag: {error}") from error
            return value

    def to_ir(self) -> GraphIR:
        """Return the graph as it was built, as immutable data. Raises GraphError where it has no output."""
        if not self._outputs:
            raise GraphError(f"graph {self.name!r}: it has no output; name one with output()")
        return self._assembly.freeze(self.name, self.engine, self._inputs, self._outputs)

    def to_wire(self, optimize: bool = True) -> tuple[dict[str, Any], list[Constant]]:
        """Return the graph as plain data for a message, and its constants in the order of the wire's ``constants``."""
        ir = self.to_ir()
        return wire_form(passes.optimize(ir) if optimize else ir)


def _window(ndims: int, strides: Spatial, padding: Padding, dilations: Spatial) -> dict[str, Attribute]:
    if ndims < 1:
        raise ValueError(f"src: expect (N, C, *spatial), got rank {ndims + 2}")
    before, after = padding_sides(padding, ndims)
    return {
        "strides": spatial("strides", strides, ndims),
        "dilations": spatial("dilations", dilations, ndims),
        "padding_l": before,
        "padding_r": after,
    }


def _axes(axes: Sequence[int] | int, ndims: int) -> set[int]:
    given = [axes] if isinstance(axes, int) else list(axes)
    found = {shapes.axis_of(axis, ndims, "axes") for axis in given}
    if len(found) != len(given):
        raise ValueError(f"axes: expect each axis once, got {tuple(given)}")
    return found
