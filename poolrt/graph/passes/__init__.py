"""Passes: pure functions from graph to graph that leave every output's values (up to rounding) as they were."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from poolrt.cachestore.deferred_namedtuple import NamedTuple

from ..ir import GraphIR

if TYPE_CHECKING:
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

    PASSES: tuple[Callable[[GraphIR], GraphIR], ...]

__all__ = [
    "PASSES", "add_masks", "fold_affine", "fold_constants", "fold_quantisation", "fuse_post_ops", "join_batches",
    "keep_rows_flat", "merge_affine", "optimize", "quantise_at_once", "remove_dead", "remove_identities", "rescale_products",
    "shuffle_less", "use_attention", "use_inner_product", "use_normalization", "use_shuffle",
]  # fmt: skip


class Pass(NamedTuple):
    """A pass: its module, its name, and the kinds of nodes of which a graph that it changes has one; None: any graph."""

    module: str
    name: str
    kinds: frozenset[str] | None = None

    def load(self) -> Callable[[GraphIR], GraphIR]:
        """Return the function; a small graph needs few, and imports no others."""
        found: Callable[[GraphIR], GraphIR] = getattr(import_module(f".{self.module}", __name__), self.name)
        return found


_VIEWS: Final = frozenset({"reshape", "expand", "transpose", "slice"})
_FUSED: Final = frozenset({"convolution", "inner_product", "batch_normalization", "sum", "binary"})
#: The order matters: constants and identities hide the patterns of the later passes, and joined batches those of attention.
ORDER: Final = (
    Pass("constants", "fold_constants", _VIEWS),
    Pass("quantised", "fold_quantisation", frozenset({"reorder"})),
    Pass("rescaled", "rescale_products", frozenset({"reorder"})),
    Pass("spelled_normalization", "use_normalization", frozenset({"binary"})),
    Pass("masked_scores", "add_masks", frozenset({"select"})),
    Pass("attention", "use_attention", frozenset({"softmax"})),
    Pass("batches", "join_batches", frozenset({"matmul"})),
    Pass("constants", "fold_constants", _VIEWS),
    Pass("identities", "remove_identities"),
    Pass("shuffled", "use_shuffle", frozenset({"transpose"})),
    Pass("flat_rows", "keep_rows_flat", frozenset({"reshape"})),
    Pass("affine", "merge_affine", frozenset({"batch_normalization"})),
    Pass("inner_product", "use_inner_product", frozenset({"matmul"})),
    Pass("affine", "fold_affine", frozenset({"convolution", "inner_product"})),
    Pass("quantising", "quantise_at_once", frozenset({"binary"})),
    Pass("post_ops", "fuse_post_ops", _FUSED),
    Pass("shuffled", "shuffle_less", frozenset({"shuffle"})),
    Pass("dead", "remove_dead"),
)


def optimize(ir: GraphIR) -> GraphIR:
    """Return the graph after every pass."""
    for each in ORDER:
        if each.kinds is None or any(node.kind in each.kinds for node in ir.nodes):
            ir = each.load()(ir)
    return ir


def __getattr__(name: str) -> Any:
    if name == "PASSES":
        return tuple(each.load() for each in ORDER)
    for each in ORDER:
        if each.name == name:
            return each.load()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name)
