"""Errors about graphs and models."""

from __future__ import annotations


class GraphError(ValueError):
    """A graph cannot be built. The message names the operation, node and argument, and the expected value."""


class LoweringError(GraphError):
    """No implementation supports a node, or memory does not suffice. Raised by `lower`; names node and reason."""


class ModelError(GraphError):
    """A model file is missing, malformed or needs an argument that was not given. Raised by `poolrt.load_onnx`."""


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
        return f"node {self.node!r} ({self.operator}, opset {self.opset}): {self.reason}"
