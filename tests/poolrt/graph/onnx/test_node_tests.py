"""ONNX's own tests of operators: what is imported is right, in value, shape and data type; the rest is refused."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from .node_tests import node_tests_of, run

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

#: Results that differ from the expected ones because of roundings of these: ONNX's definition of attention rounds each step to
#: float16, and NumPy's transform of complex64 gives noise for zeros.
NOISE = {"test_attention_4d_causal_fp16_expanded", "test_dft_inverse", "test_dft_inverse_opset19"}


def test_a_sample_is_right_or_refused() -> None:
    cases = node_tests_of(*SAMPLE)
    counts = run(cases[:: len(cases) // 60], interpreted=True)
    assert counts.failures == {}
    assert counts.outcomes.total() >= 60
    assert counts.outcomes["right"] + counts.outcomes["right, values given"] >= 35


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_all_of_them_are_right_or_refused() -> None:
    command = [sys.executable, "-m", "tests.poolrt.graph.onnx.node_tests", "--json"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=3500, check=False)
    found = json.loads(done.stdout)
    assert set(found["failures"]) <= NOISE
    assert found["outcomes"]["right"] + found["outcomes"]["right, values given"] >= 1400
