"""Programs that combine elements of several tensors, of any data type and with any strides."""

from __future__ import annotations

import struct
from collections.abc import Sequence

from ...desc import Arg, MemoryDesc, PrimitiveAttr, item_size
from ...kernels.spec import KernelSpec
from ..program import Launch, LaunchArgument, Program
from .strided_loops import ITEM_BYTES, StridedLoop, as_table, broadcast_strides, nested, refuse_blocks, steps

#: Operands of the kernel; those that are not there have strides of 0.
_MOST = 3


def refuse_operands(attr: PrimitiveAttr, *tensors: MemoryDesc) -> str | None:
    """Return why tensors cannot be combined, or None."""
    if attr.post_ops or not attr.is_plain:
        return "post-ops, scales and zero points are not supported"
    return refuse_blocks(*tensors)


def combine(
    function: str, kind: str, result: str, operands: Sequence[tuple[int, MemoryDesc]], dst: MemoryDesc
) -> Program:
    """Return the program of a function of elements of a ``kind`` with a ``result``, see `kernels.native.combined`.

    Operands are tensors by their argument, broadcast to ``dst``.
    """
    if dst.elements == 0:
        return Program((), ())
    sizes = [item_size(md.dtype) for _, md in operands]
    own = [broadcast_strides(md, dst.ndims) for _, md in operands]
    none = [(0,) * dst.ndims] * (_MOST - len(operands))
    strides = zip(*own, *none, broadcast_strides(dst, dst.ndims), strict=True)
    loops = nested([StridedLoop(*each) for each in zip(dst.dims, strides, strict=True)])
    inner = loops.pop() if loops else StridedLoop(1, (*sizes, *(0,) * (_MOST - len(sizes)), item_size(dst.dtype)))
    adjacent = inner.written == item_size(dst.dtype) and all(
        step in (0, size) for step, size in zip(inner.steps, sizes, strict=False)
    )
    moves = tuple(step != 0 for step in inner.steps[: len(operands)])
    middle = loops.pop() if loops else StridedLoop(1, (0,) * (_MOST + 1))
    chunk = max(1, ITEM_BYTES // item_size(dst.dtype))
    lines = max(1, min(middle.extent, chunk // inner.extent))
    numbers = (len(loops), middle.extent, lines, *middle.steps, inner.extent, chunk, *inner.steps)
    kernel = KernelSpec.of("combined", function=function, kind=kind, result=result, moves=moves if adjacent else ())
    sources: list[LaunchArgument] = [("m", (int(arg), 0)) for arg, _ in operands]
    sources += [("i", 0)] * (_MOST - len(sources))
    args = (*sources, ("m", (int(Arg.DST), 0)), ("t", 0), *(("i", number) for number in numbers))
    table = as_table(loops)
    work = steps(loops) * -(-middle.extent // lines) * -(-inner.extent // chunk)
    return Program((kernel,), (Launch(0, args, work),), struct.pack(f"<{len(table)}q", *table))
