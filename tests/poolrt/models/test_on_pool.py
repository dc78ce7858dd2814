"""The nine networks on a pool of workers: what the native kernels compute is what ONNX Runtime computed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import poolrt
from poolrt import models

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[poolrt.Pool]:
    # A home of its own, and no Redis, so that none is started.
    home = tmp_path_factory.mktemp("home")
    with poolrt.Pool(workers=2, home=str(home), redis_url=f"unix://{home}/none.sock") as made:
        yield made


@pytest.mark.parametrize("name", models.NAMES)
def test_a_network_computes_what_onnx_runtime_does(name: str, pool: poolrt.Pool, tmp_path: Path) -> None:
    expected = models.load_expected(name)
    model = pool.load(poolrt.load_onnx(models.write(name, tmp_path / f"{name}.onnx")), progress=False)
    output = model.run(**expected.inputs())[expected.output_name].copy()
    model.close()
    # Two float32 computations differ by their order of summation: 1e-5 of the largest value at most.
    assert expected.error(output) <= 1e-5 * float(np.abs(expected.output).max())
    np.testing.assert_allclose(output, expected.output, rtol=1e-3, atol=1e-6)
