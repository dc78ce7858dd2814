"""Sequences of tensors: a model's nodes make and take apart sequences, and a graph has their tensors alone."""

from __future__ import annotations

from typing import TypeAlias

from poolrt.cachestore.deferred_dataclass import dataclass

from .tensors import Operand


@dataclass(frozen=True, slots=True)
class TensorSequence:
    """Tensors whose number is known while a model is loaded."""

    items: tuple[Operand, ...]


#: What a name of a model may stand for.
Item: TypeAlias = "Operand | TensorSequence"
