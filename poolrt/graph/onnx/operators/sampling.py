"""GridSample."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from poolrt.workers.desc.operations.grid_sample import SAMPLE_PADDINGS

from ..call import NodeCall, Operator
from ..tensors import Operand, shape_of

_MODES: Final = {"linear": "linear", "bilinear": "linear", "nearest": "nearest", "cubic": "cubic", "bicubic": "cubic"}


def grid_sample(call: NodeCall) -> Operand:
    """Sample images at the places of a grid."""
    source, grid, m = call.real(0), call.real(1), call.math
    sizes, places = shape_of(source), shape_of(grid)
    count = len(sizes) - 2
    mode, padding = call.text("mode", "linear"), call.text("padding_mode", "zeros")
    if count < 1 or len(places) != count + 2 or places[-1] != count or places[0] != sizes[0]:
        raise call.malformed(f"a grid of shape {places} does not fit {sizes}")
    if mode not in _MODES or padding not in SAMPLE_PADDINGS:
        raise call.malformed(f"unknown mode {mode!r} or padding_mode {padding!r}")
    dims = (*sizes[:2], *places[1:-1])
    if 0 in dims:
        return m.empty(dims, source)
    corners = bool(call.integer("align_corners", 0))
    return m.graph.grid_sample(
        m.value(source), m.value(grid), _MODES[mode], padding=padding, align_corners=corners, name=call.name
    )


OPERATORS: Final[Mapping[str, Operator]] = {"GridSample": grid_sample}
