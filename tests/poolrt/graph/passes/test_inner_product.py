"""Products with constant matrices become inner products, but not those of integers that only matmul computes exactly."""

from __future__ import annotations

import numpy as np
import pytest

from poolrt import Graph
from poolrt.graph import passes


@pytest.mark.parametrize(("dtype", "kind"), [("float32", "inner_product"), ("int64", "matmul"), ("uint16", "matmul")])
def test_only_types_with_fast_inner_products_become_some(dtype: str, kind: str) -> None:
    g = Graph("product")
    weights = np.arange(20).reshape(4, 5).astype(dtype)
    g.output("y", g.matmul(g.input("x", (3, 4), dtype), weights, dtype=dtype))
    assert [node.kind for node in passes.use_inner_product(g.to_ir()).nodes] == [kind]
