"""Shapes of recurrent operations: layers, directions and gates."""

from __future__ import annotations

from typing import Any, Final

from ..args import Arg
from ..attributes import ELTWISE_ALGORITHMS, eltwise_algorithm
from ..memory_desc import MemoryDesc
from ..op_desc import FORWARD, one_of, require

DIRECTIONS: Final = ("left2right", "right2left", "bidirectional_concat", "bidirectional_sum")


def require_recurrent(op: Any, gates: int, bias_gates: int) -> None:
    """Raise ValueError naming the argument unless the tensors of a recurrent operation fit together.

    T steps, N sequences, L layers, D directions (1 or 2), C channels of src_layer, G gates, H hidden channels. Each
    direction runs through all layers by itself (oneDNN's definition), so that further layers need C = H.
    """
    one_of("prop", op.prop, FORWARD)
    one_of("direction", op.direction, DIRECTIONS)
    require(op.clip >= 0, "clip", f"expect 0 or more, got {op.clip}")
    require(op.src_layer.ndims == 3, "src_layer", "expect (T, N, C)")
    require(op.weights_layer.ndims == 5, "weights_layer", "expect (L, D, C, G, H)")
    steps, batch, channels = op.src_layer.dims
    layers, hidden = op.weights_layer.dims[0], op.weights_layer.dims[4]
    both = op.direction.startswith("bidirectional")
    directions = 2 if both else 1
    width = 2 * hidden if op.direction == "bidirectional_concat" else hidden
    require(
        layers == 1 or channels == hidden, "src_layer", f"more than one layer needs {hidden} channels, got {channels}"
    )
    state = (layers, directions, batch, hidden)
    for name, dims in (
        ("weights_layer", (layers, directions, channels, gates, hidden)),
        ("weights_iter", (layers, directions, hidden, gates, hidden)),
        ("bias", (layers, directions, bias_gates, hidden)),
        ("dst_layer", (steps, batch, width)),
        ("weights_peephole", (layers, directions, 3, hidden)),
        ("src_iter", state), ("dst_iter", state), ("src_iter_c", state), ("dst_iter_c", state),
    ):  # fmt: skip
        desc = getattr(op, name, None)
        require(desc is None or desc.dims == dims, name, f"expect {dims}, got {desc.dims if desc else None}")


def complete_activations(op: Any, count: int) -> None:
    """Check the functions of gated cells, and give them alphas and betas of 0 if there are none."""
    names = tuple([eltwise_algorithm(name) for name in op.activations])
    require(len(names) == count, "activations", f"expect {count}, got {len(names)}")
    for name in names:
        one_of("activations", name, ELTWISE_ALGORITHMS)
    object.__setattr__(op, "activations", names)
    for field in ("alphas", "betas"):
        given = getattr(op, field) or (0.0,) * count
        require(len(given) == count, field, f"expect {count}, got {len(given)}")
        object.__setattr__(op, field, given)


def recurrent_memories(op: Any) -> dict[int, MemoryDesc]:
    """Return the memory descriptor of each execution argument of a recurrent operation."""
    places = {
        Arg.SRC: op.src_layer,
        Arg.SRC_1: op.src_iter,
        Arg.SRC_2: getattr(op, "src_iter_c", None),
        Arg.WEIGHTS: op.weights_layer,
        Arg.WEIGHTS_1: op.weights_iter,
        Arg.WEIGHTS_2: getattr(op, "weights_peephole", None),
        Arg.BIAS: op.bias,
        Arg.DST: op.dst_layer,
        Arg.DST_1: op.dst_iter,
        Arg.DST_2: getattr(op, "dst_iter_c", None),
    }
    return {arg: desc for arg, desc in places.items() if desc is not None}
