"""Files that are given as ONNX models and have another format: what they are, and what to do."""

from __future__ import annotations

from typing import Final

#: First bytes of a file -> what it is, and what to do.
_BEGINNINGS: Final = {
    b"version https://git-lfs": "a pointer of Git LFS; fetch the file itself: git lfs pull",
    b"PK\x03\x04": "a ZIP archive, as PyTorch and NumPy write; export the model: torch.onnx.export",
    b"\x89HDF": "an HDF5 file, as Keras writes; convert the model with tf2onnx",
    b"\x1f\x8b": "compressed with gzip; run gunzip first",
    b"\x80\x02": "a pickle, as older versions of PyTorch write; export the model: torch.onnx.export",
    b"\x93NUMPY": "an array of NumPy; a model comes first, arrays are given with --input NAME=FILE",
    b"<!doctype html": "a web page; the download returned no model",
    b"<html": "a web page; the download returned no model",
    b"<?xml": "an XML file; OpenVINO's models have to be exported from their origin again",
}
#: Where TensorFlow Lite's mark begins.
_TFLITE_AT: Final = 4


def describe_format(content: bytes | memoryview) -> str:
    """Return what a file is that is no ONNX model, and what to do; empty if that is unknown."""
    head = bytes(content[:32])
    if not head:
        return "the file is empty; it may not have been written to its end"
    if head[_TFLITE_AT : _TFLITE_AT + 4] == b"TFL3":
        return "a model of TensorFlow Lite; convert it with tf2onnx"
    if head[8:9] == b"{" and not any(head[4:8]):
        return "a file of safetensors, which holds weights alone; export the model: torch.onnx.export"
    start = head.lstrip()
    for beginning, meaning in _BEGINNINGS.items():
        if start[: len(beginning)].lower() == beginning.lower():
            return meaning
    return ""
