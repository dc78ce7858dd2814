"""GELU as exporters spell it out: x / 2 times 1 plus erf(x / sqrt(2)), in any order of the factors."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from ..values import Value
from .folding import Array
from .tensors import Operand

#: Relative difference of a constant from 0.5 or the root of 2: that of float16.
_CLOSE = 1e-3


@dataclass(frozen=True, slots=True)
class Patterns:
    """What is known of values of the graph, by their numbers: factors, error functions, and products of both."""

    #: x and c, of c * x
    scaled: dict[int, tuple[Value, float]] = field(default_factory=dict)
    #: x, of erf(x / sqrt(2))
    erf: dict[int, Value] = field(default_factory=dict)
    #: x, of 1 + erf(x / sqrt(2))
    above: dict[int, Value] = field(default_factory=dict)
    #: x, of x * (1 + erf(x / sqrt(2)))
    doubled: dict[int, Value] = field(default_factory=dict)

    def note_erf(self, source: Value, result: Operand) -> None:
        """Note the error function of a value."""
        found = self.scaled.get(source.id)
        if found is not None and isinstance(result, Value) and math.isclose(found[1], math.sqrt(0.5), rel_tol=_CLOSE):
            self.erf[result.id] = found[0]

    def note(self, left: Operand, right: Operand, algorithm: str, result: Value) -> None:
        """Note what a function of two operands is."""
        if isinstance(left, Value) and isinstance(right, Value):
            for x, factor in ((left, right), (right, left)):
                if algorithm == "mul" and self.above.get(factor.id) is x:
                    self.doubled[result.id] = x
            return
        value, number = _split(left, right, algorithm)
        if value is None or value.shape != result.shape:
            return
        if algorithm in ("mul", "div"):
            self.scaled[result.id] = (value, number)
        elif algorithm == "add" and number == 1.0 and value.id in self.erf:
            self.above[result.id] = self.erf[value.id]

    def gelu(self, left: Operand, right: Operand, algorithm: str) -> Value | None:
        """Return x if a function of two operands is its GELU, else None."""
        if algorithm not in ("mul", "div"):
            return None
        if isinstance(left, Value) and isinstance(right, Value):
            for half, factor in ((left, right), (right, left)):
                x, number = self.scaled.get(half.id, (None, 0.0))
                if algorithm == "mul" and x is not None and number == 0.5 and self.above.get(factor.id) is x:
                    return x
            return None
        value, number = _split(left, right, algorithm)
        return self.doubled.get(value.id) if value is not None and number == 0.5 else None


def _split(left: Operand, right: Operand, algorithm: str) -> tuple[Value | None, float]:
    """Return a tensor and the number that it is multiplied by, or that is added to it."""
    if isinstance(left, Value) and not isinstance(right, Value) and right.size == 1:
        number = _number(right)
        return left, (1.0 / number if number else math.inf) if algorithm == "div" else number
    if isinstance(right, Value) and not isinstance(left, Value) and left.size == 1 and algorithm != "div":
        return right, _number(left)
    return None, 0.0


def _number(array: Array) -> float:
    return float(array.reshape(()))
