"""The graph that computes a part of a batch, made from the graph of the whole batch.

A tensor carries the batch if its first size is a multiple of the number of samples and each sample has the same number of its
rows, one sample after the other: (8, 3, 64, 64) as well as (8 * 197, 768). A part takes the rows of its samples. That is right
if no operation mixes rows of different samples, which is checked for each node; what cannot be shown is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

from poolrt.cachestore.deferred_dataclass import replace
from poolrt.workers.desc import MemoryDesc

from .errors import GraphError
from .inference.movement import resolve_slice
from .inference.operations import infer
from .ir import Attribute, GraphIR, Node
from .shapes import normalize_axes

_Attributes: TypeAlias = Mapping[str, Attribute]


class _Mixes(ValueError):
    """Why a node cannot be shown to keep samples apart."""


def part_of_batch(ir: GraphIR, samples: int, part: int) -> GraphIR:
    """Return the graph of ``part`` of the ``samples`` of a batch: those inputs whose first size is ``samples`` are shorter.

    Results that do not depend on these inputs are as before. Raises GraphError that names a node which may mix samples.
    """
    return _Part(ir, samples, part).graph()


def carrying_inputs(ir: GraphIR, samples: int) -> list[str]:
    """Return the names of the inputs that hold a batch of so many samples."""
    return [name for name, value in ir.inputs if ir.values[value].dims[:1] == (samples,)]


class _Part:
    """A graph on its way from the whole batch to a part."""

    def __init__(self, ir: GraphIR, samples: int, part: int) -> None:
        self._ir = ir
        self._samples = samples
        self._rows = part
        self._values = dict(ir.values)
        self._nodes: list[Node] = []
        self._carried = {value for _, value in ir.inputs if ir.values[value].dims[:1] == (samples,)}
        #: Values without the batch whose rows are alike, so that any rows of them are those of a part.
        self._alike: set[int] = set()
        for value in self._carried:
            self._shorten(value)

    def graph(self) -> GraphIR:
        for node in self._ir.nodes:
            try:
                self._nodes.append(self._node(node))
            except ValueError as error:
                text = f"graph {self._ir.name!r}: split_batch: {node.kind} {node.label!r}: {error}"
                raise GraphError(text) from error
        return replace(self._ir, values=self._values, nodes=tuple(self._nodes))

    def carries(self, value: int) -> bool:
        """Return whether a value carries the batch."""
        return value in self._carried

    def dims(self, value: int) -> tuple[int, ...]:
        """Return the shape of a value in the graph of the whole batch."""
        return self._ir.values[value].dims

    def whole(self, dims: tuple[int, ...]) -> bool:
        """Return whether a tensor of this shape can carry the batch."""
        return len(dims) > 0 and dims[0] % self._samples == 0

    def shortened(self, dims: tuple[int, ...]) -> tuple[int, ...]:
        """Return the shape of the rows of a part."""
        return (dims[0] // self._samples * self._rows, *dims[1:])

    def _shorten(self, value: int) -> None:
        desc = self._ir.values[value]
        self._values[value] = MemoryDesc(self.shortened(desc.dims), desc.dtype)

    def _node(self, node: Node) -> Node:
        if any(use.value in self._carried for use in node.quantisation):
            raise _Mixes("its scales or zero points depend on the batch")
        if not any(value in self._carried for value in node.inputs):
            if node.kind == "expand" and _repeats_rows(self.dims(node.inputs[0]), self.dims(node.output)):
                self._alike.add(node.output)
            return node
        rule = _RULES.get(node.kind)
        if rule is None:
            raise _Mixes("it may mix samples")
        attrs = {**node.attrs, **rule(self, node)}
        together = node.kind in _TOGETHER or (node.kind == "matmul" and len(self.dims(node.output)) > 2)
        inputs = tuple(map(self._operand, node.inputs)) if together else node.inputs
        self._carried.update(node.outputs)
        for output in node.outputs:
            self._shorten(output)
        dtype = self._ir.values[node.output].dtype
        found = infer(node.kind, [self._values[value] for value in inputs], attrs, dtype)
        wanted = tuple(self._values[output].dims for output in node.outputs)
        if tuple(each.dims for each in found) != wanted:
            raise _Mixes(f"its result for a part would be {found[0].dims}, not {wanted[0]}")
        return replace(node, inputs=inputs, attrs=attrs)

    def _operand(self, value: int) -> int:
        """Return an operand that is combined row by row with one that carries the batch, or with rows of one."""
        dims = self.dims(value)
        if value in self._carried or len(dims) == 0 or dims[0] == 1:
            return value
        if not self.whole(dims) or not self._has_alike_rows(value):
            raise _Mixes(
                f"an operand of shape {dims} has rows for each sample and does not come from the inputs of the batch"
            )
        desc = MemoryDesc(self.shortened(dims), self._ir.values[value].dtype)
        new = max(self._values) + 1
        self._values[new] = desc
        none = (0,) * len(dims)
        attrs: dict[str, Attribute] = {"starts": none, "ends": desc.dims, "steps": (1,) * len(dims)}
        self._nodes.append(Node("slice", f"rows_{new}", (value,), (new,), attrs))
        return new

    def _has_alike_rows(self, value: int) -> bool:
        if value in self._alike:
            return True
        constant = self._ir.constants.get(value)
        if constant is None or constant.scale is not None:
            return False
        rows = constant.array
        return bool((rows[:1] == rows).all())


def _repeats_rows(src: tuple[int, ...], dst: tuple[int, ...]) -> bool:
    return len(src) < len(dst) or src[0] == 1


def _first_alone(part: _Part, node: Node) -> _Attributes:
    """Only the first operand has rows; the others are weights."""
    if any(part.carries(value) for value in node.inputs[1:]):
        raise _Mixes("its weights depend on the batch")
    return {}


def _other_axis(part: _Part, node: Node) -> _Attributes:
    if node.attrs["axis"] == 0:
        raise _Mixes("it works along the batch (axis 0)")
    return {}


def _reduction(part: _Part, node: Node) -> _Attributes:
    if 0 in normalize_axes(node.integers("axes"), len(part.dims(node.inputs[0]))):
        raise _Mixes("it reduces the batch (axis 0)")
    return {}


def _batch_normalization(part: _Part, node: Node) -> _Attributes:
    flags = node.attrs.get("flags", ())
    if not isinstance(flags, tuple) or "use_global_stats" not in flags:
        raise _Mixes("its mean and variance are those of the batch")
    return _first_alone(part, node)


def _layer_normalization(part: _Part, node: Node) -> _Attributes:
    if len(part.dims(node.inputs[0])) == 1:
        raise _Mixes("it works along the batch (axis 0)")
    return _first_alone(part, node)


def _pad(part: _Part, node: Node) -> _Attributes:
    if node.integers("padding_l")[0] or node.integers("padding_r")[0]:
        raise _Mixes("it pads the batch (axis 0)")
    return {}


def _row_by_row(part: _Part, node: Node) -> _Attributes:
    return {}


def _matmul(part: _Part, node: Node) -> _Attributes:
    src, weights, *bias = node.inputs
    if any(map(part.carries, bias)):
        raise _Mixes("its bias depends on the batch")
    if len(part.dims(src)) == 2 and part.carries(weights):
        raise _Mixes("its weights depend on the batch")
    return {}


def _gather(part: _Part, node: Node) -> _Attributes:
    src, indices = map(part.carries, node.inputs)
    axis = node.attrs.get("axis", 0)
    match node.attrs.get("algorithm", "rows"):
        case "rows":
            apart = axis != 0 and not indices if src else axis == 0
        case "elements":
            src_rows, index_rows = (part.dims(value)[0] for value in node.inputs)
            apart = src and indices and axis != 0 and src_rows == index_rows
        case _:
            apart = src and indices and node.attrs.get("batch_dims", 0) != 0
    if not apart:
        raise _Mixes("an index may choose another sample")
    return {}


def _reshape(part: _Part, node: Node) -> _Attributes:
    # Samples follow one another in memory, and do so in the new shape if its rows are whole parts of a sample.
    dims = part.dims(node.output)
    if not part.whole(dims):
        raise _Mixes(f"the first size of {dims} is not a multiple of the number of samples")
    return {"shape": part.shortened(dims), "axes": ()}


def _transpose(part: _Part, node: Node) -> _Attributes:
    if node.integers("perm")[0] != 0:
        raise _Mixes("it moves the batch (axis 0) elsewhere")
    return {}


def _slice(part: _Part, node: Node) -> _Attributes:
    dims = part.dims(node.inputs[0])
    starts, counts = resolve_slice(dims, node.attrs)
    if counts[0] != dims[0]:
        raise _Mixes("it takes some samples of the batch (axis 0)")
    ends, steps = node.integers("ends"), node.integers("steps")
    return {"starts": (0, *starts[1:]), "ends": (part.shortened(dims)[0], *ends[1:]), "steps": steps}


def _expand(part: _Part, node: Node) -> _Attributes:
    src, dst = part.dims(node.inputs[0]), part.dims(node.output)
    if len(src) != len(dst) or src[0] != dst[0]:
        raise _Mixes("it adds a dimension before the batch, or repeats it")
    return {"shape": part.shortened(dst)}


_Rule: TypeAlias = Callable[[_Part, Node], _Attributes]
#: Kind -> what raises `_Mixes` for a node that may mix samples, else returns the attributes that differ for a part.
_RULES: Final[Mapping[str, _Rule]] = {
    **dict.fromkeys(
        (
            "convolution", "deconvolution", "pooling", "resampling", "eltwise", "lrn", "reorder", "prelu",
            "group_normalization", "inner_product", "matmul_nbits", "tree_leaves", "determinant", "fold",
        ),
        _first_alone,
    ),
    **dict.fromkeys(("softmax", "shuffle", "cumulative_sum", "arg_reduction", "top_k", "dft"), _other_axis),
    **dict.fromkeys(("binary", "sum", "select", "attention", "rotary", "grid_sample"), _row_by_row),
    "concat": _other_axis,
    "reduction": _reduction,
    "batch_normalization": _batch_normalization,
    "layer_normalization": _layer_normalization,
    "pad": _pad,
    "matmul": _matmul,
    "gather": _gather,
    "reshape": _reshape,
    "transpose": _transpose,
    "slice": _slice,
    "expand": _expand,
}  # fmt: skip
#: Kinds whose operands are combined row by row, as are those of matmul above rank 2.
_TOGETHER: Final = frozenset({"binary", "sum", "select", "attention", "rotary", "concat", "grid_sample"})
