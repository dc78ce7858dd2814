"""Matrix products."""

from __future__ import annotations

from typing import Unpack

from ..values import NodeOptions, Operand, Value
from .family import Family


class Products(Family):
    """Matmul and inner product. The result of integers is s32 unless ``dtype`` or ``scales`` are given."""

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
