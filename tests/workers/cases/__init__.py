"""Problems for every operation: random and odd shapes, edge cases and values, shared by the suites of all engines.

A case is engine-neutral: arrays in logical dimensions, a descriptor, post-ops and the tolerance that the result must
meet. ``cases(kind, layout)`` gives them with plain layouts, or with activations blocked by 16 channels.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from .case import Array, Case, blocked, integers, normals
from .movement import concat_cases, reorder_cases
from .normalization import batch_normalization_cases, lrn_cases, softmax_cases
from .pointwise import binary_cases, eltwise_cases, sum_cases
from .products import inner_product_cases, matmul_cases
from .windows import convolution_cases, pooling_cases

__all__ = ["KINDS", "Array", "Case", "blocked", "cases", "integers", "normals"]

_MAKERS: Final[dict[str, Callable[[], list[Case]]]] = {
    "batch_normalization": batch_normalization_cases,
    "binary": binary_cases,
    "concat": concat_cases,
    "convolution": convolution_cases,
    "eltwise": eltwise_cases,
    "inner_product": inner_product_cases,
    "lrn": lrn_cases,
    "matmul": matmul_cases,
    "pooling": pooling_cases,
    "reorder": reorder_cases,
    "softmax": softmax_cases,
    "sum": sum_cases,
}

#: Operations with cases.
KINDS: Final = tuple(_MAKERS)


def cases(kind: str, layout: str = "plain") -> list[Case]:
    """Return the cases of an operation in layout ``plain`` or ``blocked`` (16 channels, where the rank allows)."""
    found = _MAKERS[kind]()
    return found if layout == "plain" else [b for case in found if (b := blocked(case)) is not None]
