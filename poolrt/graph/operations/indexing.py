"""Operations whose elements are chosen by other tensors."""

from __future__ import annotations

from typing import Any, Unpack

import numpy as np

from poolrt.workers.desc import data_type
from poolrt.workers.desc.typed import shorten, to_bool, to_integer

from ..node_builder import NodeBuilder
from ..shapes import normalize_axis
from ..values import NodeOptions, Operand, Value
from .family import Family


class Indexing(Family):
    """Gathers and select. Indices are of int32 or int64: negative ones count from the end, those out of range give zeros."""

    def gather(self, src: Operand, indices: Operand, axis: int = 0, **options: Unpack[NodeOptions]) -> Value:
        """Return the parts of src at indices along an axis, as NumPy's ``take``: an embedding's rows, for one.

        The dimensions of the indices replace dimension ``axis`` of src (negative: from the end). An index that is out of range
        gives zeros; if the indices are constant, it is refused.
        """
        with self._build("gather", **options) as node:
            value = _operand_of_own_type(node, "src", src)
            along = normalize_axis(axis, value.ndim)
            chosen = _indices(node, indices, value.shape[along : along + 1])
            return node.add([value, chosen], algorithm="rows", axis=along)

    def gather_elements(self, src: Operand, indices: Operand, axis: int = 0, **options: Unpack[NodeOptions]) -> Value:
        """Return elements of src at indices along an axis, as NumPy's ``take_along_axis``; the result has their shape.

        The indices are at most as large as src along the other dimensions. One that is out of range gives zero; if the indices
        are constant, it is refused.
        """
        with self._build("gather", **options) as node:
            value = _operand_of_own_type(node, "src", src)
            along = normalize_axis(axis, value.ndim)
            chosen = _indices(node, indices, value.shape[along : along + 1])
            return node.add([value, chosen], algorithm="elements", axis=along)

    def gather_nd(self, src: Operand, indices: Operand, batch_dims: int = 0, **options: Unpack[NodeOptions]) -> Value:
        """Return the parts of src at several indices at once, which the last dimension of the indices has.

        They are for the dimensions of src from ``batch_dims`` on. The first ``batch_dims`` dimensions of src and indices are
        the same. The result has the dimensions of the indices without the last, then those of src that have no index. Indices
        that are out of range give zeros; if they are constant, they are refused.
        """
        with self._build("gather", **options) as node:
            value = _operand_of_own_type(node, "src", src)
            first = to_integer("batch_dims", batch_dims)
            chosen = _indices(node, indices, value.shape[max(first, 0) :], several=True)
            return node.add([value, chosen], algorithm="nd", batch_dims=first)

    def scatter_elements(
        self, src: Operand, indices: Operand, updates: Operand, axis: int = 0, reduction: str = "none",
        **options: Unpack[NodeOptions],
    ) -> Value:  # fmt: skip
        """Return src with elements replaced by updates at indices along an axis; indices and updates have one shape.

        Updates are made in the order of their indices, so that the last of several at one place remains. A ``reduction``
        combines them with what is there: ``add mul min`` or ``max``. An index that is out of range does nothing; if the indices
        are constant, it is refused. Limitation: sums and products of integers must not overflow.
        """
        with self._build("scatter", **options) as node:
            value = _operand_of_own_type(node, "src", src)
            along = normalize_axis(axis, value.ndim)
            chosen = _indices(node, indices, value.shape[along : along + 1])
            given = node.operand("updates", updates, node.type_of(value))
            return node.add([value, chosen, given], algorithm="elements", axis=along, reduction=reduction)

    def scatter_nd(
        self, src: Operand, indices: Operand, updates: Operand, reduction: str = "none", **options: Unpack[NodeOptions]
    ) -> Value:
        """Return src with parts replaced by updates at several indices at once, which the last dimension of the indices has.

        They are for the first dimensions of src. Updates have the other dimensions of the indices, then those of src that have
        no index. See `scatter_elements` for their order, for ``reduction`` and for indices that are out of range.
        """
        with self._build("scatter", **options) as node:
            value = _operand_of_own_type(node, "src", src)
            chosen = _indices(node, indices, value.shape, several=True)
            given = node.operand("updates", updates, node.type_of(value))
            return node.add([value, chosen, given], algorithm="nd", reduction=reduction)

    def select(self, condition: Operand, src0: Operand, src1: Operand, **options: Unpack[NodeOptions]) -> Value:
        """Return elements of ``src0`` where the condition is not 0, and of ``src1`` elsewhere, as NumPy's ``where``.

        Shapes broadcast as in NumPy. The result has the data type of ``src0``, or of ``src1`` if ``src0`` is no value.
        """
        with self._build("select", **options) as node:
            dtype = node.type_of(src0, src1)
            operands = [node.operand("condition", condition, "bool" if _is_truth(condition) else "f32")]
            operands += [node.operand(name, each, dtype) for name, each in (("src0", src0), ("src1", src1))]
            rank = max(operand.ndim for operand in operands)
            return node.add([node.pad_rank(operand, rank) for operand in operands])

    def arg_max(
        self, src: Operand, axis: int, keep_dims: bool = True, select_last: bool = False, **options: Unpack[NodeOptions]
    ) -> Value:
        """Return the index of the largest element along an axis, which becomes 1 or is dropped.

        It is of int64 unless ``dtype`` is given. Of equal elements, it is the first, or the last with ``select_last``. NaN
        counts as larger than all numbers.
        """
        return self._arg_reduction("max", src, axis, keep_dims, select_last, options)

    def arg_min(
        self, src: Operand, axis: int, keep_dims: bool = True, select_last: bool = False, **options: Unpack[NodeOptions]
    ) -> Value:
        """Return the index of the smallest element along an axis; see `arg_max`. NaN counts as smaller than all numbers."""
        return self._arg_reduction("min", src, axis, keep_dims, select_last, options)

    def top_k(
        self, src: Operand, k: int, axis: int = -1, largest: bool = True, **options: Unpack[NodeOptions]
    ) -> tuple[Value, Value]:
        """Return the k largest elements along an axis, or the smallest, best first, and their indices as int64.

        Of equal elements, the first come first. NaN counts as larger, and as smaller, than all numbers.
        """
        with self._build("top_k", **options) as node:
            value = node.operand("src", src)
            count, along = to_integer("k", k), normalize_axis(axis, value.ndim)
            if not 1 <= count <= value.shape[along]:
                raise ValueError(f"k: expect 1..{value.shape[along]}, got {count}")
            values, indices = node.add_all([value], k=count, axis=along, largest=to_bool("largest", largest))
            return values, indices

    def non_max_suppression(
        self, boxes: Operand, scores: Operand, limits: Operand, most: int | None = None, center_point: bool = False,
        **options: Unpack[NodeOptions],
    ) -> tuple[Value, Value]:  # fmt: skip
        """Return the best boxes of each class, without those that overlap a better one, and how many there are, as int64.

        ``boxes`` (images, boxes, 4) have two opposite corners each, or a centre and a size if ``center_point``; ``scores`` are
        (images, classes, boxes). ``limits`` are three numbers of float32: how many boxes a class may have, the intersection
        over union that a box may have with a better one, and the score that it must exceed. A row is image, class and box,
        the boxes of a class by falling score. There is room for ``most`` boxes a class (all, unless given); rows that are not
        used are zeros behind the others: `output` cuts them off with the count.
        """
        with self._build("non_max_suppression", **options) as node:
            first, values = node.operand("boxes", boxes), node.operand("scores", scores)
            bounds = node.operand("limits", limits)
            number = (
                first.shape[1] if most is None and first.ndim == 3 else to_integer("most", 0 if most is None else most)
            )
            attrs = {"most": number, "center_point": to_bool("center_point", center_point)}
            chosen, count = node.add_all([first, values, bounds], **attrs)
            return chosen, count

    def non_zero(self, src: Operand, **options: Unpack[NodeOptions]) -> tuple[Value, Value]:
        """Return the indices of the elements that are not 0, in row-major order, and how many there are, as int64.

        A column of the indices (dimensions, elements) has those of one element; with ``dtype``, they have another type. NaN is
        not 0. Columns that are not used are zeros behind the others: `output` cuts them off with the count.
        """
        with self._build("non_zero", **options) as node:
            indices, count = node.add_all([_operand_of_own_type(node, "src", src)])
            return indices, count

    def tree_leaves(
        self, src: Operand, nodes: Operand, limits: Operand, roots: Operand, levels: int,
        **options: Unpack[NodeOptions],
    ) -> Value:  # fmt: skip
        """Follow the nodes of decision trees for each row of src (R, C), from ``roots`` (T,) to leaves.

        The result (R, T) is the numbers of the leaves, as int32. A row of ``nodes`` (N, 4) of int32 is the column that a node
        looks at, the nodes that follow if the number there passes and if it does not, and whether NaN passes. A number passes if
        it is at most the only limit of ``limits`` (N, 1), or not outside of both of (N, 2). Both nodes behind a leaf are the
        leaf; ``levels`` is how many nodes a row visits at most.
        """
        with self._build("tree_leaves", **options) as node:
            operands = [
                node.operand("src", src), node.operand("nodes", nodes, "s32"), node.operand("limits", limits),
                node.operand("roots", roots, "s32"),
            ]  # fmt: skip
            return node.add(operands, levels=to_integer("levels", levels))

    def _arg_reduction(
        self, algorithm: str, src: Operand, axis: int, keep_dims: bool, select_last: bool, options: NodeOptions
    ) -> Value:
        with self._build("arg_reduction", **options) as node:
            value = node.operand("src", src)
            along = normalize_axis(axis, value.ndim)
            keeps, last = to_bool("keep_dims", keep_dims), to_bool("select_last", select_last)
            result = node.add([value], algorithm=algorithm, axis=along, select_last=last)
            return result if keeps else node.pick_axes(result, [each for each in range(value.ndim) if each != along])


