"""Resize and Upsample."""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction
from typing import Any, Final

import numpy as np

from ...values import Value
from ..call import NodeCall, Operator
from ..element_types import FLOATS
from ..folding import Array
from ..tensors import Operand, Tensors, dtype_of
from .resize_weights import resize_weights

#: Types whose numbers float32 holds.
_SMALL: Final = ("int8", "uint8", "int16", "uint16", "bool")
_MODES: Final = {"nearest": "nearest", "linear": "linear", "bilinear": "linear", "cubic": "cubic"}

#: Dimensions that are resampled at once, and the least elements of rows that stay as they are among them.
_SPATIAL: Final = 3
_ROW: Final = 16
#: Rows of weights that are multiplied together.
_BLOCK: Final = 32


def resize(call: NodeCall) -> Operand:
    """Resample the dimensions that change; all others are moved to the front and joined to images and channels.

    Integers are computed as floats; as in ONNX Runtime, the fractions of interpolated ones are cut off. The nearest ones are
    moved as they are.
    """
    sizes = call.shape(0)
    rank = len(sizes)
    axes = [axis % rank for axis in call.integers("axes", range(rank))] if rank else []
    if len(set(axes)) != len(axes):
        raise call.malformed(f"axes: expect each axis once, got {axes}")
    scales, wanted = _targets(call, axes)
    mode = call.text("mode", "nearest")
    if mode not in _MODES:
        raise call.malformed(f"unknown mode {mode!r}")
    if call.opset < 11:
        options: dict[str, Any] = {"coordinates": "asymmetric", "nearest": "floor"}
    else:
        options = {
            "coordinates": call.text("coordinate_transformation_mode", "half_pixel"),
            "nearest": call.text("nearest_mode", "round_prefer_floor"),
            "cubic_coeff_a": call.number("cubic_coeff_a", -0.75),
            "exclude_outside": bool(call.integer("exclude_outside", 0)),
            "extrapolation": call.number("extrapolation_value", 0.0),
        }
    if 0 in wanted:
        return call.math.empty(wanted, call.operand(0))
    crops = options["coordinates"] == "tf_crop_and_resize"
    changed = [axis for axis in axes if crops or wanted[axis] != sizes[axis] or scales[axis] != 1]
    if not changed:
        return call.operand(0)
    source = call.operand(0)
    if not isinstance(source, Value) and mode == "nearest" and not crops and _is_one_number(source):
        # A mask of images that have no padding, which detectors resize.
        return call.folding.fill(source.reshape(-1)[:1], wanted)
    dtype = dtype_of(source)
    weighs = call.integer("antialias", 0) or options["coordinates"] == "tf_half_pixel_for_nn"
    moves = mode == "nearest" and not crops and not weighs
    if dtype not in FLOATS and not moves and (mode != "nearest" or dtype in _SMALL):
        wide = call.math.cast(call.tensor(0), "float32" if dtype in _SMALL else "float64")
        return call.math.cast(resize(call.with_operands(wide, *call.operands[1:])), dtype)
    if crops:
        region = _region(call, axes)
        changed = [axis for axis in changed if region[axis] != (0.0, 1.0) or wanted[axis] != sizes[axis]]
        options["roi"] = [region[axis][side] for side in range(2) for axis in changed]
    elif not weighs and mode != "cubic":
        changed = _with_rows(changed, sizes)
    chosen = [scales[axis] for axis in changed], [wanted[axis] for axis in changed]
    if weighs or (dtype not in FLOATS and not moves):
        return _weigh(call, changed, *chosen, mode, options)
    extent = _extent(call, changed, *chosen, mode, options)
    if extent is None:
        return _weigh(call, changed, *chosen, mode, options)
    return _resample(call, changed, chosen[1], mode, extent)


def _with_rows(changed: list[int], sizes: tuple[int, ...]) -> list[int]:
    """Return the axes that change with those behind them, if these are rows that resampling takes whole, with no transpose."""
    rows = range(max(changed) + 1, len(sizes))
    every = range(min(changed), len(sizes))
    takes = len(every) <= _SPATIAL and all(sizes[axis] > 1 for axis in every if axis not in changed)
    return [*every] if takes and math.prod(sizes[axis] for axis in rows) >= _ROW else changed


