"""poolrt: graphs of numeric primitives on a pool of worker processes, each kernel compiled once."""

from __future__ import annotations

import os
from importlib import import_module

if not os.path.isdir(os.path.join(__path__[0], "workers")):
    from .unlinked import add_floors

    add_floors(__path__)

from . import joblib_hook, workers

# `typing` would take most of the time of importing this module.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Final

    from poolrt.workers import *  # noqa: F403 - what `__all__` there lists, as below

    from . import dask as dask
    from . import errors, kernels, numba, onnx, opencl
    from .graph.builder import Graph
    from .graph.errors import GraphError, ModelError, UnsupportedNode
    from .graph.onnx.importer import load_onnx
    from .graph.user_kernels import NativeKernel, OpenClKernel
    from .graph.values import Value
    from .inprocess.device_context import ContextStatistics, DeviceContext
    from .inprocess.executor import Executor
    from .inprocess.profile import profile_graph
    from .kernels.kernel import kernel
    from .model import Model, TensorSpec
    from .model_check import check_model
    from .numba.door import guvectorize, njit, share, vectorize
    from .pool import Pool, connect

__all__ = [
    "ContextStatistics", "DeviceContext", "Executor", "Graph", "GraphError", "Model", "ModelError", "NativeKernel",
    "OpenClKernel", "Pool", "TensorSpec", "UnsupportedNode", "Value", "check_model", "connect", "errors", "guvectorize", "kernel",
    "kernels", "load_onnx", "njit", "numba", "onnx", "opencl", "profile_graph", "share", "vectorize",
]  # fmt: skip
__all__ += workers.__all__

#: Public name -> the module that has it. Imported on first use: a command or worker pays only for what it names.
_HOMES: Final = {
    "ContextStatistics": ".inprocess.device_context",
    "DeviceContext": ".inprocess.device_context",
    "Executor": ".inprocess.executor",
    "Graph": ".graph.builder",
    "GraphError": ".graph.errors",
    "Model": ".model",
    "ModelError": ".graph.errors",
    "NativeKernel": ".graph.user_kernels",
    "OpenClKernel": ".graph.user_kernels",
    "Pool": ".pool",
    "TensorSpec": ".model",
    "UnsupportedNode": ".graph.errors",
    "Value": ".graph.values",
    "check_model": ".model_check",
    "connect": ".pool",
    "guvectorize": ".numba.door",
    "kernel": ".kernels.kernel",
    "load_onnx": ".graph.onnx.importer",
    "njit": ".numba.door",
    "profile_graph": ".inprocess.profile",
    "share": ".numba.door",
    "vectorize": ".numba.door",
}


joblib_hook.install()


def __getattr__(name: str) -> Any:
    if name in ("dask", "errors", "kernels", "numba", "onnx", "opencl"):
        return import_module(f".{name}", __name__)
    if name in _HOMES:
        found = getattr(import_module(_HOMES[name], __name__), name)
    elif name in workers.__all__:
        found = getattr(workers, name)
    else:
        raise AttributeError(_describe_missing(name), name=name)
    globals()[name] = found
    return found


def _describe_missing(name: str) -> str:
    """Return the message for a name that this module does not have. Other programs look for names with underscores."""
    text = f"module {__name__!r} has no attribute {name!r}"
    if name.startswith("_"):
        return text
    from .spelling import hint

    return f"{text}{hint(name, __all__)}"


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
