"""The mode of floating point of a session: by keyword, or by an entry of its options."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import poolrt.onnx
from poolrt.workers.primitives.provider import PrimitiveProvider

from .models import model, session


def product(weights: np.ndarray[Any, np.dtype[np.float32]]) -> onnx.ModelProto:
    """Return a product by a constant, of any number of rows."""
    ports = [{name: (TensorProto.FLOAT, ["rows", size])} for name, size in zip("xy", weights.shape, strict=True)]
    return model([helper.make_node("MatMul", ["x", "w"], ["y"])], ports[0], ports[1], {"w": weights})


def modes(found: poolrt.onnx.InferenceSession) -> set[str]:
    """Return the modes of the primitives that a session in this process has made."""
    context: Any = found._plans.context  # type: ignore[attr-defined]
    graphs = [value for key, value in context.instances().items() if key.what == "graph"]
    return {primitive.pd.attr.fpmath_mode for graph in graphs for primitive in graph.primitives}


def test_keyword_and_entry_set_the_mode_of_products(cache: PrimitiveProvider) -> None:
    rng = np.random.default_rng()
    weights, x = rng.standard_normal((37, 29), np.float32), rng.standard_normal((40, 37), np.float32)
    made, entry = product(weights), poolrt.onnx.SessionOptions()
    entry.add_session_config_entry("poolrt.fpmath_mode", "bf16")
    exact, sizes = x.astype(np.float64) @ weights, np.abs(x).astype(np.float64) @ np.abs(weights)
    for found, mode in (
        (session(made, cache), "strict"),
        (session(made, cache, fpmath_mode="any"), "any"),
        (session(made, cache, sess_options=entry), "bf16"),
        # The keyword takes precedence.
        (session(made, cache, sess_options=entry, fpmath_mode="strict"), "strict"),
    ):
        (got,) = found.run(None, {"x": x})
        assert modes(found) == {mode}
        assert (np.abs(got - exact) <= (2.0**-8 + 2.0**-17 if mode != "strict" else 2.0**-18) * sizes).all()


def test_an_unknown_mode_is_refused_with_those_that_exist(cache: PrimitiveProvider) -> None:
    made, entry = product(np.ones((3, 4), np.float32)), poolrt.onnx.SessionOptions()
    entry.add_session_config_entry("poolrt.fpmath_mode", "half")
    text = "fpmath_mode: unknown 'half'; known: strict, bf16, f16, any"
    with pytest.raises(poolrt.onnx.InvalidArgument, match=text):
        session(made, cache, sess_options=entry)
    with pytest.raises(poolrt.onnx.InvalidArgument, match=text):
        session(made, cache, fpmath_mode="half")
