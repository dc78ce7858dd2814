"""Operations that move a window over spatial dimensions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Unpack

from poolrt.workers.desc.typed import to_float, to_floats, to_integer, to_integers

from ..ir import Attribute
from ..values import NodeOptions, Operand, Padding, Spatial, Value, split_padding, spread_spatial
from .family import Family


class Windows(Family):
    """Convolution, deconvolution, pooling, resampling, samples at places of a grid and in boxes."""

    def convolution(
        self,
        src: Operand,
        weights: Operand,
        bias: Operand | None = None,
        *,
        strides: Spatial = 1,
        padding: Padding = 0,
        dilations: Spatial = 0,
        groups: int = 1,
        **options: Unpack[NodeOptions],
    ) -> Value:
        """Cross-correlate src (N, IC, *spatial) with weights (OC, IC / groups, *kernel); bias is (OC,).

        ``strides`` and ``dilations`` are one integer or one for each spatial dimension; a dilation counts the elements
        skipped between taps, so 0 is a dense kernel. ``padding`` is one integer, one for each spatial dimension, or a
        pair (before, after) for each. The result is (N, OC, *out). Limitation: with padding, a computed zero point of src is a
        number of its type.
        """
        with self._build("convolution", **options) as node:
            dtype = node.type_of(src, weights)
            value = node.operand("src", src, dtype)
            operands = [value, node.operand("weights", weights, dtype), *node.optional("bias", bias, dtype)]
            return node.add(
                operands, **_window(value.ndim - 2, strides, padding, dilations), groups=to_integer("groups", groups)
            )

    def deconvolution(
        self,
        src: Operand,
        weights: Operand,
        bias: Operand | None = None,
        *,
        strides: Spatial = 1,
        padding: Padding = 0,
        dilations: Spatial = 0,
        output_padding: Spatial = 0,
        groups: int = 1,
        **options: Unpack[NodeOptions],
    ) -> Value:
        """Transpose a convolution: src (N, IC, *spatial), weights (OC, IC / groups, *kernel), bias (OC,).

        The other arguments are those of the convolution that takes the result (N, OC, *out) to the sizes of src. If
        its strides leave a choice, ``output_padding`` adds that many elements at the end of each spatial dimension.
        """
        with self._build("deconvolution", **options) as node:
            dtype = node.type_of(src, weights)
            value, kernel = node.operand("src", src, dtype), node.operand("weights", weights, dtype)
            window = _window(value.ndim - 2, strides, padding, dilations)
            extra = spread_spatial("output_padding", output_padding, value.ndim - 2)
            operands = [value, kernel, *node.optional("bias", bias, dtype)]
            return node.add(operands, **window, groups=to_integer("groups", groups), output_padding=extra)

    def pooling(
        self,
        src: Operand,
        algorithm: str,
        kernel: Spatial,
        *,
        strides: Spatial = 1,
        padding: Padding = 0,
        dilations: Spatial = 0,
        **options: Unpack[NodeOptions],
    ) -> Value:
        """Pool windows of src (N, C, *spatial) with ``max``, ``avg_include_padding`` or ``avg_exclude_padding``.

        The other arguments are those of `convolution`, the kernel one integer or one for each spatial dimension.
        """
        with self._build("pooling", **options) as node:
            value = node.operand("src", src)
            size = spread_spatial("kernel", kernel, value.ndim - 2)
            window = _window(value.ndim - 2, strides, padding, dilations)
            return node.add([value], algorithm=algorithm, kernel=size, **window)

    def resampling(
        self,
        src: Operand,
        algorithm: str,
        sizes: Spatial | None = None,
        *,
        factors: float | Sequence[float] | None = None,
        coordinates: str = "half_pixel",
        nearest: str = "round_prefer_ceil",
        cubic_coeff_a: float = -0.75,
        exclude_outside: bool = False,
        roi: Sequence[float] = (),
        extrapolation: float = 0.0,
        **options: Unpack[NodeOptions],
    ) -> Value:
        """Resample src (N, C, *spatial) to spatial ``sizes``, or to its own times ``factors`` (rounded down).

        ``nearest`` takes the element whose centre is nearest, ``linear`` weighs the two neighbours along each dimension,
        ``cubic`` four. The other arguments are those of ONNX's Resize: `desc.operations.resampling` defines them.
        """
        with self._build("resampling", **options) as node:
            value = node.operand("src", src)
            count = value.ndim - 2
            if (sizes is None) == (factors is None):
                raise ValueError("sizes: expect either sizes or factors")
            wanted = () if sizes is None else spread_spatial("sizes", sizes, count)
            scaled: tuple[float, ...] = ()
            if factors is not None:
                try:
                    scaled = (to_float("factors", factors),) * count
                except ValueError:
                    scaled = to_floats("factors", factors)
            attrs: dict[str, Attribute] = {"algorithm": algorithm, "sizes": wanted, "factors": scaled}
            given: dict[str, Attribute] = {
                "coordinates": coordinates,
                "nearest": nearest,
                "cubic_coeff_a": to_float("cubic_coeff_a", cubic_coeff_a),
                "exclude_outside": bool(exclude_outside),
                "roi": to_floats("roi", roi),
                "extrapolation": to_float("extrapolation", extrapolation),
            }
            usual = {"coordinates": "half_pixel", "nearest": "round_prefer_ceil", "cubic_coeff_a": -0.75}
            attrs |= {name: item for name, item in given.items() if item != usual.get(name) and item}
            return node.add([value], **attrs)

    def grid_sample(
        self,
        src: Operand,
        grid: Operand,
        algorithm: str = "linear",
        *,
        padding: str = "zeros",
        align_corners: bool = False,
        **options: Unpack[NodeOptions],
    ) -> Value:
        """Sample src (N, C, *spatial) at the places of a grid (N, *out, D) of its D spatial dimensions, as PyTorch's function.

        The first number of a place is along the last dimension; -1 and 1 are the outer edges of src, with ``align_corners`` the
        centres of its first and last element. ``nearest``, ``linear`` and ``cubic`` are those of `resampling`. Elements outside
        are ``zeros``, those at the ``border``, or mirrored there (``reflection``). The result is (N, C, *out).
        """
        with self._build("grid_sample", **options) as node:
            operands = [node.operand("src", src), node.operand("grid", grid)]
            return node.add(operands, algorithm=algorithm, padding=padding, align_corners=bool(align_corners))

    def roi_align(
        self,
        src: Operand,
        boxes: Operand,
        images: Operand,
        parts: tuple[int, int],
        algorithm: str = "mean",
        *,
        samples: int = 0,
        scale: float = 1.0,
        half_pixel: bool = True,
        **options: Unpack[NodeOptions],
    ) -> Value:
        """Cut each of the boxes (K, 4) of src (N, C, H, W) into ``parts``, down and across, and pool samples of each.

        A box is x1, y1, x2 and y2, times ``scale``, less 0.5 with ``half_pixel``; ``images`` (K,) are the numbers of their
        images. A part has ``samples`` along each dimension, or of 0 as many as it has elements. Each sample weighs four elements.
        ``mean`` is of samples, ``max`` of weighed elements. The result is (K, C, parts down, parts across).
        """
        with self._build("roi_align", **options) as node:
            operands = [node.operand("src", src), node.operand("boxes", boxes), node.operand("images", images, "s64")]
            sizes = to_integers("parts", parts)
            if len(sizes) != 2:
                raise ValueError(f"parts: expect two integers, got {len(sizes)}")
            attrs: dict[str, Attribute] = {"samples": to_integer("samples", samples), "scale": to_float("scale", scale)}
            return node.add(operands, parts=sizes, algorithm=algorithm, half_pixel=bool(half_pixel), **attrs)

    def fold(
        self,
        src: Operand,
        image: Sequence[int],
        *,
        strides: Spatial = 1,
        padding: Spatial = 0,
        dilations: Spatial = 0,
        **options: Unpack[NodeOptions],
    ) -> Value:
        """Add up the blocks of an image at their places; src is (N, C, *kernel, *positions), the result (N, C, *image).

        Element k of the block at position o is at o * stride + k * (dilation + 1) - padding in each of one to three dimensions;
        elements outside of the image are left out.
        """
        with self._build("fold", **options) as node:
            sizes = to_integers("image", image)
            given = (("strides", strides), ("dilations", dilations), ("padding_l", padding))
            attrs: dict[str, Attribute] = {name: spread_spatial(name, value, len(sizes)) for name, value in given}
            return node.add([node.operand("src", src)], image=sizes, **attrs)


def _window(ndims: int, strides: Spatial, padding: Padding, dilations: Spatial) -> dict[str, Attribute]:
    if ndims < 1:
        raise ValueError(f"src: expect (N, C, *spatial), got rank {ndims + 2}")
    before, after = split_padding(padding, ndims)
    return {
        "strides": spread_spatial("strides", strides, ndims),
        "dilations": spread_spatial("dilations", dilations, ndims),
        "padding_l": before,
        "padding_r": after,
    }
