"""The base of all operation descriptors: named fields for keys, a wire form, and checks of arguments.

Meanings follow oneDNN: dilation 0 is a dense kernel, paddings are given per side, pooling's average includes or
excludes padding, LRN runs across channels. Every descriptor validates itself and raises ValueError naming the argument.
Each operation has a module of its own, imported when it is first needed.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, ClassVar, Final

from poolrt.cachestore.deferred_dataclass import dataclass, fields

from .args import Arg
from .codec import decode, encode
from .memory_desc import MemoryDesc
from .typed import Typed

#: Kind, which is also the module's name in `operations` -> class.
OPERATIONS: Final = {
    "convolution": "Convolution",
    "deconvolution": "Deconvolution",
    "pooling": "Pooling",
    "eltwise": "Eltwise",
    "binary": "Binary",
    "sum": "Sum",
    "concat": "Concat",
    "batch_normalization": "BatchNormalization",
    "lrn": "Lrn",
    "matmul": "Matmul",
    "inner_product": "InnerProduct",
    "softmax": "Softmax",
    "reorder": "Reorder",
    "layer_normalization": "LayerNormalization",
    "group_normalization": "GroupNormalization",
    "reduction": "Reduction",
    "resampling": "Resampling",
    "prelu": "Prelu",
    "shuffle": "Shuffle",
    "rnn": "Rnn",
    "lstm": "Lstm",
    "gru": "Gru",
    "dynamic_lstm": "DynamicLstm",
    "attention": "Attention",
    "rotary": "Rotary",
    "gather": "Gather",
    "grid_sample": "GridSample",
    "roi_align": "RoiAlign",
    "fold": "Fold",
    "tree_leaves": "TreeLeaves",
    "select": "Select",
    "arg_reduction": "ArgReduction",
    "pad": "Pad",
    "scatter": "Scatter",
    "cumulative_sum": "CumulativeSum",
    "top_k": "TopK",
    "non_max_suppression": "NonMaxSuppression",
    "non_zero": "NonZero",
    "matmul_nbits": "MatmulNbits",
    "dynamic_quantise": "DynamicQuantise",
    "dft": "Dft",
    "determinant": "Determinant",
}
#: Operations without a public class, created and cached like the others. Graphs have only calls, which `Graph.call` makes.
INTERNAL: Final = {
    "region_loop": "RegionLoop",
    "ring_ends": "RingEnds",
    "array_call": "ArrayCall",
    "padding": "Padding",
    "call": "Call",
}
#: oneDNN's propagation kinds; ``backward`` is data and weights at once.
PROP_KINDS: Final = ("forward_inference", "forward_training", "backward_data", "backward_weights", "backward")
FORWARD: Final = PROP_KINDS[:2]


_RESULTS: Final = frozenset({Arg.DST, Arg.DST_1, Arg.DST_2, Arg.WORKSPACE})
_GRADIENTS: Final = frozenset({Arg.DIFF_SRC, Arg.DIFF_WEIGHTS, Arg.DIFF_BIAS, Arg.DIFF_SCALE, Arg.DIFF_SHIFT})


@dataclass(frozen=True, slots=True)
class OpDesc(Typed):
    """Base of all operation descriptors; `kind` is oneDNN's primitive kind."""

    kind: ClassVar[str]

    def fields(self) -> dict[str, object]:
        """Return the named fields for a key."""
        return {f.name: _field(getattr(self, f.name)) for f in fields(self)}

    @property
    def is_forward(self) -> bool:
        """Whether the operation computes results rather than gradients."""
        return getattr(self, "prop", FORWARD[0]) in FORWARD

    @property
    def is_training(self) -> bool:
        """Whether a forward operation writes what its backward operation needs."""
        return getattr(self, "prop", None) == "forward_training"

    def memories(self) -> dict[int, MemoryDesc]:
        """Return the memory descriptor of each execution argument, without those that attributes add."""
        raise NotImplementedError  # every operation defines it

    def outputs(self) -> tuple[int, ...]:
        """Return the execution arguments that are written."""
        return tuple(arg for arg in self.memories() if arg in (_RESULTS if self.is_forward else _GRADIENTS))

    def to_wire(self) -> list[object]:
        """Return plain data for a message: the kind, then the fields in order."""
        return [self.kind, *encode(self)]


def op_from_wire(wire: object) -> OpDesc:
    """Rebuild an operation descriptor from its wire form. Raises ValueError for an unknown kind or malformed fields."""
    kind, *values = wire if isinstance(wire, list) and wire else [None]
    return decode(op_class(kind), values)


def op_class(kind: object) -> type[OpDesc]:
    """Return the class of an operation's descriptors. Raises ValueError for an unknown kind."""
    name = (OPERATIONS.get(kind) or INTERNAL.get(kind)) if isinstance(kind, str) else None
    if name is None:
        raise ValueError(f"unknown operation {kind!r:.60}; known: {', '.join(OPERATIONS)}")
    found: type[OpDesc] = getattr(import_module(f".operations.{kind}", __package__), name)
    return found


def one_of(name: str, value: str, known: tuple[str, ...]) -> None:
    """Raise ValueError naming the argument unless its value is known."""
    require(value in known, name, f"unknown {value!r}; known: {', '.join(known)}")


def complete_gradients(op: Any) -> None:
    """Give missing gradients of a backward operation the descriptors of src and dst; refuse gradients of a forward one."""
    for name in ("src", "dst"):
        gradient = getattr(op, f"diff_{name}")
        if op.is_forward:
            require(gradient is None, f"diff_{name}", "a forward operation has no gradients")
        elif gradient is None:
            object.__setattr__(op, f"diff_{name}", getattr(op, name))
        else:
            dims = getattr(op, name).dims
            require(gradient.dims == dims, f"diff_{name}", f"expect {dims}, got {gradient.dims}")


def require(condition: bool, name: str, message: str) -> None:
    """Raise ValueError naming the argument unless a condition holds."""
    if not condition:
        raise ValueError(f"{name}: {message}")


def _field(value: object) -> object:
    if isinstance(value, MemoryDesc):
        return value.fields()
    if isinstance(value, tuple):
        return tuple(_field(v) for v in value)
    return value
