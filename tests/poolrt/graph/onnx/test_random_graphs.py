"""Graphs of random nodes compute what ONNX Runtime computes without its optimiser."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx
import onnxruntime

from poolrt import Executor, load_onnx
from poolrt.workers.primitives.provider import PrimitiveProvider
from tests.poolrt.graph.onnx.random_graphs import Array, random_model
from tests.workers.drawn import drawn

#: Seeds of models; `make test` takes a few of them.
SEEDS = range(200)
#: By how much an input is changed, to see how far results move.
CHANGE = np.float32(1 + 2.0**-20)


def runtime(model: onnx.ModelProto) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def computed(session: onnxruntime.InferenceSession, feeds: Mapping[str, Array]) -> list[Array]:
    results: list[Array] = session.run(None, dict(feeds))
    return results


def test_random_graphs_compute_what_onnx_runtime_does(cache: PrimitiveProvider) -> None:
    for seed in drawn(SEEDS, 6):
        model, feeds = random_model(seed)
        session = runtime(model)
        expected = computed(session, feeds)
        moved = computed(session, {name: array * CHANGE for name, array in feeds.items()})
        executor = Executor(load_onnx(model), cache=cache)
        found = executor.run(**feeds)
        again = executor.run(**feeds)
        for declared, want, other in zip(model.graph.output, expected, moved, strict=True):
            result, scale = found[declared.name], float(np.abs(want).max(initial=1e-3))
            np.testing.assert_array_equal(result, again[declared.name])
            # A graph may enlarge roundings as it enlarges a change of its inputs.
            slack = 1e-4 * scale + 4 * float(np.abs(other - want).max(initial=0))
            np.testing.assert_allclose(
                result, want, rtol=1e-3, atol=slack, err_msg=f"seed {seed}, output {declared.name}"
            )


def test_the_same_seed_makes_the_same_model() -> None:
    first, second = (random_model(3) for _ in range(2))
    assert first[0] == second[0]
    assert len({random_model(seed)[0].SerializeToString() for seed in range(20)}) == 20
