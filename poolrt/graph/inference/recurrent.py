"""Recurrent networks: src_layer, the initial states if given, weights_layer, weights_iter, of an LSTM perhaps peepholes, bias.

Or one that quantises states.
"""

from __future__ import annotations

from collections.abc import Sequence

from poolrt.workers.desc import MemoryDesc, OpDesc

from .result import Attrs, Operation, describe_result


def one_state(op: Operation, srcs: Sequence[MemoryDesc], attrs: Attrs, dtype: str) -> OpDesc:
    """Describe a network of vanilla or GRU cells."""
    src, *states, weights_layer, weights_iter, bias = srcs
    if len(states) > 1:
        raise ValueError(f"src_iter: expect one initial state or none, got {len(states)}")
    src_iter = states[0] if states else None
    dst_layer, dst_iter = _results(src, weights_layer, attrs, dtype, src_iter)
    return op(src, src_iter, weights_layer, weights_iter, bias, dst_layer, dst_iter, **attrs)


def two_states(op: Operation, srcs: Sequence[MemoryDesc], attrs: Attrs, dtype: str) -> OpDesc:
    """Describe a network of LSTM cells."""
    # Both states or neither: an odd number of operands has peepholes.
    *rest, bias = srcs
    peephole = rest.pop() if len(srcs) % 2 else None
    src, *states, weights_layer, weights_iter = rest
    if len(states) not in (0, 2):
        raise ValueError(f"src_iter_c: expect both initial states or none, got {len(states)}")
    src_iter, src_iter_c = states or (None, None)
    dst_layer, dst_iter = _results(src, weights_layer, attrs, dtype, src_iter)
    dst_iter_c = MemoryDesc(dst_iter.dims, src_iter_c.dtype if src_iter_c else dst_layer.dtype)
    initial, final = (src_iter, src_iter_c), (dst_iter, dst_iter_c)
    return op(src, *initial, weights_layer, weights_iter, bias, dst_layer, *final, weights_peephole=peephole, **attrs)


def dynamic(op: Operation, srcs: Sequence[MemoryDesc], attrs: Attrs, dtype: str) -> OpDesc:
    """Describe a network of LSTM cells that quantises its states: src, the first states if given, weights, scales, points."""
    states = 0 if len(srcs) < 5 else 2
    if not 3 + states <= len(srcs) <= 4 + states:
        raise ValueError("src_iter_c: expect both first states or neither, weights and scales")
    src, *given, weights, scales = srcs[: 3 + states]
    points = srcs[3 + states] if len(srcs) > 3 + states else None
    if src.ndims != 4:
        raise ValueError(f"src: expect (T, N, 4, H), got {src.dims}")
    steps, batch, _, hidden = src.dims
    src_iter, src_iter_c = given or (None, None)
    dst = describe_result(src, dtype, (steps, batch, hidden))
    last = MemoryDesc((batch, hidden), src_iter_c.dtype if src_iter_c else dst.dtype)
    return op(src, src_iter, src_iter_c, weights, scales, points, dst, last, **attrs)


def _results(
    src: MemoryDesc, weights: MemoryDesc, attrs: Attrs, dtype: str, state: MemoryDesc | None
) -> tuple[MemoryDesc, MemoryDesc]:
    """Return the results of the last layer and of the last step."""
    if src.ndims != 3:
        raise ValueError(f"src_layer: expect (T, N, C), got {src.dims}")
    if weights.ndims != 5:
        raise ValueError(f"weights_layer: expect (L, D, C, G, H), got {weights.dims}")
    steps, batch, _ = src.dims
    layers, directions, _, _, hidden = weights.dims
    width = 2 * hidden if attrs.get("direction") == "bidirectional_concat" else hidden
    dst = describe_result(src, dtype, (steps, batch, width))
    return dst, MemoryDesc((layers, directions, batch, hidden), state.dtype if state else dst.dtype)