def _is_one_number(array: Array) -> bool:
    """Return whether all elements are the same number."""
    return bool(array.size and (array == array.reshape(-1)[0]).all())


def _weigh(
    call: NodeCall, axes: list[int], scales: list[Fraction], wanted: list[int], mode: str, options: dict[str, Any]
) -> Operand:
    """Multiply by a matrix of weights along each dimension: what the operation of a graph has no form for."""
    source, m = call.tensor(0), call.math
    dtype, rank, form = dtype_of(source), len(source.shape), _MODES[mode]
    exact = dtype if form == "nearest" else "float64" if dtype == "float64" else "float32"
    result: Operand = m.cast(source, exact)
    outside: Array = np.zeros((1,) * rank, np.bool_)
    for number, (axis, scale, size) in enumerate(zip(axes, scales, wanted, strict=True)):
        given = source.shape[axis]
        call.folding.book((3, size, given), np.dtype(np.float64))
        roi = options.get("roi")
        ends = (roi[number], roi[number + len(axes)]) if roi else None
        weights = resize_weights(given, size, scale, form, bool(call.integer("antialias", 0)), {**options, "roi": ends})
        beyond = np.isnan(weights[:, 0])
        shape = [-1 if each == axis else 1 for each in range(rank)]
        outside = outside | beyond.reshape(shape)
        weights = np.where(beyond[:, None], 0.0, weights)
        if form == "nearest":
            result = m.take(result, weights.argmax(1).astype(np.int64), axis)
            continue
        result = _multiply(m, result, weights.astype(exact), axis)
    if outside.any():
        value = m.cast(np.asarray(options["extrapolation"], np.float64), exact)
        result = m.select(outside, m.reshape(value, (1,) * rank), result)
    return m.cast(result, dtype)


def _multiply(m: Tensors, source: Operand, weights: Array, axis: int) -> Operand:
    """Multiply by a matrix of weights along a dimension: from the left along the last but one, else from the right.

    Results that are neighbours see a part of the source, so the matrix is cut along its diagonal.
    """
    rank = len(source.shape)
    if axis < rank - 2:
        order = [*(each for each in range(rank) if each != axis), axis]
        rows = _multiply(m, m.transpose(source, order), weights, rank - 1)
        return m.transpose(rows, [order.index(each) for each in range(rank)])
    parts = []
    for block, first in blocks(weights):
        seen = m.slice(source, [first], [first + block.shape[1]], [axis], [1])
        parts.append(m.matmul(seen, np.ascontiguousarray(block.T)) if axis == rank - 1 else m.matmul(block, seen))
    return m.concat(parts, axis)


def blocks(weights: Array) -> list[tuple[Array, int]]:
    """Return a matrix in blocks of rows, without columns that are zeros in them, and the first column of each.

    It is one block if several would multiply more than half as often.
    """
    found = []
    for first in range(0, len(weights), _BLOCK):
        rows = weights[first : first + _BLOCK]
        columns = np.flatnonzero(np.any(rows, axis=0))
        low, high = (int(columns[0]), int(columns[-1]) + 1) if columns.size else (0, 1)
        found.append((np.ascontiguousarray(rows[:, low:high]), low))
    return found if 2 * sum(block.size for block, _ in found) <= weights.size else [(weights, 0)]


def _resample(call: NodeCall, axes: list[int], wanted: list[int], mode: str, extent: dict[str, Any]) -> Operand:
    source, sizes, m = call.tensor(0), call.shape(0), call.math
    rank = len(sizes)
    kept = [axis for axis in range(rank) if axis not in axes]
    order = [*kept, *axes]
    count = 1
    for axis in kept:
        count *= sizes[axis]
    given = (1, count) if len(kept) != 2 else tuple(sizes[axis] for axis in kept)
    images = m.reshape(
        m.transpose(source, order) if order != sorted(order) else source, (*given, *(sizes[axis] for axis in axes))
    )
    dtype = dtype_of(images)
    result: Operand = call.graph.resampling(m.value(images), _MODES[mode], **extent, name=call.name)
    result = m.reshape(m.cast(result, dtype), (*(sizes[axis] for axis in kept), *wanted))
    return m.transpose(result, [order.index(axis) for axis in range(rank)]) if order != sorted(order) else result


