"""Plain NumPy float64 references of every operation, and helpers that lay arrays out as a memory descriptor says."""

from .layout import aligned_buffer, assert_padding_is_zero, pack, unpack
from .reference import apply_post_ops, reference

__all__ = ["aligned_buffer", "apply_post_ops", "assert_padding_is_zero", "pack", "reference", "unpack"]
