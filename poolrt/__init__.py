"""poolrt: graphs of numeric primitives on a pool of worker processes, each kernel compiled once."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from .graph.builder import Graph
    from .graph.errors import GraphError, ModelError, UnsupportedNode
    from .graph.onnx.importer import load_onnx
    from .graph.values import Value

__all__ = ["Graph", "GraphError", "ModelError", "UnsupportedNode", "Value", "load_onnx"]

#: Public name -> the module that has it. Imported on first use: a command or worker pays only for what it names.
_HOMES: Final = {
    "Graph": ".graph.builder",
    "GraphError": ".graph.errors",
    "ModelError": ".graph.errors",
    "UnsupportedNode": ".graph.errors",
    "Value": ".graph.values",
    "load_onnx": ".graph.onnx.importer",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(import_module(_HOMES[name], __name__), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
