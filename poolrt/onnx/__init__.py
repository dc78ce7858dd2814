"""ONNX Runtime's Python interface on poolrt: write ``import poolrt.onnx as ort`` instead of ``import onnxruntime as ort``.

Names and behaviour are those of onnxruntime; docs/onnx.md lists what differs. The onnx package is imported with the first
session, not before. `poolrt.onnx.backend` is the interface of ONNX's own backends.
"""

from __future__ import annotations

from importlib import import_module

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Final

    from . import capi as capi
    from .binding import IOBinding
    from .errors import (
        Fail,
        InvalidArgument,
        InvalidGraph,
        InvalidProtobuf,
        NoSuchFile,
        NotImplemented,
    )
    from .logs import set_default_logger_severity, set_default_logger_verbosity
    from .options import ExecutionMode, ExecutionOrder, GraphOptimizationLevel, RunOptions, SessionOptions
    from .ort_value import OrtDevice, OrtValue
    from .providers import get_all_providers, get_available_providers, get_device
    from .random_streams import set_seed
    from .session import InferenceSession
    from .signature import ModelMetadata, NodeArg

__all__ = [
    "ExecutionMode", "ExecutionOrder", "Fail", "GraphOptimizationLevel", "IOBinding", "InferenceSession",
    "InvalidArgument", "InvalidGraph", "InvalidProtobuf", "ModelMetadata", "NoSuchFile", "NodeArg", "NotImplemented",
    "OrtDevice", "OrtValue", "RunOptions", "SessionOptions", "get_all_providers", "get_available_providers",
    "get_device", "get_version_string", "set_default_logger_severity", "set_default_logger_verbosity", "set_seed",
]  # fmt: skip

#: Public name -> the module that has it, imported on first use.
_HOMES: Final = {
    **dict.fromkeys(
        ("Fail", "InvalidArgument", "InvalidGraph", "InvalidProtobuf", "NoSuchFile", "NotImplemented"), ".errors"
    ),
    **dict.fromkeys(
        ("ExecutionMode", "ExecutionOrder", "GraphOptimizationLevel", "RunOptions", "SessionOptions"), ".options"
    ),
    **dict.fromkeys(("set_default_logger_severity", "set_default_logger_verbosity"), ".logs"),
    **dict.fromkeys(("get_all_providers", "get_available_providers", "get_device"), ".providers"),
    **dict.fromkeys(("ModelMetadata", "NodeArg"), ".signature"),
    **dict.fromkeys(("OrtDevice", "OrtValue"), ".ort_value"),
    "IOBinding": ".binding",
    "InferenceSession": ".session",
    "set_seed": ".random_streams",
}


def get_version_string() -> str:
    """Return poolrt's version."""
    from poolrt.version import VERSION

    return VERSION


def __getattr__(name: str) -> Any:
    if name in ("backend", "capi"):
        return import_module(f".{name}", __name__)
    if name == "__version__":
        return get_version_string()
    if name not in _HOMES:
        raise AttributeError(_describe_missing(name), name=name)
    found = globals()[name] = getattr(import_module(_HOMES[name], __name__), name)
    return found


def _describe_missing(name: str) -> str:
    text = f"module {__name__!r} has no attribute {name!r}"
    if name.startswith("_"):
        return text
    from poolrt.spelling import hint

    return f"{text}{hint(name, __all__)}"


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