def _extent(
    call: NodeCall, axes: list[int], scales: list[Fraction], wanted: list[int], mode: str, options: dict[str, Any]
) -> dict[str, Any] | None:
    """Return the options with sizes, or with factors if these are not the quotients of the sizes; None if neither fits.

    A factor of float32 is seldom a quotient: the nearest element to a place just before a whole number is another one than to
    the number, and an interpolated element differs by less than its rounding.
    """
    products = [call.shape(0)[axis] * scale for axis, scale in zip(axes, scales, strict=True)]
    if all(
        product == size or (mode != "nearest" and math.isclose(product, size, rel_tol=1e-6))
        for product, size in zip(products, wanted, strict=True)
    ):
        return {**options, "sizes": wanted}
    factors = [float(scale) for scale in scales]
    if [int(product) for product in products] != wanted or (mode == "nearest" and factors != scales):
        return None
    if options["coordinates"] == "align_corners":
        if mode == "nearest":
            return None
        # The corner is that of ``factor * size`` elements, which need not be a whole number: the last element is before it.
        ends = [
            0.0 if size == 1 else float((size - 1) / (product - 1))
            for size, product in zip(wanted, products, strict=True)
        ]
        return {**options, "coordinates": "tf_crop_and_resize", "roi": [0.0] * len(ends) + ends, "sizes": wanted}
    if options["coordinates"] == "half_pixel":
        if 1 in wanted:
            return None
        # The same, but for sizes of 1.
        options = {**options, "coordinates": "pytorch_half_pixel"}
    return {**options, "factors": factors}


def _targets(call: NodeCall, axes: list[int]) -> tuple[list[Fraction], list[int]]:
    """Return the factor and the size of every dimension."""
    sizes = call.shape(0)
    scales, wanted = [Fraction(1)] * len(sizes), list(sizes)
    place = 2 if call.opset >= 11 else 1
    if call.opset >= 11 and call.has(3) and call.shape(3) != (0,):
        given = call.known_integers(3, "sizes")
        if len(given) != len(axes) or min(given, default=1) < 1:
            raise call.malformed(f"sizes: expect {len(axes)} numbers of at least 1, got {given}")
        policy = call.text("keep_aspect_ratio_policy", "stretch")
        if policy == "stretch":
            for axis, size in zip(axes, given, strict=True):
                wanted[axis], scales[axis] = size, Fraction(size, sizes[axis])
            return scales, wanted
        if policy not in ("not_larger", "not_smaller"):
            raise call.malformed(f"unknown keep_aspect_ratio_policy {policy!r}")
        factors = [Fraction(size, sizes[axis]) for axis, size in zip(axes, given, strict=True)]
        factor = min(factors) if policy == "not_larger" else max(factors)
        for axis in axes:
            # Rounded to nearest, halves up.
            scales[axis], wanted[axis] = factor, int(factor * sizes[axis] + Fraction(1, 2))
        return scales, wanted
    if "scales" in call.attrs:
        numbers = list(call.numbers("scales"))
    else:
        numbers = [float(each) for each in call.known(place, "scales").reshape(-1)[: 2 * len(axes) + 1]]
    if len(numbers) != len(axes) or not all(0.0 < each < 1e9 for each in numbers):
        raise call.malformed(f"scales: expect {len(axes)} positive numbers below 1e9, got {tuple(numbers)}")
    for axis, number in zip(axes, numbers, strict=True):
        scales[axis], wanted[axis] = Fraction(number), int(sizes[axis] * Fraction(number))
    return scales, wanted


def _region(call: NodeCall, axes: list[int]) -> dict[int, tuple[float, float]]:
    found = [float(each) for each in call.known(1, "roi").reshape(-1)[: 2 * len(axes) + 1]]
    if len(found) != 2 * len(axes):
        raise call.malformed(f"roi: expect {2 * len(axes)} numbers, got {len(found)}")
    return {axis: (found[index], found[index + len(axes)]) for index, axis in enumerate(axes)}


OPERATORS: Final[Mapping[str, Operator]] = {"Resize": resize, "Upsample": resize}
