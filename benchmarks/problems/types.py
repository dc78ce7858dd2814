"""Operations on other types than float32."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from onnx import helper

from .pointwise import eltwise_of
from .problem import Problem, normals


def types() -> Iterator[Problem]:
    """Yield operations on other types than float32, and conversions between types."""
    for dtype in ("float16", "float64"):
        scale, shift = normals(768), normals(768)[::-1].copy()
        small = {name: value.astype(dtype) for name, value in (("scale", scale), ("shift", shift))}
        yield Problem("types", "exp", (128, 3072), eltwise_of("exp", 0.0, 0.0), "Exp", dtype=dtype)
        yield Problem("types", "tanh", (128, 3072), eltwise_of("tanh", 0.0, 0.0), "Tanh", dtype=dtype)
        yield Problem(
            "types", "softmax", (12, 128, 128), lambda g, x: g.softmax(x, -1), "Softmax", (), {"axis": -1}, dtype=dtype
        )
        yield Problem(
            "types", "layer_normalization", (128, 768),
            lambda g, x, scale=scale, shift=shift: g.layer_normalization(x, scale, shift),
            "LayerNormalization", tuple(small.values()), {"axis": -1, "epsilon": 1e-5}, dtype=dtype,
        )  # fmt: skip
        yield Problem(
            "types", "max 3x3/2", (1, 64, 112, 112), lambda g, x: g.pooling(x, "max", 3, strides=2, padding=1), "MaxPool", (),
            {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]}, dtype=dtype,
        )  # fmt: skip
    divisors = np.random.default_rng(1).integers(1, 100, (1, 64, 56, 56), np.int32)
    weights = normals(768, 768).astype(np.float16)
    yield Problem(
        "types",
        "matmul with 768x768",
        (128, 768),
        lambda g, x: g.matmul(x, weights),
        "MatMul",
        (weights,),
        dtype="float16",
    )
    for dtype in ("float16", "float64", "int32", "int64"):
        yield Problem("types", "add", (128, 768), lambda g, x, y: g.binary(x, y, "add"), "Add", inputs=2, dtype=dtype)
        yield Problem(
            "types", "sum of (1,)", (128, 768), lambda g, x: g.reduction(x, "sum", (1,)),
            "ReduceSum", (np.array([1], np.int64),), dtype=dtype,
        )  # fmt: skip
    for name, algorithm, operator in (("sum that wraps", "wrap_add", "Add"), ("quotient", "trunc_div", "Div")):
        yield Problem(
            "types", name, (1, 64, 56, 56), lambda g, x, kind=algorithm: g.binary(x, divisors, kind),
            operator, (divisors,), dtype="int32",
        )  # fmt: skip
    for source, target in (
        ("float32", "float16"), ("float16", "float32"), ("uint8", "float32"), ("int64", "int32"), ("float64", "float32"),
    ):  # fmt: skip
        to = helper.np_dtype_to_tensor_dtype(np.dtype(target))
        yield Problem(
            "types", f"to {target}", (1, 64, 112, 112), lambda g, x, target=target: g.reorder(x, dtype=target), "Cast", (),
            {"to": to}, dtype=source,
        )  # fmt: skip
