"""Products of bf16: within the bounds of float32 sums on every ISA level, with and without the dot-product instruction."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from poolrt.workers.desc import Arg, InnerProduct, Matmul, MemoryDesc, PostOp, PrimitiveAttr, Reorder
from poolrt.workers.desc.attributes import FPMATH_MODES
from poolrt.workers.engines.isa import extensions_of
from poolrt.workers.engines.target import Target
from poolrt.workers.implementations.primitive_desc import primitive_desc
from poolrt.workers.primitives.key import primitive_key
from tests.references import numpy_type
from tests.workers.levels import target_of
from tests.workers.native_runner import NativeRunner

INSTRUCTIONS = ("x86-64-v2", "x86-64-v3", "x86-64-v4", "x86-64-v4+avx512_bf16", "x86-64-v4+amx_bf16")
#: Those whose instructions multiply bf16, and the implementations that use them.
WITH_BF16 = {"x86-64-v4+avx512_bf16": "native:packed_bf16", "x86-64-v4+amx_bf16": "native:amx_bf16"}
BF16 = numpy_type("bf16")
#: The largest relative error of rounding once.
ROUNDING = {"f32": 2.0**-24, "bf16": 2.0**-8}
#: A processor with every extension, which need not be this one.
EVERYTHING = Target("cpu", "native", (("isa", "x86-64-v4"), ("extensions", " ".join(extensions_of("x86-64-v4")))))
RELU = PrimitiveAttr((PostOp("eltwise", "relu"),))


def check(
    native: NativeRunner, instructions: str, shape: tuple[int, int, int], transposed: bool, dtype: str, bias: bool,
    relu: bool, is_inner: bool,
) -> None:  # fmt: skip
    """Compute one product, and compare it with the same in float64."""
    rows, columns, depth = shape
    rng = np.random.default_rng(rows * columns + depth)
    left, right, added = (
        rng.standard_normal(dims).astype(BF16) for dims in ((rows, depth), (depth, columns), (columns,))
    )
    # Given a product of bf16, or an inner product, whose weights are those of a product transposed
    src, dst = MemoryDesc((rows, depth), "bf16"), MemoryDesc((rows, columns), dtype)
    tag = "ba" if transposed else "ab"
    args: dict[int, Any] = {Arg.SRC: left, Arg.WEIGHTS: right.T if is_inner else right}
    if is_inner:
        biases = MemoryDesc((columns,), "bf16") if bias else None
        op: Any = InnerProduct(src, MemoryDesc((columns, depth), "bf16", tag), biases, dst)
    else:
        biases = MemoryDesc((1, columns), "bf16") if bias else None
        op = Matmul(src, MemoryDesc((depth, columns), "bf16", tag), biases, dst)
    if biases is not None:
        args[Arg.BIAS] = added.reshape(biases.dims)
    # When it is computed with some instructions
    pd = primitive_desc(op, RELU if relu else PrimitiveAttr(), target_of(instructions))
    result = native.results(pd, args)[Arg.DST].astype(np.float64)
    # Then products are exact in float32, and each addition and the result are rounded once
    assert pd.impl_name() == WITH_BF16.get(instructions, "native:narrow_tiles")
    a, b = left.astype(np.float64), right.astype(np.float64)
    c = added.astype(np.float64) if bias else np.zeros(columns)
    want, bound = a @ b + c, (depth + 2) * 2.0**-24 * (np.abs(a) @ np.abs(b) + np.abs(c))
    want = np.maximum(want, 0.0) if relu else want
    bound += ROUNDING[dtype] * (np.abs(want) + bound)
    assert (np.abs(result - want) <= bound).all()


@pytest.mark.parametrize("instructions", WITH_BF16)
def test_an_error_is_that_of_sums_in_float32(native: NativeRunner, instructions: str) -> None:
    check(native, instructions, (31, 67, 301), transposed=False, dtype="f32", bias=True, relu=False, is_inner=False)


@pytest.mark.parametrize("rows", [1, 2, 5, 9, 13, 14, 25, 29, pytest.param(200, marks=pytest.mark.slow)])
def test_tiles_share_rows_evenly(native: NativeRunner, rows: int) -> None:
    """Of whole pairs and of one input more, which is copied; 200 rows are several strips."""
    for depth in (38, 37) if rows < 100 else (2000,):
        shape = (rows, 53, depth)
        check(
            native, "x86-64-v4+avx512_bf16", shape, transposed=False, dtype="bf16", bias=True, relu=True, is_inner=False
        )


@pytest.mark.slow
@pytest.mark.parametrize("instructions", INSTRUCTIONS)
@settings(max_examples=25, deadline=None, database=None)
@given(
    shape=st.tuples(st.integers(1, 40), st.integers(1, 70), st.integers(1, 70)),
    transposed=st.booleans(),
    dtype=st.sampled_from(["f32", "bf16"]),
    bias=st.booleans(),
    relu=st.booleans(),
    is_inner=st.booleans(),
)
def test_errors_are_those_of_sums_in_float32(native: NativeRunner, instructions: str, **drawn: Any) -> None:
    check(native, instructions, **drawn)


@pytest.mark.parametrize("instructions", WITH_BF16)
@pytest.mark.parametrize(("kind", "tag"), [("matmul", "BA16b2a"), ("inner_product", "AB16a2b")])
def test_weights_left_open_are_pairs_of_inputs_of_16_outputs(
    native: NativeRunner, kind: str, tag: str, instructions: str
) -> None:
    rng = np.random.default_rng(1)
    target = target_of(instructions)
    left, right = rng.integers(-4, 5, (15, 33)), rng.integers(-4, 5, (33, 47))
    src, dst = MemoryDesc((15, 33), "bf16"), MemoryDesc((15, 47), "f32")
    if kind == "matmul":
        op: Any = Matmul(src, MemoryDesc((33, 47), "bf16", "any"), None, dst)
    else:
        op = InnerProduct(src, MemoryDesc((47, 33), "bf16", "any"), None, dst)
    pd = primitive_desc(op, PrimitiveAttr(), target)
    chosen: Any = pd.op
    assert chosen.weights.tag == tag
    weights = right if kind == "matmul" else right.T
    result = native.results(pd, {Arg.SRC: left.astype(BF16), Arg.WEIGHTS: weights.astype(BF16)})[Arg.DST]
    np.testing.assert_array_equal(result, left @ right)


@pytest.mark.parametrize("instructions", WITH_BF16)
def test_only_keys_of_products_by_the_instruction_name_it(instructions: str) -> None:
    target = target_of(instructions)
    narrow, wide = MemoryDesc((8, 8), "bf16"), MemoryDesc((8, 8), "f32")
    found = primitive_desc(Matmul(narrow, narrow, None, wide), PrimitiveAttr(), target)
    assert found.target.instructions == instructions
    # A host of the same level without it asks for the same key of a product of f32.
    in_float32 = Matmul(wide, wide, None, wide)
    keys = [primitive_key(primitive_desc(in_float32, PrimitiveAttr(), t)) for t in (target, target_of("x86-64-v4"))]
    assert keys[0] == keys[1]


@pytest.mark.parametrize("instructions", WITH_BF16)
def test_infinities_and_nan_are_as_in_float32(native: NativeRunner, instructions: str) -> None:
    target = target_of(instructions)
    md, result = MemoryDesc((1, 1), "bf16"), MemoryDesc((1, 1), "f32")
    pd = primitive_desc(Matmul(md, md, None, result), RELU, target)
    for left, right, want in ((np.inf, 2.0, np.inf), (np.inf, 0.0, np.nan), (np.nan, 1.0, np.nan), (-np.inf, 1.0, 0.0)):
        args: dict[int, Any] = {Arg.SRC: np.array([[left]], BF16), Arg.WEIGHTS: np.array([[right]], BF16)}
        np.testing.assert_array_equal(native.results(pd, args)[Arg.DST], [[want]])


@pytest.mark.parametrize("mode", FPMATH_MODES)
@pytest.mark.parametrize("opened", [True, False])
@pytest.mark.parametrize("is_inner", [True, False])
def test_factors_of_f32_are_rounded_on_request_only(mode: str, opened: bool, is_inner: bool) -> None:
    # Given a product of f32, and a processor with the instruction
    found = primitive_desc(in_float32(40, opened, is_inner), PrimitiveAttr(fpmath_mode=mode), EVERYTHING)
    # Then it is used if the mode allows bf16, and weights left open are bf16
    rounds = mode in ("bf16", "any")
    assert found.impl_name() == ("native:amx_bf16" if rounds else "native:tiles")
    assert found.memories()[Arg.WEIGHTS].dtype == ("bf16" if rounds and opened else "f32")
    assert found.memories()[Arg.SRC].dtype == found.memories()[Arg.DST].dtype == "f32"
    assert found.program().kernels[-1].generator == ("bfloat_amx" if rounds else "gemm")
    # And few rows are not worth rounding weights in every execution
    few = primitive_desc(in_float32(3, opened, is_inner), PrimitiveAttr(fpmath_mode=mode), EVERYTHING)
    assert few.impl_name() == ("native:amx_bf16" if rounds and opened else "native:tiles")


@pytest.mark.parametrize("mode", FPMATH_MODES)
def test_without_a_faster_instruction_every_mode_computes_in_f32(native: NativeRunner, isa: str, mode: str) -> None:
    rng = np.random.default_rng()
    args: dict[int, Any] = {
        Arg.SRC: rng.standard_normal((40, 37), np.float32), Arg.WEIGHTS: rng.standard_normal((37, 50), np.float32)
    }  # fmt: skip
    for opened in (True, False):
        op = in_float32(40, opened, is_inner=False)
        strict, found = (
            native.results(primitive_desc(op, PrimitiveAttr(fpmath_mode=name), target_of(isa)), args)[Arg.DST]
            for name in ("strict", mode)
        )
        assert found.tobytes() == strict.tobytes()


@pytest.mark.parametrize("instructions", WITH_BF16)
@pytest.mark.parametrize("opened", [True, False])
def test_rounded_factors_have_the_error_of_bf16(native: NativeRunner, opened: bool, instructions: str) -> None:
    target = target_of(instructions)
    rng = np.random.default_rng()
    left, right = rng.standard_normal((40, 37), np.float32), rng.standard_normal((37, 50), np.float32)
    for mode in ("bf16", "any"):
        pd = primitive_desc(in_float32(40, opened, is_inner=False), PrimitiveAttr(fpmath_mode=mode), target)
        got = native.results(pd, {Arg.SRC: left, Arg.WEIGHTS: right})[Arg.DST]
        a, b = (x.astype(BF16).astype(np.float64) for x in (left, right))
        assert (np.abs(got - a @ b) <= (37 + 2) * 2.0**-24 * (np.abs(a) @ np.abs(b))).all()


@pytest.mark.parametrize("tag", ["AB14a2b", "aB2b", "BA16b2a"])
def test_packing_rounds_factors_of_f32_to_even(native: NativeRunner, isa: str, tag: str) -> None:
    values = np.random.default_rng().standard_normal((29, 37), np.float32)
    pd = primitive_desc(
        Reorder(MemoryDesc((29, 37), "f32"), MemoryDesc((29, 37), "bf16", tag)), PrimitiveAttr(), target_of(isa)
    )
    np.testing.assert_array_equal(native.results(pd, {Arg.SRC: values})[Arg.DST], values.astype(BF16))


def in_float32(rows: int, opened: bool, is_inner: bool) -> Any:
    """Return a product of f32 with weights (37, 50), or of their transpose, in the layout left open or row-major."""
    src, dst, tag = MemoryDesc((rows, 37), "f32"), MemoryDesc((rows, 50), "f32"), "any" if opened else ""
    if is_inner:
        return InnerProduct(src, MemoryDesc((50, 37), "f32", tag), None, dst)
    return Matmul(src, MemoryDesc((37, 50), "f32", tag), None, dst)
