"""The messages of a large model are counted before protobuf parses it, which takes a hundred times their bytes."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from poolrt import ModelError, load_onnx
from poolrt.graph.onnx import message_count
from poolrt.graph.onnx.message_count import SMALL_BYTES, TooManyMessages, check_messages

from .single_node import model_of
from .test_importer import model

DESCRIPTOR = onnx.ModelProto.DESCRIPTOR


def _framed(number: int, content: bytes) -> bytes:
    return bytes([number << 3 | 2]) + _varint(len(content)) + content


def _varint(value: int) -> bytes:
    low = bytes([value & 0x7F | (0x80 if value >= 0x80 else 0)])
    return low + (_varint(value >> 7) if value >= 0x80 else b"")


@pytest.mark.parametrize("place", [1, 5])
@pytest.mark.one_in(2)
def test_a_model_of_empty_messages_is_refused_before_it_is_parsed(place: int) -> None:
    # Ten megabytes that would take a gigabyte: nodes, initialisers
    bomb = _framed(7, bytes([place << 3 | 2, 0]) * (SMALL_BYTES // 2 + 1))
    with pytest.raises(
        ModelError, match="not an ONNX model: its messages are damaged, or one has more than 262144 fields"
    ):
        load_onnx(bomb)


def test_messages_fields_and_depth_are_limited_in_all(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = memoryview(model_of("Relu", {"x": (2,)}).SerializeToString())
    monkeypatch.setattr(message_count, "SMALL_BYTES", 0)
    check_messages(whole, DESCRIPTOR)
    monkeypatch.setattr(message_count, "MOST_MESSAGES", 5)
    with pytest.raises(TooManyMessages, match="it has more than 5 messages"):
        check_messages(whole, DESCRIPTOR)
    monkeypatch.setattr(message_count, "MOST_FIELDS", 5)
    with pytest.raises(TooManyMessages, match="it has more than 5 fields"):
        check_messages(whole, DESCRIPTOR)
    monkeypatch.undo()
    monkeypatch.setattr(message_count, "SMALL_BYTES", 0)
    nested = b""
    for _ in range(60):  # a graph in an attribute of a node of a graph
        nested = _framed(1, _framed(5, _framed(6, nested)))
    with pytest.raises(TooManyMessages, match="nested deeper than 100"):
        check_messages(memoryview(_framed(7, nested)), DESCRIPTOR)
    for damaged in (b"\x3a\x05abc", b"\x0b", b"\xff" * 12):
        with pytest.raises(TooManyMessages, match="are damaged"):
            check_messages(memoryview(damaged), DESCRIPTOR)


def test_a_large_model_whose_numbers_are_no_raw_data_is_imported() -> None:
    weights = np.ones((4, SMALL_BYTES // 15), np.float32)
    made = model([helper.make_node("MatMul", ["x", "w"], ["y"])], {"x": (1, 4)}, ["y"])
    made.graph.initializer.append(helper.make_tensor("w", TensorProto.FLOAT, weights.shape, weights.reshape(-1)))
    assert load_onnx(made.SerializeToString()).outputs == {"y": (1, SMALL_BYTES // 15)}
