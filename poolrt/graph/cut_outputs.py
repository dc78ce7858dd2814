"""Outputs whose size is known only after a run: there is room for the largest, and the arrays are cut to what a run counted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, MutableMapping
from typing import TYPE_CHECKING, Any

from poolrt.cachestore.deferred_dataclass import dataclass

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Cut:
    """Along ``axis``, an output has as many elements as ``count``, another output of one integer that callers do not see.

    With an ``empty`` shape, it has no elements, and this shape.
    """

    axis: int
    count: str
    empty: tuple[int, ...] | None = None


def cut_outputs(outputs: MutableMapping[str, NDArray[Any]], cuts: Mapping[str, Cut]) -> None:
    """Cut the outputs of a run, in place: they become C-contiguous arrays of their real shape; counts are taken out."""
    for name, cut in cuts.items():
        whole, axis = outputs[name], cut.axis
        size = min(max(outputs[cut.count].item(), 0), whole.shape[axis])
        part = whole[:size] if axis == 0 else whole[(slice(None),) * axis + (slice(size),)]
        if cut.empty is not None:
            part = part.reshape(cut.empty)
        outputs[name] = part if part.flags.c_contiguous else part.copy()
    for cut in cuts.values():
        # Several outputs may have one count.
        outputs.pop(cut.count, None)


def hidden_outputs(cuts: Iterable[Cut]) -> frozenset[str]:
    """Return the names of the outputs that callers do not see."""
    return frozenset(cut.count for cut in cuts)
