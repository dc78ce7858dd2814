"""Import of ONNX models. The onnx package is imported when a model is loaded, not before."""

from .importer import load_onnx

__all__ = ["load_onnx"]
