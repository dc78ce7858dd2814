"""The reference implementation of each operation. It ends the list of implementations for every kind of engine."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from ...desc import OPERATIONS

if TYPE_CHECKING:
    from ..contract import Implementation

#: Operations that share a class, which takes the operation's kind -> its module.
_SHARED: Final = {
    "batch_normalization": "normalization",
    "group_normalization": "normalization",
    "layer_normalization": "normalization",
    "rnn": "recurrent",
    "lstm": "recurrent",
    "gru": "recurrent",
}

#: A deconvolution is the gradient of a convolution.
_IN_OTHERS: Final = {"deconvolution": "convolution"}


def reference(kind: str, engine_kind: str) -> Implementation[Any] | None:
    """Return the reference implementation of an operation for an engine kind, None where there is none."""
    if kind not in OPERATIONS and kind != "padding":
        return None
    shared = _SHARED.get(kind)
    module = import_module(f".{shared or _IN_OTHERS.get(kind, kind)}", __package__)
    name = "".join(word.capitalize() for word in (shared or kind).split("_"))
    native: Implementation[Any] = getattr(module, f"Reference{name}")(*([kind] if shared else []))
    if engine_kind == "cpu":
        return native
    opencl: Implementation[Any] = import_module("..opencl.reference", __package__).OpenClReference(native)
    return opencl
