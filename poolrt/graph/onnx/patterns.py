"""GELU and swish as exporters spell them out.

GELU is x / 2 times 1 plus erf(x / sqrt(2)), or 1 plus tanh(sqrt(2 / pi) * (x + 0.044715 x^3)), in any order of the factors;
swish is x times its logistic function.
"""

from __future__ import annotations

import math
from typing import Final

from poolrt.cachestore.deferred_dataclass import dataclass, field

from ..values import Value
from .folding import Array
from .tensors import Operand

#: Relative difference of a constant from 0.044715 or a root, by the data type of the constants: half a step of float16 and more,
#: and what exporters that write five digits leave. A constant of float32 that is further off makes errors of 1e-5 and more.
_CLOSE: Final = {"float64": 1e-9, "float32": 1e-5}
_CLOSE_16: Final = 1e-3


@dataclass(frozen=True, slots=True)
class Patterns:
    """What is known of values of the graph, by their numbers: factors, powers, functions, and products of these."""

    #: x and c, of c * x
    scaled: dict[int, tuple[Value, float]] = field(default_factory=dict)
    #: x, of the logistic function of x
    logistic: dict[int, Value] = field(default_factory=dict)
    #: x, of x^2
    square: dict[int, Value] = field(default_factory=dict)
    #: x, of x^3
    cube: dict[int, Value] = field(default_factory=dict)
    #: x, of x + 0.044715 x^3
    bent: dict[int, Value] = field(default_factory=dict)
    #: x, of erf(x / sqrt(2)) and tanh(sqrt(2 / pi) * (x + 0.044715 x^3)), and the algorithm that this belongs to
    inner: dict[int, tuple[Value, str]] = field(default_factory=dict)
    #: the same, of 1 plus these
    above: dict[int, tuple[Value, str]] = field(default_factory=dict)
    #: the same, of x times 1 plus these
    doubled: dict[int, tuple[Value, str]] = field(default_factory=dict)

    def note_erf(self, source: Value, result: Operand) -> None:
        """Note the error function of a value."""
        found = self.scaled.get(source.id)
        if found is not None and isinstance(result, Value) and _is_close(found[1], math.sqrt(0.5), source):
            self.inner[result.id] = found[0], "gelu_erf"

    def note_function(self, source: Value, algorithm: str, result: Value) -> None:
        """Note a function of one variable."""
        if algorithm == "logistic":
            self.logistic[result.id] = source
        elif algorithm == "tanh":
            bent, factor = self.scaled.get(source.id, (source, 0.0))
            if bent.id in self.bent and _is_close(factor, math.sqrt(2 / math.pi), source):
                self.inner[result.id] = self.bent[bent.id], "gelu_tanh"

    def note_power(self, base: Operand, exponent: float, result: Operand) -> None:
        """Note a power with a constant exponent."""
        if exponent == 3.0 and isinstance(base, Value) and isinstance(result, Value) and base.shape == result.shape:
            self.cube[result.id] = base

    def note(self, left: Operand, right: Operand, algorithm: str, result: Value) -> None:
        """Note what a function of two operands is."""
        if isinstance(left, Value) and isinstance(right, Value):
            if algorithm == "mul" and left is right:
                self.square[result.id] = left
            for x, other in ((left, right), (right, left)):
                if algorithm == "mul" and self.square.get(other.id) is x:
                    self.cube[result.id] = x
                if algorithm == "mul" and (known := self.above.get(other.id)) is not None and known[0] is x:
                    self.doubled[result.id] = known
                if algorithm == "add" and (part := self.scaled.get(other.id)) is not None:
                    cube, number = part
                    if self.cube.get(cube.id) is x and _is_close(number, 0.044715, x):
                        self.bent[result.id] = x
            return
        value, number = _split(left, right, algorithm)
        if value is None or value.shape != result.shape:
            return
        if algorithm in ("mul", "div"):
            self.scaled[result.id] = (value, number)
        elif algorithm == "add" and number == 1.0 and value.id in self.inner:
            self.above[result.id] = self.inner[value.id]

    def function(self, left: Operand, right: Operand, algorithm: str) -> tuple[Value, str] | None:
        """Return x and GELU's or swish's algorithm if a function of two operands is that of x, else None."""
        if algorithm not in ("mul", "div"):
            return None
        if isinstance(left, Value) and isinstance(right, Value):
            for factor, other in ((left, right), (right, left)):
                if algorithm == "mul" and self.logistic.get(other.id) is factor:
                    return factor, "swish"
                x, number = self.scaled.get(factor.id, (None, 0.0))
                known = self.above.get(other.id)
                if algorithm == "mul" and x is not None and number == 0.5 and known is not None and known[0] is x:
                    return known
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


def _is_close(number: float, wanted: float, value: Value) -> bool:
    """Return whether a constant beside a value is the one of a function, as far as the value's data type can say."""
    return math.isclose(number, wanted, rel_tol=_CLOSE.get(value.dtype, _CLOSE_16))


def _number(array: Array) -> float:
    return float(array.reshape(()))
