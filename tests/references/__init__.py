"""Plain NumPy float64 references of every operation, and helpers that lay arrays out as a memory descriptor says."""

from .compare import assert_close
from .data_types import converted, numpy_type, rounded
from .layout import aligned_buffer, assert_padding_is_zero, between, pack, unpack
from .reference import reference, results

__all__ = [
    "aligned_buffer",
    "assert_close",
    "assert_padding_is_zero",
    "between",
    "converted",
    "numpy_type",
    "pack",
    "reference",
    "results",
    "rounded",
    "unpack",
]
