"""Operations element by element, and reductions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Unpack

from poolrt.workers.desc.typed import to_bool, to_float, to_floats, to_integer

from ..eltwise import complete_parameters
from ..shapes import normalize_axes, normalize_axis
from ..values import NodeOptions, Operand, Value
from .family import Family


class Pointwise(Family):
    """Functions of one, two or many tensors, and reductions along dimensions."""

    def eltwise(
        self,
        src: Operand,
        algorithm: str,
        alpha: float | None = None,
        beta: float | None = None,
        **options: Unpack[NodeOptions],
    ) -> Value:
        """Apply a function of one variable to every element.

        ``relu`` (alpha 0: slope below 0) ``tanh elu`` (alpha 1) ``square abs sqrt linear`` (alpha 1 * x + beta -0)
        ``logistic exp log clip`` (to alpha .. beta) ``clip_v2`` (the same; its gradient differs at the limits)
        ``gelu_erf gelu_tanh hardsigmoid`` (alpha 1/6 * x + beta 1/2, clipped to 0 .. 1) ``hardswish`` (x times
        hardsigmoid) ``softplus`` (log(1 + exp(alpha 1 * x)) / alpha) ``swish`` (x times logistic(alpha 1 * x)) ``mish
        pow`` (alpha 1 * x ** beta) ``round`` (to even) ``floor ceil trunc erf sin cos softsign tan atan asin
        acos sign threshold`` (x if it is above alpha 0, else 0).
        """
        with self._build("eltwise", **options) as node:
            first, second = complete_parameters(algorithm, alpha, beta)
            return node.add([node.operand("src", src)], algorithm=algorithm, alpha=first, beta=second)

    def binary(self, src0: Operand, src1: Operand, algorithm: str, **options: Unpack[NodeOptions]) -> Value:
        """Combine two tensors element by element with ``add sub mul div max min ge gt le lt eq ne and or xor``.

        ``max`` and ``min`` are NaN if either element is.
        Or with ``floor_div`` and ``trunc_div``, quotients rounded down and to zero, and the remainders ``mod`` (of the sign of
        src1, as Python's) and ``fmod`` (of the sign of src0, as C's). Integers divided by 0 give 0, as in NumPy, by ``div``,
        too, which rounds quotients of integers to nearest, even on ties, and saturates.
        Or with ``pow``, src0 to the power of src1, with the special values of C's.
        Or bit by bit, integers of one type: ``bit_and bit_or bit_xor``, and ``shift_left shift_right`` by src1 places.
        ``wrap_add wrap_sub wrap_mul wrap_pow`` are sums, differences, products and powers of integers of one type that wrap as
        NumPy's do; a power with a negative exponent is 0 unless its base is 1 or -1. ``wrap_abs_diff`` is the absolute
        difference.
        Sums, differences and products of int64, int16 and unsigned integers of 16 to 64 bits are exact and wrap; those of
        int32, int8 and uint8 saturate, as oneDNN's do.

        Shapes broadcast as in NumPy: a missing leading dimension counts as 1, and a 1 is repeated. The result has the
        data type of ``src0`` (comparisons and logic give 0 and 1) unless ``dtype`` is given.
        """
        with self._build("binary", **options) as node:
            dtype = node.type_of(src0, src1)
            operands = [node.operand("src0", src0, dtype), node.operand("src1", src1, dtype)]
            rank = max(operand.ndim for operand in operands)
            return node.add([node.pad_rank(operand, rank) for operand in operands], algorithm=algorithm)

    def sum(
        self, srcs: Sequence[Operand], scales_of_srcs: Sequence[float] = (), **options: Unpack[NodeOptions]
    ) -> Value:
        """Add tensors of one shape, each times its number of ``scales_of_srcs`` if these are given."""
        with self._build("sum", **options) as node:
            operands = node.many("srcs", srcs)
            scales = to_floats("scales_of_srcs", scales_of_srcs)
            if scales and len(scales) != len(operands):
                raise ValueError(f"scales_of_srcs: expect {len(operands)} numbers, got {len(scales)}")
            return node.add(operands, **({"scales": scales} if scales else {}))

    def prelu(self, src: Operand, weights: Operand, **options: Unpack[NodeOptions]) -> Value:
        """Multiply negative elements of src by weights, which broadcast to its shape as in NumPy."""
        with self._build("prelu", **options) as node:
            dtype = node.type_of(src, weights)
            value, slopes = node.operand("src", src, dtype), node.operand("weights", weights, dtype)
            return node.add([value, node.pad_rank(slopes, value.ndim)])

    def cumulative_sum(
        self, src: Operand, axis: int, exclusive: bool = False, reverse: bool = False, **options: Unpack[NodeOptions]
    ) -> Value:
        """Sum the elements along an axis up to each one, which an ``exclusive`` sum leaves out; in ``reverse`` from the end.

        Sums of integers wrap.
        """
        with self._build("cumulative_sum", **options) as node:
            value = node.operand("src", src)
            along = normalize_axis(axis, value.ndim)
            left_out, from_end = to_bool("exclusive", exclusive), to_bool("reverse", reverse)
            return node.add([value], axis=along, exclusive=left_out, reverse=from_end)

    def dft(
        self,
        src: Operand,
        axis: int,
        length: int | None = None,
        *,
        inverse: bool = False,
        one_sided: bool = False,
        **options: Unpack[NodeOptions],
    ) -> Value:
        """Transform signals along an axis to their frequencies, or back if ``inverse``, which divides by the length.

        The last dimension of src has real parts alone (1) or real and imaginary parts (2). Signals are cut to ``length``, or
        lengthened with zeros. A ``one_sided`` transform has the frequencies 0 to length // 2; if inverse, src has these, and
        the result is real. On the CPU, float32 and float64 are fast if the length is 65,536 at most and has no prime factor
        above 13: sums are of their type. Otherwise each result is a sum over the signal, in float64.
        """
        with self._build("dft", **options) as node:
            value = node.operand("src", src)
            along, back, half = (
                normalize_axis(axis, value.ndim),
                to_bool("inverse", inverse),
                to_bool("one_sided", one_sided),
            )
            size = value.shape[along]
            whole = max(2 * (size - 1), 1) if back and half else size
            taken = whole if length is None else to_integer("length", length)
            return node.add([value], axis=along, length=taken, inverse=back, one_sided=half)

    def reduction(
        self,
        src: Operand,
        algorithm: str,
        axes: Sequence[int] | int | None = None,
        *,
        keep_dims: bool = True,
        p: float | None = None,
        eps: float = 0.0,
        **options: Unpack[NodeOptions],
    ) -> Value:
        """Reduce src along ``axes`` (negative: from the end; all of them unless given), which become 1 or are dropped.

        ``max min sum mul mean``, or a norm of order ``p`` (2): ``norm_lp_max norm_lp_sum`` (the root of the greater of the
        sum and eps, or of their sum) and ``norm_lp_power_p_max norm_lp_power_p_sum`` (the same without the root).
        """
        with self._build("reduction", **options) as node:
            value = node.operand("src", src)
            reduced = set(range(value.ndim)) if axes is None else normalize_axes(axes, value.ndim)
            keeps = to_bool("keep_dims", keep_dims)
            order = (2.0 if str(algorithm).startswith("norm") else 0.0) if p is None else to_float("p", p)
            result = node.add(
                [value], algorithm=algorithm, p=order, eps=to_float("eps", eps), axes=tuple(sorted(reduced))
            )
            kept = [axis for axis in range(value.ndim) if axis not in reduced]
            return result if keeps else node.pick_axes(result, kept)

    def dynamic_quantise(self, src: Operand, **options: Unpack[NodeOptions]) -> tuple[Value, Value, Value]:
        """Return src as uint8, its scale as float32, and its zero point as uint8: as ONNX's DynamicQuantizeLinear.

        The least and the greatest number, and 0, have 255 steps between them. NaN becomes 0; a tensor with NaN has the scale 1.
        """
        with self._build("dynamic_quantise", **options) as node:
            stored, scale, zero_point = node.add_all([node.operand("src", src)])
            return stored, scale, zero_point
