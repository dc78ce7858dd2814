"""Taking raw data out of a model before it is parsed: nothing else changes, and nothing malformed gets through."""

from __future__ import annotations

from contextlib import suppress

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from poolrt import ModelError, load_onnx
from poolrt.graph.onnx.detached import LEAST_BYTES, detach


def model(sizes: list[int]) -> onnx.ModelProto:
    tensors = [numpy_helper.from_array(np.arange(n, dtype=np.float32), f"t{i}") for i, n in enumerate(sizes)]
    # Numbers outside of raw_data stay where they are.
    tensors.append(helper.make_tensor("typed", TensorProto.FLOAT, [2000], [0.5] * 2000))
    nodes = [helper.make_node("Relu", ["x"], ["y"], "node", doc_string="d" * 300)]
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in ("x", "y")]
    return helper.make_model(helper.make_graph(nodes, "g", values[:1], values[1:], tensors, doc_string="text"))


@settings(deadline=None)
@given(st.lists(st.sampled_from([0, 1, LEAST_BYTES // 4 - 1, LEAST_BYTES // 4, 5000, 40_000]), max_size=6))
def test_what_is_left_and_what_is_detached_make_the_model(sizes: list[int]) -> None:
    whole = model(sizes)
    rest, detached = detach(memoryview(whole.SerializeToString()))
    assert set(detached) == {i for i, n in enumerate(sizes) if 4 * n >= LEAST_BYTES}
    rebuilt = onnx.ModelProto.FromString(bytes(rest))
    for number, data in detached.items():
        assert not rebuilt.graph.initializer[number].HasField("raw_data")
        rebuilt.graph.initializer[number].raw_data = bytes(data)
    assert rebuilt == whole


@settings(deadline=None, max_examples=200)
@given(st.data())
def test_a_damaged_model_is_refused_or_read_but_nothing_else_happens(data: st.DataObject) -> None:
    content = bytearray(model([5000, 3]).SerializeToString())
    for _ in range(data.draw(st.integers(1, 3))):
        # Framing is at the beginning and around the data; random places inside the data change numbers only.
        at = data.draw(st.one_of(st.integers(0, 700), st.integers(0, len(content) - 1)))
        content[at] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(content)))
    for damaged in (bytes(content), bytes(content[:cut])):
        with suppress(ModelError):
            assert load_onnx(damaged).outputs


def test_a_model_that_repeats_its_graph_is_left_to_the_parser() -> None:
    content = model([5000]).SerializeToString()
    twice = memoryview(content + content)
    rest, detached = detach(twice)
    assert rest is twice
    assert detached == {}
    with pytest.raises(ModelError):
        load_onnx(bytes(twice))
