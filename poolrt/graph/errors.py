"""Errors about graphs and models."""

from __future__ import annotations

from typing import Final

#: Most characters of a message about a file: names in a file may have any length.
_MOST_CHARACTERS: Final = 1000


class GraphError(ValueError):
    """A graph cannot be built. The message names the operation, node and argument, and the expected value."""


class LoweringError(GraphError):
    """No implementation supports a node, or memory does not suffice. Raised by `lower`; names node and reason."""


class ModelError(GraphError):
    """A model file is missing, malformed or needs an argument that was not given. Raised by `poolrt.load_onnx`.

    The message is one line of printable characters, also if names in the file are not.
    """

    def __str__(self) -> str:
        return _one_line(super().__str__())


class UnsupportedNode(ModelError):
    """A model uses an operator, or an option of one, that poolrt does not support. Raised by `poolrt.load_onnx`.

    ``node`` is the node's name, ``operator`` its type, ``opset`` the version of its operator set.
    """

    def __init__(self, node: str, operator: str, opset: int, reason: str) -> None:
        super().__init__(node, operator, opset, reason)
        self.node = node
        self.operator = operator
        self.opset = opset
        self.reason = reason

    def __str__(self) -> str:
        return _one_line(f"node {self.node!r} ({self.operator}, opset {self.opset}): {self.reason}")


def _one_line(text: str) -> str:
    """Return text without control characters, and without its middle if it is long."""
    return _shorten("".join(each if each.isprintable() else ascii(each)[1:-1] for each in _shorten(text)))


def _shorten(text: str) -> str:
    half = _MOST_CHARACTERS // 2
    return text if len(text) <= _MOST_CHARACTERS else f"{text[: half - 5]} ... {text[-half:]}"
