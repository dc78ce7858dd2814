"""Operations that move elements, and views, which move none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Unpack

import numpy as np

from poolrt.workers.desc import MemoryDesc, data_type
from poolrt.workers.desc.typed import to_bool, to_integer, to_integers

from ..shapes import normalize_axes, normalize_axis, one_or_more
from ..values import NodeOptions, Operand, Value
from .family import Family

#: The end of a slice up to the last element.
_TO_THE_END: Final = 2**63 - 1


class Movement(Family):
    """Concat, shuffle, reorder and the views. Views take only ``name``: they have no engine and no implementation."""

    def concat(self, srcs: Sequence[Operand], axis: int, **options: Unpack[NodeOptions]) -> Value:
        """Join tensors along an axis (negative: from the end); all other dimensions are equal."""
        with self._build("concat", **options) as node:
            operands = node.many("srcs", srcs)
            return node.add(operands, axis=normalize_axis(axis, operands[0].ndim))

    def shuffle(self, src: Operand, axis: int, group_size: int, **options: Unpack[NodeOptions]) -> Value:
        """Transpose an axis seen as (size / group_size, group_size)."""
        with self._build("shuffle", **options) as node:
            value = node.operand("src", src)
            return node.add(
                [value], axis=normalize_axis(axis, value.ndim), group_size=to_integer("group_size", group_size)
            )

    def reorder(self, src: Operand, format_tag: str = "", wraps: bool = False, **options: Unpack[NodeOptions]) -> Value:
        """Return the same tensor in another data type (``dtype``), on another engine or in the layout of a tag.

        Values that the type cannot hold are rounded to even and saturated. Integers that become others lose the high bits that
        do not fit if the reorder ``wraps``. The plan chooses all other layouts: it
        inserts the reorders that are needed, and outputs are row-major.
        """
        with self._build("reorder", **options) as node:
            value = node.operand("src", src)
            try:
                MemoryDesc(value.shape, "f32", format_tag)
            except ValueError as error:
                raise ValueError(f"format_tag: {error}") from error
            if format_tag == "any":
                raise ValueError("format_tag: expect a layout, got any")
            same = node.dtype in ("", data_type(value.dtype)) and not (format_tag or node.engine)
            if same and not (node.scales or node.zero_points):
                return value
            return node.add([value], tag=format_tag, **({"wraps": True} if to_bool("wraps", wraps) else {}))

    def reshape(self, src: Operand, shape: Sequence[int], *, name: str | None = None) -> Value:
        """Return the same elements, in row-major order, in another shape.

        One size may be -1 and is then inferred; a size of 0 keeps that of src at its place.
        """
        with self._build("reshape", name) as node:
            sizes = to_integers("shape", shape)
            kept = tuple(axis if size == 0 else -1 for axis, size in enumerate(sizes))
            return node.view(node.operand("src", src), sizes, kept if 0 in sizes else ())

    def squeeze(self, src: Operand, axes: Sequence[int] | int | None = None, *, name: str | None = None) -> Value:
        """Drop dimensions of size 1: those at ``axes``, or all of them."""
        with self._build("squeeze", name) as node:
            value = node.operand("src", src)
            if axes is None:
                axes = [axis for axis, size in enumerate(value.shape) if size == 1]
            dropped = normalize_axes(axes, value.ndim)
            for axis in dropped:
                if value.shape[axis] != 1:
                    raise ValueError(f"axes: dimension {axis} of {value.shape} is not 1")
            return node.pick_axes(value, [axis for axis in range(value.ndim) if axis not in dropped])

    def unsqueeze(self, src: Operand, axes: Sequence[int] | int, *, name: str | None = None) -> Value:
        """Insert dimensions of size 1, which get the ``axes`` of the result."""
        with self._build("unsqueeze", name) as node:
            value = node.operand("src", src)
            given = one_or_more("axes", axes)
            ndims = value.ndim + len(given)
            added = normalize_axes(given, ndims)
            kept = iter(range(value.ndim))
            return node.pick_axes(value, [-1 if axis in added else next(kept) for axis in range(ndims)])

    def transpose(self, src: Operand, perm: Sequence[int] | None = None, *, name: str | None = None) -> Value:
        """Permute dimensions: dimension i of the result is dimension perm[i] of src; without ``perm``, reverse them."""
        with self._build("transpose", name) as node:
            value = node.operand("src", src)
            axes = range(value.ndim - 1, -1, -1) if perm is None else to_integers("perm", perm)
            return node.add([value], perm=tuple(normalize_axis(axis, value.ndim, "perm") for axis in axes))

    def slice(
        self,
        src: Operand,
        starts: Sequence[int] | int,
        ends: Sequence[int] | int,
        axes: Sequence[int] | int | None = None,
        steps: Sequence[int] | int | None = None,
        *,
        name: str | None = None,
    ) -> Value:
        """Return src[start:end:step] along ``axes`` (by default the first ones), with the meaning of Python slices.

        It is copied only if an operation needs the elements side by side. Negative steps are gathers along their dimensions.
        """
        with self._build("slice", name) as node:
            value = node.operand("src", src)
            first, last = one_or_more("starts", starts), one_or_more("ends", ends)
            chosen = range(len(first)) if axes is None else one_or_more("axes", axes)
            along = [normalize_axis(axis, value.ndim, "axes") for axis in chosen]
            pace = (1,) * len(first) if steps is None else one_or_more("steps", steps)
            if not len(first) == len(last) == len(along) == len(pace) == len(set(along)):
                raise ValueError(
                    f"starts: expect as many starts, ends, axes and steps, got {starts}, {ends}, {axes}, {steps}"
                )
            begin, end, step = [0] * value.ndim, [_TO_THE_END] * value.ndim, [1] * value.ndim
            for axis, *each in zip(along, first, last, pace, strict=True):
                if each[2] == 0:
                    raise ValueError("steps: expect another number than 0")
                begin[axis], end[axis], step[axis] = each
            for axis, backwards in enumerate(step):
                if backwards < 0:
                    taken = range(*slice(begin[axis], end[axis], backwards).indices(value.shape[axis]))
                    value = self._take(value, axis, taken, f"{begin[axis]}:{end[axis]}")
                    begin[axis], end[axis], step[axis] = 0, _TO_THE_END, 1
            return node.add([value], starts=tuple(begin), ends=tuple(end), steps=tuple(step))

    def _take(self, value: Value, axis: int, taken: range, ends: object) -> Value:
        if not taken:
            raise ValueError(f"ends: {ends} leaves nothing of dimension {axis} of {value.shape}")
        with self._build("gather") as node:
            indices = node.operand("indices", np.array(taken, np.int32), "s32")
            return node.add([value, indices], algorithm="rows", axis=axis)

    def expand(self, src: Operand, shape: Sequence[int], *, name: str | None = None) -> Value:
        """Repeat dimensions of 1 up to a shape, as NumPy broadcasts. It is copied only if a reader needs that."""
        with self._build("expand", name) as node:
            value = node.operand("src", src)
            wanted = to_integers("shape", shape)
            return node.add([value], shape=wanted)
