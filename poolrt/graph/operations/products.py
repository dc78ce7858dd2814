"""Matrix products."""

from __future__ import annotations

from typing import Unpack

import numpy as np

from poolrt.workers.desc.typed import to_integer

from ..values import NodeOptions, Operand, Value
from .family import Family


class Products(Family):
    """Products. The result of integers is s32 unless ``dtype`` or ``scales`` are given."""

    def matmul(
        self, src: Operand, weights: Operand, bias: Operand | None = None, **options: Unpack[NodeOptions]
    ) -> Value:
        """Multiply src (..., M, K) by weights (..., K, N); bias is (N,) or (1, ..., 1, N).

        Batch dimensions broadcast as in NumPy: a missing one counts as 1, and a 1 is repeated.
        """
        with self._build("matmul", **options) as node:
            dtype = node.type_of(src, weights)
            left, right = node.operand("src", src, dtype), node.operand("weights", weights, dtype)
            extra = node.optional("bias", bias, dtype)
            for argument, value in (("src", left), ("weights", right)):
                if value.ndim < 2:
                    raise ValueError(f"{argument}: expect rank >= 2, got {value.shape}")
            rank = max(left.ndim, right.ndim)
            return node.add([node.pad_rank(value, rank) for value in (left, right, *extra)])

    def inner_product(
        self, src: Operand, weights: Operand, bias: Operand | None = None, **options: Unpack[NodeOptions]
    ) -> Value:
        """Multiply src (N, IC) by the transpose of weights (OC, IC); bias is (OC,), the result (N, OC).

        Of src (N, IC, *spatial) and weights (OC, IC, *spatial) all dimensions but the first are joined to one.
        """
        with self._build("inner_product", **options) as node:
            dtype = node.type_of(src, weights)
            left, right = node.operand("src", src, dtype), node.operand("weights", weights, dtype)
            if left.ndim > 2 and left.shape[1:] == right.shape[1:]:
                left, right = (node.view(value, (0, -1), (0, -1)) for value in (left, right))
            return node.add([left, right, *node.optional("bias", bias, dtype)])

    def matmul_nbits(
        self,
        src: Operand,
        weights: Operand,
        block_scales: Operand,
        block_points: Operand | None = None,
        bias: Operand | None = None,
        *,
        bits: int = 4,
        **options: Unpack[NodeOptions],
    ) -> Value:
        """Multiply src (M, K) by the transpose of weights of ``bits`` 4 or 8; the result is (M, N), the bias (N,).

        Weights are uint8 of shape (N, blocks, bytes), each byte with 8 / ``bits`` numbers, the first in the lowest bits: as in
        ONNX Runtime's MatMulNBits. They count as scale * (number - zero point). Each block of inputs has a scale, (N, blocks),
        and a zero point: (N, blocks) of src's type, or packed as the weights are, (N, bytes) of uint8; unless given, it is
        2 to the power of ``bits`` - 1.
        """
        with self._build("matmul_nbits", **options) as node:
            dtype = node.type_of(src)
            left, right = node.operand("src", src, dtype), node.operand("weights", weights, "u8")
            factors = node.operand("block_scales", block_scales, dtype)
            stored = not isinstance(block_points, Value) and np.asarray(block_points).dtype == np.uint8
            points = node.optional("block_points", block_points, "u8" if stored else dtype)
            added = node.optional("bias", bias, dtype)
            return node.add([left, right, *added, factors, *points], bits=to_integer("bits", bits))

    def determinant(self, src: Operand, **options: Unpack[NodeOptions]) -> Value:
        """Return the determinants (B,) of matrices (B, N, N), which are computed in float64."""
        with self._build("determinant", **options) as node:
            return node.add([node.operand("src", src)])
