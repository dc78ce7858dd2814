"""The operators of ``com.microsoft`` compute what ONNX Runtime computes."""

from __future__ import annotations

import zlib
from dataclasses import replace
from typing import Any

import numpy as np
import onnxruntime
import pytest
from numpy.typing import NDArray

from poolrt import Executor, Graph, UnsupportedNode, load_onnx
from poolrt.workers.primitives.provider import PrimitiveProvider
from tests.poolrt.graph.interpreter import run_wire
from tests.references.onnx_node import run_node_for_all
from tests.references.unsigned_weights import with_unsigned_weights

from .microsoft import CASES, Case

Array = NDArray[Any]


def expected(case: Case) -> dict[str, Array]:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    text = with_unsigned_weights(case.model()).SerializeToString()
    session = onnxruntime.InferenceSession(text, options, providers=["CPUExecutionProvider"])
    names = [name for name in case.outputs if name]
    return dict(zip(names, session.run(names, case.feeds()), strict=True))


def kinds_of(graph: Graph) -> list[str]:
    return [str(node[0]) for node in graph.to_wire()[0]["nodes"]]


def assert_close(case: Case, found: dict[str, Array]) -> None:
    """Raise AssertionError unless results agree: within one step if they are quantised."""
    for name, want in expected(case).items():
        got = found[name].astype(np.float64)
        for sequence, rows in enumerate(case.rows if name in ("k1", "v1") else ()):
            got[sequence, :, rows:] = want[sequence, :, rows:] = 0
        assert got.shape == want.shape, (case.operator, name)
        apart = np.abs(got - want.astype(np.float64))
        if case.quantum > 0:
            assert len(np.unique(want)) > 3
            assert apart.max() <= case.quantum, case
            assert (apart > 0).mean() <= 0.1, case
        elif case.quantum < 0:
            assert apart.max() <= 0.02 * np.abs(want).max(), case
        else:
            assert apart.max() <= case.tolerance * max(1.0, np.abs(want).max()), (case.operator, name, apart.max())


@pytest.mark.parametrize("family", CASES)
def test_an_operator_computes_what_onnx_runtime_does(family: str) -> None:
    for case in CASES[family](zlib.crc32(family.encode())):
        graph = load_onnx(case.model())
        assert_close(case, run_wire(*graph.to_wire(), case.feeds()))


@pytest.mark.slow
@pytest.mark.parametrize("part", range(6))
@pytest.mark.parametrize("family", CASES)
def test_an_operator_is_executed(family: str, part: int, cache: PrimitiveProvider) -> None:
    for case in CASES[family](5)[part::6]:
        with_engine = Executor(load_onnx(case.model()), cache=cache)
        assert_close(case, with_engine.run(**case.feeds()))


def test_an_lstm_of_any_length_quantises_its_states_by_one_primitive_a_direction() -> None:
    case = CASES["recurrent"](3)[2]
    x = np.random.default_rng(4).standard_normal((600, 3, 5)).astype(np.float32)
    long = replace(case, operands={**case.operands, "x": x})
    graph = load_onnx(long.model())
    assert kinds_of(graph).count("dynamic_lstm") == 2
    found, want = run_wire(*graph.to_wire(), long.feeds()), expected(long)
    # A state near the middle of two bytes may get the other one, which later steps forget.
    apart = np.concatenate([np.abs(found[name] - each).ravel() for name, each in want.items()])
    assert apart.max() <= 0.02
    assert (apart > 2e-5).mean() <= 0.05


@pytest.mark.parametrize("given", [{"clip": 0.4}, {"input_forget": 1}, {"activations": ["Sigmoid", "Relu", "Tanh"]}])
def test_cells_with_options_are_unrolled(given: dict[str, Any]) -> None:
    case = CASES["recurrent"](7)[0]
    special = replace(case, attributes={**case.attributes, **given})
    graph = load_onnx(special.model())
    assert "dynamic_lstm" not in kinds_of(graph)
    assert_close(special, run_wire(*graph.to_wire(), special.feeds()))


def test_a_long_sequence_on_a_device_is_computed_with_dequantised_weights() -> None:
    case = CASES["recurrent"](3)[2]
    x = np.random.default_rng(4).standard_normal((513, 3, 5)).astype(np.float32)
    long = replace(case, operands={**case.operands, "x": x})
    found = run_wire(*load_onnx(long.model(), engine="opencl:0").to_wire(), long.feeds())
    given = {name: array for name, array in long.operands.items() if array is not None}
    wide = {
        name: (given[name].astype(np.float32) - given[f"{name}z"][:, None]) * given[f"{name}s"][:, None]
        for name in "wr"
    }
    weights = {name: each.transpose(0, 2, 1) for name, each in wide.items()}
    names = ["x", "w", "r", "b", "", "h", "c"]
    want = run_node_for_all(
        "LSTM", [{**given, **weights}[name] if name else None for name in names], 3, **long.attributes
    )
    for name, each in zip(("y", "last", "cell"), want, strict=True):
        np.testing.assert_allclose(found[name], each, atol=2e-5)


def test_what_is_not_supported_is_refused_by_name() -> None:
    case = CASES["attention"](1)[0]
    for attributes, named in (({"do_rotary": 1}, "do_rotary"), ({"past_present_share_buffer": 1}, "past_present")):
        refused = replace(case, attributes={**case.attributes, **attributes})
        with pytest.raises(UnsupportedNode, match=named):
            load_onnx(refused.model())
    unknown = replace(case, operator="NoSuchOperator")
    with pytest.raises(UnsupportedNode, match=r"no such operator of domain com\.microsoft"):
        load_onnx(unknown.model())