def _is_truth(given: Operand) -> bool:
    return not isinstance(given, Value) and np.asarray(given).dtype == np.bool_


def _operand_of_own_type(node: NodeBuilder, argument: str, given: Operand) -> Value:
    """Return the value of an operand; an array of integers or truth values becomes a constant of its own type."""
    kept = isinstance(given, np.ndarray) and given.dtype.kind in "biu"
    return node.operand(argument, given, data_type(given.dtype) if kept else "f32")  # type: ignore[union-attr]


def _indices(node: NodeBuilder, given: Operand, sizes: tuple[int, ...], several: bool = False) -> Value:
    """Return the value of indices for a dimension of a size, or ``several`` in their last one for as many dimensions.

    Raises ValueError for constant indices that are out of range.
    """
    if isinstance(given, Value):
        return node.operand("indices", given)
    array: np.ndarray[Any, Any] = np.asarray(given)
    if array.dtype.kind not in "iu":
        raise ValueError(f"indices: expect integers, got {shorten(given)}")
    limits = np.array(sizes[: array.shape[-1] if several and array.ndim else 1])
    if not several or (array.ndim and array.shape[-1] == len(limits)):
        wrong = (array < -limits) | (array >= limits)
        if wrong.any():
            raise ValueError(
                f"indices: {np.broadcast_to(array, wrong.shape)[wrong][0]} is out of range for sizes of {tuple(map(int, limits))}"
            )
    return node.operand("indices", array if array.dtype in (np.int32, np.int64) else array.astype(np.int64), "s64")
