"""The functions of recurrent cells: ONNX's names and parameters of each direction."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

from ..call import NodeCall

#: ONNX's function, in small letters as ONNX Runtime compares them -> algorithm of eltwise, the defaults of alpha and beta that it
#: takes, and alpha if it takes none.
_KNOWN: Final[dict[str, tuple[str, tuple[float, ...], float]]] = {
    "sigmoid": ("logistic", (), 0.0),
    "tanh": ("tanh", (), 0.0),
    "relu": ("relu", (), 0.0),
    "leakyrelu": ("relu", (0.01,), 0.0),
    "thresholdedrelu": ("threshold", (1.0,), 0.0),
    "elu": ("elu", (1.0,), 0.0),
    "affine": ("linear", (1.0, 0.0), 0.0),
    "hardsigmoid": ("hardsigmoid", (0.2, 0.5), 0.0),
    "softsign": ("softsign", (), 0.0),
    "softplus": ("softplus", (), 1.0),
}
_PARAMETERS: Final = ("activation_alpha", "activation_beta")


class Activation(NamedTuple):
    """A function: its name in the model, how many parameters it takes, and its algorithm of eltwise with alpha and beta."""

    given: str
    takes: int
    name: str
    alpha: float
    beta: float


def activations_of(call: NodeCall, usual: Sequence[str], directions: int) -> list[tuple[Activation, ...]]:
    """Return the functions of each direction.

    Numbers of ``activation_alpha`` and ``activation_beta`` belong to those that take them, in order; further ones have defaults.
    Raises UnsupportedNode for functions that there are not here, ModelError for another number of them.
    """
    names = call.texts("activations", [*usual] * directions)
    if len(names) != len(usual) * directions:
        raise call.malformed(f"activations: expect {len(usual) * directions}, got {len(names)}")
    numbers = [iter(call.numbers(name)) if name in call.attrs else iter(()) for name in _PARAMETERS]
    found = []
    for given in names:
        if given.lower() not in _KNOWN:
            raise call.unsupported(f"activation {given} is not supported")
        name, defaults, alpha = _KNOWN[given.lower()]
        taken = [next(values, default) for values, default in zip(numbers, defaults, strict=False)]
        found.append(Activation(given, len(defaults), name, *taken, *(alpha, 0.0)[len(taken) :]))
    return [tuple(found[start : start + len(usual)]) for start in range(0, len(found), len(usual))]


def attributes_of(functions: Iterable[Activation]) -> dict[str, Any]:
    """Return the attributes of a node that has functions of one direction."""
    functions = tuple(functions)
    return {
        "activations": [each.given.encode() for each in functions],
        "activation_alpha": [each.alpha for each in functions if each.takes > 0],
        "activation_beta": [each.beta for each in functions if each.takes > 1],
    }
