"""Resize and Upsample."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

from ...values import Value
from ..call import NodeCall, Operator
from ..folding import Array
from ..tensors import Operand, dtype_of

_MODES: Final = {"nearest": "nearest", "linear": "linear", "bilinear": "linear", "cubic": "cubic"}


def resize(call: NodeCall) -> Operand:
    """Resample the dimensions that change; all others are moved to the front and joined to images and channels."""
    sizes = call.shape(0)
    rank = len(sizes)
    axes = [axis % rank for axis in call.integers("axes", range(rank))] if rank else []
    if len(set(axes)) != len(axes):
        raise call.malformed(f"axes: expect each axis once, got {axes}")
    if call.integer("antialias", 0):
        raise call.unsupported("antialias=1 is not supported")
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
    if options["coordinates"] == "tf_half_pixel_for_nn":
        raise call.unsupported("coordinate_transformation_mode='tf_half_pixel_for_nn' is not supported")
    crops = options["coordinates"] == "tf_crop_and_resize"
    changed = [axis for axis in axes if crops or wanted[axis] != sizes[axis] or scales[axis] != 1.0]
    if not changed:
        return call.operand(0)
    source = call.operand(0)
    if not isinstance(source, Value) and mode == "nearest" and not crops and _is_one_number(source):
        # A mask of images that have no padding, which detectors resize.
        return call.folding.fill(source.reshape(-1)[:1], wanted)
    if crops:
        region = _region(call, axes)
        changed = [axis for axis in changed if region[axis] != (0.0, 1.0) or wanted[axis] != sizes[axis]]
        options["roi"] = [region[axis][side] for side in range(2) for axis in changed]
    return _resample(
        call, changed, [scales[axis] for axis in changed], [wanted[axis] for axis in changed], mode, options
    )


def _is_one_number(array: Array) -> bool:
    """Return whether all elements are the same number."""
    return bool(array.size and (array == array.reshape(-1)[0]).all())


def _resample(
    call: NodeCall, axes: list[int], scales: list[float], wanted: list[int], mode: str, options: dict[str, Any]
) -> Operand:
    source, sizes, m = call.real(0), call.shape(0), call.math
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
    result: Operand = call.graph.resampling(
        m.value(images), _MODES[mode], **_extent(call, axes, scales, wanted, options), name=call.name
    )
    result = m.reshape(m.cast(result, dtype), (*(sizes[axis] for axis in kept), *wanted))
    return m.transpose(result, [order.index(axis) for axis in range(rank)]) if order != sorted(order) else result


def _extent(
    call: NodeCall, axes: list[int], scales: list[float], wanted: list[int], options: dict[str, Any]
) -> dict[str, Any]:
    """Return the options with sizes, or with factors if these are not the quotients of the sizes."""
    products = [call.shape(0)[axis] * scale for axis, scale in zip(axes, scales, strict=True)]
    if all(math.isclose(product, size, rel_tol=1e-6) for product, size in zip(products, wanted, strict=True)):
        return {**options, "sizes": wanted}
    if [int(product) for product in products] != wanted:
        raise call.unsupported("a size that is rounded up is not supported")
    if options["coordinates"] == "align_corners":
        raise call.unsupported("align_corners with a size that is rounded down is not supported")
    if options["coordinates"] == "half_pixel":
        if 1 in wanted:
            raise call.unsupported("half_pixel with a size of 1 that is rounded down is not supported")
        # The same, but for sizes of 1.
        options = {**options, "coordinates": "pytorch_half_pixel"}
    return {**options, "factors": scales}


def _targets(call: NodeCall, axes: list[int]) -> tuple[list[float], list[int]]:
    """Return the factor and the size of every dimension."""
    sizes = call.shape(0)
    scales, wanted = [1.0] * len(sizes), list(sizes)
    place = 2 if call.opset >= 11 else 1
    if call.opset >= 11 and call.has(3) and call.shape(3) != (0,):
        given = call.known_integers(3, "sizes")
        if len(given) != len(axes) or min(given, default=1) < 1:
            raise call.malformed(f"sizes: expect {len(axes)} numbers of at least 1, got {given}")
        policy = call.text("keep_aspect_ratio_policy", "stretch")
        if policy == "stretch":
            for axis, size in zip(axes, given, strict=True):
                wanted[axis], scales[axis] = size, size / sizes[axis]
            return scales, wanted
        if policy not in ("not_larger", "not_smaller"):
            raise call.malformed(f"unknown keep_aspect_ratio_policy {policy!r}")
        factors = [size / sizes[axis] for axis, size in zip(axes, given, strict=True)]
        factor = min(factors) if policy == "not_larger" else max(factors)
        for axis in axes:
            # Rounded to nearest, halves up.
            scales[axis], wanted[axis] = factor, int(factor * sizes[axis] + 0.5)
        return scales, wanted
    if "scales" in call.attrs:
        numbers = list(call.numbers("scales"))
    else:
        numbers = [float(each) for each in call.known(place, "scales").reshape(-1)[: 2 * len(axes) + 1]]
    if len(numbers) != len(axes) or not all(0.0 < each < 1e9 for each in numbers):
        raise call.malformed(f"scales: expect {len(axes)} positive numbers, got {len(numbers)}")
    for axis, number in zip(axes, numbers, strict=True):
        scales[axis], wanted[axis] = number, int(sizes[axis] * number)
        if wanted[axis] < 1:
            raise call.unsupported("a size of 0")
    return scales, wanted


def _region(call: NodeCall, axes: list[int]) -> dict[int, tuple[float, float]]:
    found = [float(each) for each in call.known(1, "roi").reshape(-1)[: 2 * len(axes) + 1]]
    if len(found) != 2 * len(axes):
        raise call.malformed(f"roi: expect {2 * len(axes)} numbers, got {len(found)}")
    return {axis: (found[index], found[index + len(axes)]) for index, axis in enumerate(axes)}


OPERATORS: Final[Mapping[str, Operator]] = {"Resize": resize, "Upsample": resize}
