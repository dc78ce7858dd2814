"""ONNX's own tests of operators: what is imported is right, in value, shape and data type; the rest is refused."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
import pytest

from poolrt import Executor, Graph
from poolrt.workers.primitives.provider import PrimitiveProvider

from .node_tests import Array, Counts, interpret, judge, node_tests_of, parts_of, run

ROOT = Path(__file__).resolve().parents[4]
#: Modules of ONNX's tests that together have each data type and most ways in which models use values while loading.
SAMPLE = (
    "cast",
    "where",
    "reducesum",
    "layernormalization",
    "split",
    "gather",
    "onehot",
    "clip",
    "resize",
    "lstm",
    "xor",
)

#: Tests whose expected values float64 contradicts: where the exact result is 0, NumPy's transform of complex64 gives 1.9e-7,
#: and the tests allow 1e-7.
NOISE = {"test_dft_inverse", "test_dft_inverse_opset19"}


def test_only_an_expected_value_that_float64_contradicts_may_differ() -> None:
    cases = {case.name: case for case in node_tests_of("dft")}
    counts = run([cases[name] for name in (*sorted(NOISE), "test_dft_axis")], interpreted=True)
    assert set(counts.contradicted) == NOISE
    assert counts.failures == {}

    # A result that float64 contradicts too is wrong, and so is one beside an expected value that is right.
    def disturbed(graph: Graph, feeds: Mapping[str, Array]) -> Mapping[str, Array]:
        return {name: array + np.float32(1e-4) for name, array in interpret(graph, feeds).items()}

    for name in ("test_dft_inverse", "test_dft_axis"):
        assert judge(cases[name], disturbed)[0] == "wrong"


def test_transforms_in_float32_are_numpys(cache: PrimitiveProvider) -> None:
    """NumPy 2 computes the expected values in float32 too."""
    cases, counts = node_tests_of("dft", "stft"), Counts()
    for each in cases:
        counts.add(each.name, *judge(each, lambda graph, feeds: Executor(graph, cache=cache).run(**feeds)))
    assert {case.name for case in cases} > NOISE
    assert counts.failures == {}
    assert counts.contradicted == {}
    assert counts.outcomes["right"] + counts.outcomes["right, values given"] == len(cases)


def test_a_sample_is_right_or_refused() -> None:
    cases = node_tests_of(*SAMPLE)
    counts = run(cases[:: len(cases) // 60], interpreted=True)
    assert counts.failures == {}
    assert counts.outcomes.total() >= 60
    assert counts.outcomes["right"] + counts.outcomes["right, values given"] >= 35


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_all_of_them_are_right_or_refused(tmp_path: Path) -> None:
    page = tmp_path / "onnx.md"
    page.write_text((ROOT / "docs" / "onnx.md").read_text(encoding="utf-8"), encoding="utf-8")
    command = [sys.executable, "-m", "tests.poolrt.graph.onnx.node_tests", "--json", "--document", str(page)]
    # No cache of the user's, and no server that would go on.
    env = {**os.environ, "POOLRT_HOME": str(tmp_path), "POOLRT_REDIS_URL": f"unix://{tmp_path}/none.sock"}
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=3500, check=False)
    found = json.loads(done.stdout)
    assert found["failures"] == {}
    assert not found["contradicted"]
    assert found["outcomes"]["right"] + found["outcomes"]["right, values given"] >= 1400
    # The page of the documentation has what is generated, if it is of this version of the onnx package.
    stored, made = (parts_of(path.read_text(encoding="utf-8"))[1] for path in (ROOT / "docs" / "onnx.md", page))
    assert f"package {onnx.__version__} has" in made
    assert stored == made or f"package {onnx.__version__} has" not in stored
