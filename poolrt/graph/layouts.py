"""The layouts to try for each operation, best first, given those of its operands.

`any` lets the implementation choose. Most operations try the layout of their operands, then row-major.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, TypeAlias

from poolrt.cachestore.deferred_dataclass import replace
from poolrt.workers.desc import Arg, Convolution, MemoryDesc, OpDesc, item_size

#: Data types that fast implementations convert to f32.
_NARROW: Final = ("f16", "bf16")
#: Row-major convolutions of one channel a group have vectors of 16 columns, blocked ones of 16 channels: below so many columns
#: of the result these are faster, reorders included, and below so many channels they are not. ISA level -> columns; `_COLUMNS`
#: on others.
_COLUMNS_OF: Final = {"x86-64-v4": 15}
_COLUMNS: Final = 12
_CHANNELS: Final = 16
#: Levels whose kernels of blocks may have their taps written out, in two dimensions -> multiplications of a vector that reorders
#: take more than copies of planes do. Taps of a window beyond which planes have none written out.
_REORDERS: Final = {"x86-64-v4": 3.5, "x86-64-v3": 6.0}
_TAPS_OF_PLANES: Final = 49
#: Outputs of a single channel, at most, of which planes take less time than blocks, whose vectors have 16 outputs.
_OUTPUTS_OF_ONE: Final = 8
#: Inputs of a group up to which row-major windows of one element are faster than reorders into blocks and back, and columns of
#: the result from which they are. Blocks have groups beside others, which costs more: with several, the most that were measured.
#: ISA level -> inputs of windows that leave out no element, and those whose planes begin at the same place of a page: few of
#: these are in the first-level cache together. `_POINTS` on others.
_POINTS: Final = 16
_POINTS_OF: Final = {"x86-64-v3": (128, 24)}
_PAGE: Final = 4096
_POINTS_IN_GROUPS: Final = 80
_COLUMNS_OF_POINTS: Final = 16
#: Outputs of a group up to which planes take less time than blocks, a half of whose lanes are empty then.
_FEW_OUTPUTS: Final = 8
#: Groups of so many inputs and outputs fill blocks: these take less time, reorders included, than planes whose vectors of 16
#: columns are filled by this share or less. For levels with kernels of their own for such groups, and for windows of several
#: elements.
_FILLING: Final = {"x86-64-v4": (2, 4, 8)}
_HALF_FILLED: Final = 0.65
_Policy: TypeAlias = "Callable[[Any, Sequence[MemoryDesc], Sequence[bool]], Iterator[OpDesc]]"


def candidates(op: OpDesc, operands: Sequence[MemoryDesc], constant: Sequence[bool], isa: str = "") -> Iterator[OpDesc]:
    """Yield row-major ``op`` in the layouts to try; ``constant`` says which operands never change."""
    if isinstance(op, Convolution):
        yield from _convolution(op, operands, constant, isa)
        return
    yield from _POLICIES.get(op.kind, _first_operand)(op, operands, constant)


def _windows(op: Any, operands: Sequence[MemoryDesc], constant: Sequence[bool]) -> Iterator[OpDesc]:
    if constant[1] and op.is_forward and op.src.dtype in _NARROW:
        # Fast implementations compute in f32: constants become f32 when the graph is loaded, not in every run. So do kernels
        # of 1, though products read 16 bits: convolutions that follow one another then share a layout.
        yield replace(op, src=_any(op.src), weights=_in_float32(op.weights), dst=_any(op.dst))
    yield replace(op, src=_any(op.src), weights=_any(op.weights), dst=_any(op.dst))


def _convolution(
    op: Convolution, operands: Sequence[MemoryDesc], constant: Sequence[bool], isa: str
) -> Iterator[OpDesc]:
    channels, columns = op.src.dims[1], _COLUMNS_OF.get(isa, _COLUMNS)
    is_native = op.is_forward and op.src.dtype == "f32" and op.src.ndims in (3, 4, 5)
    is_plain = is_native and operands[0].is_plain
    # A window along the first of three dimensions alone has planes as rows.
    is_plane = op.weights.dims[3:] == op.strides[1:] == (1, 1)
    row = op.dst.dims[-1] * (op.dst.dims[-2] if is_plane else 1)
    fits = is_plain and (row >= columns or channels < _CHANNELS) and not (isa in _REORDERS and _suits_blocks(op, isa))
    # Blocks have no kernel of their own for several outputs of one input: planes take a fifth of the time, unless they are a row.
    if op.dst.dims[1] > channels:
        fits = is_native and math.prod(op.dst.dims[2:-1]) > 1
    if channels == 1:
        # Planes have no lanes for outputs that there are none of.
        fits = is_native and op.dst.dims[1] <= _OUTPUTS_OF_ONE
    if op.groups == channels and fits:
        # One channel a group: reorders into blocks of channels and back would take longer than the sums.
        yield replace(op, weights=_any(op.weights))
    elif _suits_planes(op, is_plain, isa) and is_native:
        yield replace(op, weights=_any(op.weights))
    yield from _windows(op, operands, constant)


def _suits_blocks(op: Convolution, isa: str) -> bool:
    """Return whether windows in two dimensions, of one channel each, take less time in blocks of channels, reorders included.

    Vectors of planes have 16 columns, those of blocks 16 channels: either may be filled in part. Blocks whose taps are not
    written out take longer.
    """
    channels, row = op.dst.dims[1], op.dst.dims[-1]
    if op.src.ndims != 4 or channels != op.src.dims[1] or channels < _CHANNELS:
        return False
    taps = math.prod(op.weights.dims[2:])
    more = taps * (16 * -(-row // 16) / row - 16 * -(-channels // 16) / channels)
    if more < (_REORDERS[isa] if taps <= _TAPS_OF_PLANES else 0):
        return False
    from poolrt.workers.implementations.native.convolution_window import Window
    from poolrt.workers.kernels.native.row_pieces import are_written_out

    return are_written_out(isa, *Window.of(op).row)


def _suits_planes(op: Convolution, is_plain: bool, isa: str) -> bool:
    """Return whether planes of several inputs a group take less time than blocks of channels and their reorders."""
    inputs, outputs = op.weights.dims[1], op.dst.dims[1] // op.groups
    is_few = inputs > 1 and outputs <= _FEW_OUTPUTS
    if set(op.weights.dims[2:]) != {1}:
        # Between blocks, reorders of groups would take as long as their sums.
        return is_few and (op.groups == 1 or (is_plain and not _fills_blocks(op, isa)))
    return (
        is_plain
        and _sees_points(op)
        and (is_few or inputs <= (_POINTS_IN_GROUPS if op.groups > 1 else _points(op, isa)))
    )


def _points(op: Convolution, isa: str) -> int:
    """Return up to how many inputs row-major windows of one element are faster than blocks of channels."""
    if isa not in _POINTS_OF or set(op.strides) != {1}:
        return _POINTS
    plane = item_size(op.src.dtype) * math.prod(op.src.dims[2:])
    return _POINTS_OF[isa][plane % _PAGE == 0]


def _fills_blocks(op: Convolution, isa: str) -> bool:
    """Return whether groups fill blocks of channels, and rows of the result do not fill their vectors."""
    inputs, row = op.weights.dims[1], op.dst.dims[-1]
    is_whole = inputs in _FILLING.get(isa, ()) and op.dst.dims[1] == op.groups * inputs
    return is_whole and row <= _HALF_FILLED * 16 * -(-row // 16)


def _sees_points(op: Convolution) -> bool:
    """Return whether windows are one element, and rows of the result, or all of them if they are one, are long."""
    row = math.prod(op.dst.dims[2:]) if set(op.strides) == {1} else op.dst.dims[-1]
    return set(op.weights.dims[2:]) == {1} and not any((*op.padding_l, *op.padding_r)) and row >= _COLUMNS_OF_POINTS


def _matmul(op: Any, operands: Sequence[MemoryDesc], constant: Sequence[bool]) -> Iterator[OpDesc]:
    # Blocks of channels are no rows: a reorder costs less than a kernel that reads them.
    srcs = [op.src] if operands[0].layout.blocks else [operands[0], op.src]
    for src in dict.fromkeys(srcs):
        yield from _product(replace(op, src=src), operands, constant)


def _product(op: Any, operands: Sequence[MemoryDesc], constant: Sequence[bool]) -> Iterator[OpDesc]:
    weights = [_any(op.weights)] if constant[1] else [operands[1], op.weights]
    for each in dict.fromkeys(weights):
        yield replace(op, weights=each, dst=_any(op.dst))


def _matmul_nbits(op: Any, operands: Sequence[MemoryDesc], constant: Sequence[bool]) -> Iterator[OpDesc]:
    extra = [name for name in ("bias", "scales", "points") if getattr(op, name) is not None]
    fixed = [name for name, known in zip(("src", "weights", *extra), constant, strict=True) if known]
    packed = {name: _any(getattr(op, name)) for name in fixed if name in ("weights", "scales", "points")}
    yield replace(op, **packed, dst=_any(op.dst))


def _attention(op: Any, operands: Sequence[MemoryDesc], constant: Sequence[bool]) -> Iterator[OpDesc]:
    names = ("query", "key", "value", "mask")[: len(operands)]
    given = dict(zip(names, operands, strict=True))
    # Rows are read at any distance, but their elements are side by side.
    rows = {n: d if d.ndims == 4 and _has_rows(d) else getattr(op, n) for n, d in given.items()}
    for tensors in (given, rows) if rows != given else (given,):
        yield replace(op, **tensors, dst=_any(op.dst))
    yield replace(op, dst=_any(op.dst))


def _has_rows(desc: MemoryDesc) -> bool:
    return not desc.layout.blocks and (desc.dims[-1] == 1 or desc.outer_strides()[-1] == 1)


def _gather(op: Any, operands: Sequence[MemoryDesc], constant: Sequence[bool]) -> Iterator[OpDesc]:
    return _strided(op, operands, ("src", "indices"))


def _select(op: Any, operands: Sequence[MemoryDesc], constant: Sequence[bool]) -> Iterator[OpDesc]:
    return _strided(op, operands, ("condition", "src0", "src1"))


def _scatter(op: Any, operands: Sequence[MemoryDesc], constant: Sequence[bool]) -> Iterator[OpDesc]:
    return _strided(op, operands, ("src", "indices", "updates"))


def _boxes(op: Any, operands: Sequence[MemoryDesc], constant: Sequence[bool]) -> Iterator[OpDesc]:
    if not any(md.layout.blocks for md in operands):
        yield replace(op, **dict(zip(("boxes", "scores", "limits"), operands, strict=True)))
    yield op


def _non_zero(op: Any, operands: Sequence[MemoryDesc], constant: Sequence[bool]) -> Iterator[OpDesc]:
    if not operands[0].layout.blocks:
        yield replace(op, src=operands[0])
    yield op


def _strided(op: Any, operands: Sequence[MemoryDesc], names: Sequence[str]) -> Iterator[OpDesc]:
    """Yield operands as they are unless they have blocks, then row-major ones."""
    given = {name: md for name, md in zip(names, operands, strict=True) if not md.layout.blocks}
    for tensors in (given, {}) if given else (given,):
        yield replace(op, **tensors, dst=_any(op.dst))


def _first_operand(op: Any, operands: Sequence[MemoryDesc], constant: Sequence[bool]) -> Iterator[OpDesc]:
    for src in dict.fromkeys((operands[0], op.src)):
        yield replace(op, src=src, dst=_any(op.dst))


def _binary(op: Any, operands: Sequence[MemoryDesc], constant: Sequence[bool]) -> Iterator[OpDesc]:
    pairs = []
    for computed in _computed_layouts(operands, constant):
        first, second = (_adopt_tag(given, computed) for given in (op.src0, op.src1))
        pairs += [(first, second), (first, op.src1)]
    for first, second in dict.fromkeys((*pairs, (op.src0, op.src1))):
        yield replace(op, src0=first, src1=second, dst=_any(op.dst))


def _many(op: Any, operands: Sequence[MemoryDesc], constant: Sequence[bool]) -> Iterator[OpDesc]:
    for computed in _computed_layouts(operands, constant):
        yield replace(op, srcs=tuple(_adopt_tag(given, computed) for given in op.srcs), dst=_any(op.dst))
    yield replace(op, dst=_any(op.dst))


def _recurrent(op: Any, operands: Sequence[MemoryDesc], constant: Sequence[bool]) -> Iterator[OpDesc]:
    place = [*op.memories()].index(Arg.WEIGHTS)
    wide, deep = constant[place : place + 2]
    if wide and deep and op.is_forward and op.src_layer.dtype in _NARROW:
        weights = {name: _in_float32(getattr(op, name)) for name in ("weights_layer", "weights_iter")}
        yield replace(op, **weights)
    layer = _any(op.weights_layer) if wide else op.weights_layer
    yield replace(op, weights_layer=layer, weights_iter=_any(op.weights_iter) if deep else op.weights_iter)


def _dynamic_lstm(op: Any, operands: Sequence[MemoryDesc], constant: Sequence[bool]) -> Iterator[OpDesc]:
    yield replace(op, weights=_any(op.weights))


def _reorder(op: Any, operands: Sequence[MemoryDesc], constant: Sequence[bool]) -> Iterator[OpDesc]:
    if op.dst.is_plain and not operands[0].strides:
        # One layout for both: only the numbers change.
        yield replace(op, src=operands[0], dst=_adopt_tag(op.dst, operands[0]))
    for src in dict.fromkeys((operands[0], op.src)):
        yield replace(op, src=src)


def _row_major(op: Any, operands: Sequence[MemoryDesc], constant: Sequence[bool]) -> Iterator[OpDesc]:
    yield op


def _computed_layouts(operands: Sequence[MemoryDesc], constant: Sequence[bool]) -> list[MemoryDesc]:
    """Return one computed operand for each distinct layout that has a tag and is not row-major."""
    if any(operand.ndims != operands[0].ndims for operand in operands):
        return []
    found: dict[str, MemoryDesc] = {}
    for operand, fixed in zip(operands, constant, strict=True):
        if not (fixed or operand.is_plain or operand.strides):
            found.setdefault(operand.tag, operand)
    return list(found.values())


def _adopt_tag(operand: MemoryDesc, other: MemoryDesc) -> MemoryDesc:
    return operand.with_tag(other.tag)


def _any(desc: MemoryDesc) -> MemoryDesc:
    return desc.with_tag("any")


def _in_float32(weights: MemoryDesc) -> MemoryDesc:
    """Return the descriptor of f16 or bf16 weights in f32, in a layout that the implementation chooses."""
    return replace(_any(weights), dtype="f32") if weights.dtype in _NARROW else _any(weights)


_POLICIES: Final[dict[str, _Policy]] = {
    "deconvolution": _windows,
    "inner_product": _product,
    "matmul": _matmul,
    "matmul_nbits": _matmul_nbits,
    "attention": _attention,
    "gather": _gather,
    "select": _select,
    "scatter": _scatter,
    "non_max_suppression": _boxes,
    "non_zero": _non_zero,
    "binary": _binary,
    "sum": _many,
    "concat": _many,
    "reorder": _reorder,
    "call": _row_major,
    "grid_sample": _row_major,
    "rotary": _row_major,
    "roi_align": _row_major,
    "fold": _row_major,
    "tree_leaves": _row_major,
    "determinant": _row_major,
    "rnn": _recurrent,
    "lstm": _recurrent,
    "gru": _recurrent,
    "dynamic_lstm": _dynamic_lstm,
}
