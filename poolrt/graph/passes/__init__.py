"""Passes: pure functions from graph to graph that leave every output's values (up to rounding) as they were."""

from __future__ import annotations

from ..ir import GraphIR
from .affine import fold_affine, merge_affine
from .attention import use_attention
from .batches import join_batches
from .constants import fold_constants
from .dead import remove_dead
from .flat_rows import keep_rows_flat
from .identities import remove_identities
from .inner_product import use_inner_product
from .masked_scores import add_masks
from .post_ops import fuse_post_ops
from .quantised import fold_quantisation
from .quantising import quantise_at_once
from .rescaled import rescale_products
from .shuffled import shuffle_less, use_shuffle
from .spelled_normalization import use_normalization

__all__ = [
    "PASSES", "add_masks", "fold_affine", "fold_constants", "fold_quantisation", "fuse_post_ops", "join_batches",
    "keep_rows_flat", "merge_affine", "optimize", "quantise_at_once", "remove_dead", "remove_identities", "rescale_products",
    "shuffle_less", "use_attention", "use_inner_product", "use_normalization", "use_shuffle",
]  # fmt: skip

#: The order matters: constants and identities hide the patterns of the later passes, and joined batches those of attention.
PASSES = (
    fold_constants, fold_quantisation, rescale_products, use_normalization, add_masks, use_attention, join_batches,
    fold_constants, remove_identities, use_shuffle, keep_rows_flat, merge_affine, use_inner_product, fold_affine,
    quantise_at_once, fuse_post_ops, shuffle_less, remove_dead,
)  # fmt: skip


def optimize(ir: GraphIR) -> GraphIR:
    """Return the graph after every pass."""
    for run in PASSES:
        ir = run(ir)
    return ir
