"""The parameters that are compiled into a register tile of convolutions and products, and its arguments."""

from __future__ import annotations

from typing import Final, NamedTuple

from poolrt.cachestore.deferred_dataclass import dataclass

from .vec import Value

#: In place of the distance from lane to lane if an argument says it.
OPEN: Final = 0
#: In place of the distance to a residual if none is added: no distance of two float addresses is odd.
NO_RESIDUAL: Final = 1


@dataclass(frozen=True, slots=True)
class TileShape:
    """The parameters compiled into a tile.

    ``runs`` are lengths of runs of neighbouring positions, ``step`` bytes apart in the source; ``lane`` bytes are
    from one input to the next, or an argument says how many (OPEN). ``tail`` is the treatment of lanes behind the last
    output: "none" there are none, "zero" they are stored as zeros, "keep" they are not stored. Steps of a ``masked`` tile,
    which has one block, have the entries (source offset, lanes, offset in the weights, outputs as bits): its weights count as
    zeros for the other outputs. If groups have as many ``inputs`` as outputs, and 16 channels are whole groups, a step of it
    reads the 16 inputs of these groups, and has a row of weights for each input of a group. ``asks`` says what a tile
    prefetches beside a residual: "weights" while it reads others, "dst" of the tile below at the beginning, or "next", the source
    of the next tile, the next weights, and lines of those that are read after all tiles of these; or "" for nothing.
    With ``trims``, a tile has one run, and its steps a fourth number: that of a trim, how many positions the step leaves out at
    the beginning and at the end.
    """

    runs: tuple[int, ...]
    blocks: int
    step: int
    lane: int
    tail: str
    masked: bool = False
    inputs: int = 0
    asks: str = "weights"
    trims: tuple[tuple[int, int], ...] = ()


class Arguments(NamedTuple):
    """Arguments of a tile: addresses; distances in bytes; counts in items; the two lower bounds as floats."""

    T: Value
    steps: Value  #: the table of steps
    src: Value
    run: Value  #: from run to run in the source
    weights: Value
    weight_block: Value
    weight_row: Value
    ahead: Value  #: from weights to those that are asked for meanwhile; 0 for none; if the "next" are asked for, their address
    dst: Value
    dst_block: Value
    dst_step: Value  #: from position to position
    lane: Value  #: from one input to the next in the source, if the shape leaves that open
    bias: Value
    biased: Value  #: outputs from the first of the tile that have a bias
    count: Value  #: outputs from the first of the tile
    to_residual: Value  #: distance from dst, or NO_RESIDUAL
    low: Value  #: bound before the residual is added
    bound: Value
    lines: Value | None = None  #: of weights that are asked for in a step
    to_next: Value | None = None  #: distance of the next tile's source
