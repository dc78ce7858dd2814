"""Graph methods that get arguments of any kind: those that they do not take raise GraphError."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from random import Random
from typing import Any, Final

import numpy as np
import pytest

from poolrt import Graph, GraphError, Value

_TYPES: Final = ("float32", "float32", "float16", "bfloat16", "float64", "int32", "int64", "uint8", "int8", "bool")
#: Given now and then in place of any argument.
_ANYTHING: Final[tuple[Any, ...]] = (
    None, -1, 0, 1, 2, 1.5, math.nan, math.inf, 10**30, "relu", "x", "", b"x", (), (1,), (1, 1), (0, 0), (-1, -1), (1.5, 2),
    [1, 2, 3], ["relu"], {}, {"a": 1}, {"dst": 1.0}, {"src": np.ones(3, np.float32)}, True, object(), np.int64(2),
    np.array(2), "float32",
)  # fmt: skip
#: Part of an annotation -> arguments that may fit.
_LIKELY: Final[dict[str, tuple[Any, ...]]] = {
    "Mapping": ({}, {"dst": 2.0}, {"src": 0.5}, {"src": np.ones((1, 3, 1, 1), np.float32)}, {"dst": math.nan}),
    "Sequence": ((1,), (1, 1), (2, 2), (1, 1, 1, 1), [0, 1], (0, 2, 1, 3), (3, 3), ((1, 1), (1, 1))),
    "Spatial": (1, 2, (1, 1), (2, 2), (1, 2, 1)),
    "Padding": (0, 1, (1, 1), ((1, 1), (1, 1))),
    "str": ("relu", "add", "max", "sum", "mean", "linear", "nearest", "logistic", "float32", "left2right", "batch"),
    "bool": (True, False),
    "int": (0, 1, 2, 3, -1, -5, 100, 4, 8),
    "float": (0.0, 1.0, -1.0, 0.5, 1e-5, math.nan, 2),
}


def _tensor(graph: Graph, random: Random) -> Any:
    """Return an input, or an array."""
    shape = tuple(random.choice((1, 2, 3, 4, 6, 8)) for _ in range(random.choice((0, 1, 2, 3, 4, 4, 5))))
    if random.random() < 0.8:
        return graph.input(f"x{random.random()}", shape, random.choice(_TYPES))
    return np.ones(shape, random.choice(("float32", "int64", "int8", "uint8", "bool")))


def _argument(graph: Graph, random: Random, annotation: str) -> Any:
    is_tensor = "Operand" in annotation or "Value" in annotation
    if random.random() < (0.07 if is_tensor else 0.25):
        return random.choice(_ANYTHING)
    if is_tensor:
        return _tensor(graph, random)
    return random.choice(next((values for part, values in _LIKELY.items() if part in annotation), _ANYTHING))


def _call(graph: Graph, method: Callable[..., Any], random: Random) -> Any:
    """Call a method by the names of its arguments, of which some have their defaults."""
    given = {}
    for name, parameter in inspect.signature(method).parameters.items():
        is_left_out = parameter.default is not parameter.empty and random.random() < 0.6
        if parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY) and not is_left_out:
            given[name] = _argument(graph, random, str(parameter.annotation))
    return method(**given)


def test_what_a_graph_does_not_take_raises_a_graph_error() -> None:
    seed = int(np.random.default_rng().integers(1 << 32))
    random = Random(seed)
    names = [name for name in dir(Graph) if not name.startswith("_") and inspect.isfunction(getattr(Graph, name))]
    taken = 0
    for number in range(2000):
        graph, name = Graph("any"), random.choice(names)
        try:
            found = _call(graph, getattr(graph, name), random)
            taken += 1
            if isinstance(found, Value):
                graph.output("y", found)
                graph.to_wire()
        except GraphError:
            pass
        except Exception as error:  # noqa: BLE001 - that is what is looked for
            pytest.fail(f"seed {seed}, call {number}: {name}: {error!r}")
    assert taken > 20
