"""The place where programs for ONNX Runtime find its errors."""

from . import onnxruntime_pybind11_state as onnxruntime_pybind11_state
