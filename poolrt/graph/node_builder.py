"""The builder of a node: turns operands into values, then adds the node and the views that it needs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from poolrt.cachestore.deferred_dataclass import dataclass, replace
from poolrt.workers.desc import FORWARD, LIMITS, Arg, MemoryDesc, data_type
from poolrt.workers.desc.typed import shorten

from . import shapes
from .graph_state import GraphState
from .inference.attributes import attribute_types
from .inference.operations import infer, is_view, op_desc
from .ir import Attribute, Node, QuantisationUse
from .values import Operand, Value

_FLOATS: Final = ("f64", "f32", "f16", "bf16")
_QUANTISED: Final = {"src": Arg.SRC, "weights": Arg.WEIGHTS, "dst": Arg.DST}
_BINARY: Final = {"src0": Arg.SRC, "src1": Arg.SRC_1, "dst": Arg.DST}
#: Dimension of the weights that counts output channels, if it is not the first.
_CHANNELS: Final = {"matmul": -1}


@dataclass(frozen=True, slots=True)
class NodeBuilder:
    """A node with the options of every operation (see `NodeOptions`), empty if they are not given."""

    state: GraphState
    kind: str
    name: str
    engine: str
    implementation: str
    dtype: str
    scales: Mapping[str, Operand]
    zero_points: Mapping[str, Operand]
    is_test: bool = False

    def operand(self, argument: str, given: Operand, dtype: str = "f32") -> Value:
        """Return the value of an operand; data becomes a constant of a type that fits ``dtype``."""
        return self._constant_of_type(argument, given, dtype if isinstance(given, Value) else _fit_dtype(given, dtype))

    def optional(self, argument: str, given: Operand | None, dtype: str = "f32") -> list[Value]:
        """Return the value of an operand that may be missing."""
        return [] if given is None else [self.operand(argument, given, dtype)]

    def many(self, argument: str, given: Sequence[Operand]) -> list[Value]:
        """Return the values of a list of operands."""
        if isinstance(given, Value):
            raise ValueError(f"{argument}: expect a list of tensors, got one: write [a, b]")
        is_number = getattr(given, "ndim", 1) == 0
        if is_number or isinstance(given, str | bytes) or not isinstance(given, Iterable):
            raise ValueError(f"{argument}: expect a list of tensors, got {shorten(given)}")
        given = tuple(given)
        if not given:
            raise ValueError(f"{argument}: expect at least one source")
        dtype = self.type_of(*given)
        return [self.operand(f"{argument}[{index}]", each, dtype) for index, each in enumerate(given)]

    def type_of(self, *given: Operand) -> str:
        """Return the data type of the first operand that is a value, f32 if none is."""
        for each in given:
            if isinstance(each, Value):
                return data_type(each.dtype)
        return "f32"

    def add(self, operands: Sequence[Value], /, **attrs: Attribute) -> Value:
        """Add the node itself and return its result."""
        return self.add_all(operands, **attrs)[0]

    def add_all(self, operands: Sequence[Value], /, **attrs: Attribute) -> tuple[Value, ...]:
        """Add the node itself and return all its results."""
        sources = [self.state.descs[operand.id] for operand in operands]
        if self.is_test and "prop" in attribute_types(self.kind):
            attrs["prop"] = FORWARD[0]
        dtype = self.dtype
        if not dtype and self.scales and sources[0].dtype not in _FLOATS:
            dtype = "f32"
        found = infer(self.kind, sources, attrs, dtype)
        quantisation: list[QuantisationUse] = []
        if self.scales or self.zero_points:
            memories = op_desc(self.kind, sources, attrs, dtype).memories()
            quantisation += self._quantisation("scales", self.scales, memories)
            quantisation += self._quantisation("zero_points", self.zero_points, memories)
        builder = self
        if not self.implementation and self._pads_beyond(sources[0], attrs):
            from poolrt.workers.implementations.contract import REFERENCE

            builder = replace(self, implementation=REFERENCE)
        return builder._append(self.kind, self.name, operands, found, attrs, tuple(quantisation))

    def _pads_beyond(self, src: MemoryDesc, attrs: Mapping[str, Attribute]) -> bool:
        """Return whether padding is a known zero point that src's type does not hold: kernels fill it with bytes."""
        given, limits = self.zero_points.get("src"), LIMITS.get(src.dtype)
        sides = (attrs.get(name) for name in ("padding_l", "padding_r"))
        if given is None or limits is None or not any(isinstance(side, tuple) and any(side) for side in sides):
            return False
        if isinstance(given, Value):
            constant = self.state.constants.get(given.id)
            given = () if constant is None else constant.float64()
        numbers: np.ndarray[Any, Any] = np.asarray(given)
        return bool(((numbers < limits[0]) | (numbers > limits[1])).any())

    def view(self, value: Value, shape: Sequence[int], axes: Sequence[int] = ()) -> Value:
        """Reshape a value, see `shapes.infer_reshape`: by this node if it is a view, else by another node."""
        wanted = tuple(int(size) for size in shape)
        dims = shapes.infer_reshape(value.shape, wanted, axes)
        own = self.kind in ("reshape", "squeeze", "unsqueeze")
        if dims == value.shape and not own:
            return value
        name = self.name if own else self.state.make_name(f"{self.name}/reshape")
        desc = MemoryDesc(dims, self.state.descs[value.id].dtype)
        return self._append("reshape", name, [value], (desc,), {"shape": wanted, "axes": tuple(axes)})[0]

    def pad_rank(self, value: Value, ndims: int) -> Value:
        """Prepend dimensions of 1 up to a rank."""
        added = ndims - value.ndim
        return self.view(value, (1,) * ndims, (*(-1,) * added, *range(value.ndim))) if added else value

    def pick_axes(self, value: Value, axes: Sequence[int]) -> Value:
        """Keep the dimensions at ``axes``, in order; each -1 among them becomes a dimension of 1."""
        return self.view(value, (1,) * len(axes), axes)

    def _constant_of_type(self, argument: str, given: Operand, dtype: str) -> Value:
        """Return the value of an operand; data becomes a constant of a data type."""
        if isinstance(given, Value):
            if given.owner is not self.state:
                raise ValueError(f"{argument}: expect a value of this graph, got one of another graph")
            return given
        try:
            return self.state.add_constant(given, dtype)
        except ValueError as error:
            raise ValueError(f"{argument}: {error}") from error

    def _append(
        self,
        kind: str,
        name: str,
        operands: Sequence[Value],
        results: Sequence[MemoryDesc],
        attrs: dict[str, Attribute],
        quantisation: tuple[QuantisationUse, ...] = (),
    ) -> tuple[Value, ...]:
        values = tuple(self.state.add_value(desc) for desc in results)
        inputs, outputs = (tuple(value.id for value in each) for each in (operands, values))
        where = ("", "") if is_view(kind) else (self.engine, self.implementation)
        self.state.nodes.append(Node(kind, name, inputs, outputs, attrs, (), quantisation, *where))
        self.state.names.add(name)
        return values

    def _quantisation(
        self, kind: str, given: Mapping[str, Operand], memories: Mapping[int, MemoryDesc]
    ) -> list[QuantisationUse]:
        """Return the uses of scales or zero points, each as a row with one number for each index under its mask."""
        found = []
        for argument, numbers in given.items():
            names = _BINARY if self.kind == "binary" else _QUANTISED
            arg = names.get(argument)
            if arg is None or arg not in memories:
                known = ", ".join(name for name, number in names.items() if number in memories)
                raise ValueError(f"{kind}: {self.kind} has no argument {argument!r} that takes them; these do: {known}")
            where = f"{kind}: {argument}"
            value = self._constant_of_type(where, numbers, "f32" if kind == "scales" else "s32")
            mask = self._mask(where, value.shape, memories[arg].dims, arg)
            found.append(QuantisationUse(kind, int(arg), mask, self.view(value, (-1,)).id))
        return found

    def _mask(self, where: str, shape: tuple[int, ...], dims: tuple[int, ...], arg: Arg) -> int:
        if math.prod(shape) == 1:
            return 0
        if len(shape) == 1 and arg is Arg.WEIGHTS:
            channels = _CHANNELS.get(self.kind, 0) % len(dims)
            shape = tuple(shape[0] if dim == channels else 1 for dim in range(len(dims)))
        if len(shape) != len(dims) or any(size not in (1, dim) for size, dim in zip(shape, dims, strict=True)):
            raise ValueError(f"{where}: expect one number or a shape of rank {len(dims)} that broadcasts to {dims}")
        return sum(1 << dim for dim, size in enumerate(shape) if size > 1)


def _fit_dtype(given: object, context: str) -> str:
    """Return the data type of a constant that an operation combines with operands of a type.

    With floating point operands it is theirs. With integers an array keeps its own type, and numbers get the operands'.
    NumPy turns plain integers into int64: such an array gets the operands' type too if that holds its values.
    """
    if context in _FLOATS:
        return context
    array: np.ndarray[Any, Any] = np.asarray(given)
    if array.dtype.kind not in "biu":
        return "f32"
    if not isinstance(given, np.ndarray):
        return context
    own = data_type(array.dtype)
    if own == "s64" and context in LIMITS:
        low, high = LIMITS[context]
        return context if array.size and low <= array.min() and array.max() <= high else own
    return own
