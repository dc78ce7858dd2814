"""A network that `export` writes, and the kinds of inputs that networks have."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

import torch
from parts import CachedDecoder
from torch import Tensor, nn

VOCABULARY: Final = 64


@dataclass
class Network:
    """A module, its example inputs, and which of their dimensions may change.

    The last ``repeated`` inputs are one argument ``*past`` of the module.
    """

    module: nn.Module
    make: Callable[[int, int], dict[str, Tensor]]
    open: dict[str, dict[int, str]] = field(default_factory=dict)
    batch: int = 2
    length: int = 0
    other: int = 0
    is_large: bool = False
    repeated: int = 0

    def feeds(self) -> dict[str, Tensor]:
        """Return the inputs that the exporter sees."""
        return self._make(self.batch, self.length)

    def other_feeds(self) -> dict[str, Tensor]:
        """Return inputs of other sizes."""
        return self._make(self.batch + 1, self.other or self.length)

    def _make(self, batch: int, length: int) -> dict[str, Tensor]:
        torch.manual_seed(batch)
        return self.make(batch, length)


def image(module: nn.Module, size: int, full: bool, *, other: int = 0) -> Network:
    """Return a network of square images."""
    open_sizes = {0: "batch"} | ({2: "height", 3: "width"} if other else {})
    return Network(
        module,
        lambda b, s: {"x": torch.randn(b, 3, s, s)},
        {"x": open_sizes},
        1 + (not full),
        size,
        other,
        is_large=full,
    )


def text(module: nn.Module, full: bool, *, mask: bool = True, vocabulary: int = VOCABULARY) -> Network:
    """Return a network of rows of tokens."""

    def make(batch: int, length: int) -> dict[str, Tensor]:
        feeds = {"input_ids": torch.randint(0, vocabulary, (batch, length))}
        if mask:
            lengths = torch.randint(1, length + 1, (batch, 1))
            feeds["attention_mask"] = (torch.arange(length)[None] < lengths).to(torch.int64)
        return feeds

    sizes = {0: "batch", 1: "length"}
    length = 128 if full else 8
    return Network(module, make, {"input_ids": sizes, "attention_mask": sizes}, 2, length, length + 3, full)


def cached(model: nn.Module, layers: int, heads: int, size: int, full: bool) -> Network:
    """Decode tokens after some that are in a cache of keys and values."""
    new = 1 if full else 3

    def make(batch: int, past: int) -> dict[str, Tensor]:
        feeds = {
            "input_ids": torch.randint(0, VOCABULARY, (batch, new)),
            "attention_mask": torch.ones(batch, past + new, dtype=torch.int64),
        }
        for layer in range(layers):
            for kind in ("key", "value"):
                feeds[f"past_{kind}_{layer}"] = torch.randn(batch, heads, past, size)
        return feeds

    open_sizes = {name: {0: "batch", 2: "past"} for name in make(1, 1)}
    open_sizes |= {"input_ids": {0: "batch"}, "attention_mask": {0: "batch", 1: "total"}}
    past = 64 if full else 5
    return Network(CachedDecoder(model), make, open_sizes, 2, past, past + 2, full, 2 * layers)
