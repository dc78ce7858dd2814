"""The references themselves, against independent implementations: ONNX Runtime on one-node models, and SciPy."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import scipy.special
from numpy.typing import NDArray

from poolrt.workers.desc import (
    Arg,
    BatchNormalization,
    Binary,
    Concat,
    Convolution,
    Eltwise,
    InnerProduct,
    Lrn,
    Matmul,
    MemoryDesc,
    Pooling,
    PostOp,
    PrimitiveAttr,
    Reorder,
    Softmax,
    Sum,
    multiple_src,
    post_op_src,
)
from poolrt.workers.desc.attributes import ELTWISE_ALGORITHMS
from tests.references import assert_padding_is_zero, pack, reference, unpack
from tests.references.eltwise import eltwise
from tests.references.onnx_node import run_node
from tests.workers.cases import Case, cases

Array = NDArray[Any]
NO_ATTR = PrimitiveAttr()


def values(case: Case) -> list[Array]:
    order = sorted(case.args, key=int)
    return [case.args[number] for number in order if number < Arg.POST_OP]


def without_post_ops(case: Case) -> Array:
    return reference(case.op, NO_ATTR, case.args)


def not_empty(kind: str) -> list[Case]:
    return [c for c in cases(kind) if all(a.size for a in c.args.values())]


@pytest.mark.parametrize("case", not_empty("convolution"), ids=str)
@pytest.mark.one_in(4)
def test_convolution_agrees_with_onnxruntime(case: Case) -> None:
    op = case.op
    assert isinstance(op, Convolution)
    got = run_node(
        "Conv",
        values(case),
        strides=op.strides,
        dilations=[d + 1 for d in op.dilations],
        pads=[*op.padding_l, *op.padding_r],
        group=op.groups,
    )
    np.testing.assert_allclose(got, without_post_ops(case), rtol=1e-5, atol=1e-4)


def test_convolution_agrees_with_scipy() -> None:
    rng = np.random.default_rng(1)
    src, weights = rng.standard_normal((1, 3, 8, 9)), rng.standard_normal((2, 3, 3, 2))
    descs = [MemoryDesc(a.shape, "f32") for a in (src, weights)]
    op = Convolution(descs[0], descs[1], None, MemoryDesc((1, 2, 6, 8), "f32"), (1, 1), (0, 0), (0, 0), (0, 0))
    from scipy.signal import correlate  # a second of processor time, in each process that collects tests

    wanted = [sum(correlate(src[0, i], weights[o, i], "valid") for i in range(3)) for o in range(2)]
    np.testing.assert_allclose(reference(op, NO_ATTR, {Arg.SRC: src, Arg.WEIGHTS: weights})[0], wanted, rtol=1e-12)


@pytest.mark.parametrize("case", not_empty("pooling"), ids=str)
@pytest.mark.one_in(4)
def test_pooling_agrees_with_onnxruntime(case: Case) -> None:
    op, src = case.op, case.args[Arg.SRC]
    assert isinstance(op, Pooling)
    settings: dict[str, Any] = {
        "kernel_shape": op.kernel,
        "strides": op.strides,
        "dilations": [d + 1 for d in op.dilations],
    }
    # ONNX Runtime refuses paddings as large as the kernel: the source is padded beforehand.
    pads = [(0, 0), (0, 0), *zip(op.padding_l, op.padding_r, strict=True)]
    if op.algorithm == "max":
        got = run_node("MaxPool", [np.pad(src, pads, constant_values=-np.inf)], **settings)
    else:
        got = run_node("AveragePool", [np.pad(src, pads)], **settings)
        if op.algorithm == "avg_exclude_padding":
            got = got / run_node("AveragePool", [np.pad(np.ones_like(src), pads)], **settings)
    np.testing.assert_allclose(got, reference(op, NO_ATTR, case.args), rtol=1e-5, atol=1e-5)


def test_average_without_padding_agrees_with_onnxruntime() -> None:
    case = next(c for c in cases("pooling") if c.name == "avg_exclude_padding 3x3/2 padded")
    settings = {"kernel_shape": (3, 3), "strides": (2, 2), "pads": (1, 1, 1, 1)}
    got = run_node("AveragePool", values(case), count_include_pad=0, **settings)
    np.testing.assert_allclose(got, without_post_ops(case), rtol=1e-5, atol=1e-5)


def test_a_pooling_window_outside_of_the_source_gives_minus_infinity_or_zero() -> None:
    src, dst = MemoryDesc((1, 1, 2), "f32"), MemoryDesc((1, 1, 6), "f32")
    for algorithm, empty in (("max", -np.inf), ("avg_exclude_padding", 0.0), ("avg_include_padding", 0.0)):
        op = Pooling(src, dst, algorithm, (1,), (1,), (0,), (2,), (2,))
        got = reference(op, NO_ATTR, {Arg.SRC: np.array([[[3.0, 4.0]]])})
        assert got.ravel().tolist() == [empty, empty, 3.0, 4.0, empty, empty]


@pytest.mark.parametrize("case", not_empty("batch_normalization"), ids=str)
def test_batch_normalization_agrees_with_onnxruntime(case: Case) -> None:
    op, args = case.op, case.args
    assert isinstance(op, BatchNormalization)
    order = (Arg.SRC, Arg.SCALE, Arg.SHIFT, Arg.MEAN, Arg.VARIANCE)
    got = run_node("BatchNormalization", [args[a] for a in order], epsilon=op.epsilon)
    np.testing.assert_allclose(got, without_post_ops(case), rtol=1e-5, atol=1e-5)


# ONNX Runtime takes images and odd sizes only.
@pytest.mark.parametrize(
    "case", [c for c in not_empty("lrn") if c.args[Arg.SRC].ndim == 4 and "size 4" not in c.name], ids=str
)
def test_lrn_agrees_with_onnxruntime(case: Case) -> None:
    op = case.op
    assert isinstance(op, Lrn)
    got = run_node("LRN", values(case), size=op.local_size, alpha=op.alpha, beta=op.beta, bias=op.k)
    np.testing.assert_allclose(got, reference(op, NO_ATTR, case.args), rtol=1e-5, atol=1e-6)


def test_lrn_of_even_size_reaches_one_channel_further_up_than_down() -> None:
    op = Lrn(MemoryDesc((1, 4), "f32"), MemoryDesc((1, 4), "f32"), 2, 2.0, 1.0, 0.0)
    got = reference(op, NO_ATTR, {Arg.SRC: np.array([[1.0, 2.0, 3.0, 4.0]])})
    np.testing.assert_allclose(got, [[1 / 5, 2 / 13, 3 / 25, 4 / 16]])


@pytest.mark.parametrize("case", [c for c in not_empty("softmax") if "infinit" not in c.name], ids=str)
@pytest.mark.one_in(4)
def test_softmax_agrees_with_onnxruntime_and_scipy(case: Case) -> None:
    op = case.op
    assert isinstance(op, Softmax)
    kind, function = {
        "accurate": ("Softmax", scipy.special.softmax),
        "log": ("LogSoftmax", scipy.special.log_softmax),
    }[op.algorithm]
    wanted = reference(op, NO_ATTR, case.args)
    np.testing.assert_allclose(run_node(kind, values(case), axis=op.axis), wanted, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(
        function(case.args[Arg.SRC].astype(np.float64), axis=op.axis), wanted, rtol=1e-9, atol=1e-300
    )


@pytest.mark.parametrize("case", not_empty("matmul"), ids=str)
def test_matmul_agrees_with_onnxruntime(case: Case) -> None:
    assert isinstance(case.op, Matmul)
    got = run_node("MatMul", [case.args[Arg.SRC], case.args[Arg.WEIGHTS]])
    bias = case.args.get(Arg.BIAS, np.float32(0))
    np.testing.assert_allclose(got + bias, without_post_ops(case), rtol=1e-6, atol=1e-4)


@pytest.mark.parametrize("case", not_empty("inner_product"), ids=str)
def test_inner_product_agrees_with_onnxruntime(case: Case) -> None:
    assert isinstance(case.op, InnerProduct)
    np.testing.assert_allclose(run_node("Gemm", values(case), transB=1), without_post_ops(case), rtol=1e-6, atol=1e-4)


@pytest.mark.parametrize("case", not_empty("concat"), ids=str)
def test_concat_agrees_with_onnxruntime(case: Case) -> None:
    assert isinstance(case.op, Concat)
    np.testing.assert_array_equal(run_node("Concat", values(case), axis=case.op.axis), without_post_ops(case))


@pytest.mark.parametrize("case", not_empty("sum"), ids=str)
def test_sum_agrees_with_onnxruntime(case: Case) -> None:
    assert isinstance(case.op, Sum)
    np.testing.assert_allclose(run_node("Sum", values(case)), without_post_ops(case), rtol=1e-6)


@pytest.mark.parametrize("case", [c for c in not_empty("binary") if c.args[Arg.SRC].ndim], ids=str)
@pytest.mark.one_in(4)
def test_binary_agrees_with_onnxruntime(case: Case) -> None:
    assert isinstance(case.op, Binary)
    operators = {"add": "Add", "sub": "Sub", "mul": "Mul", "div": "Div", "max": "Max", "min": "Min", "pow": "Pow"}
    with np.errstate(over="ignore"):
        want = without_post_ops(case).astype(np.float32)
    np.testing.assert_allclose(run_node(operators[case.op.algorithm], values(case)), want, rtol=1e-6, atol=1e-6)


X = np.concatenate([np.linspace(-30, 30, 601), [0.0, 1e-6, -1e-6, 700.0, -700.0]])
INDEPENDENT: dict[str, Any] = {
    "relu": lambda x, a, b: np.maximum(x, 0) + a * np.minimum(x, 0),
    "tanh": lambda x, a, b: 2 * scipy.special.expit(2 * x) - 1,
    "elu": lambda x, a, b: np.where(x > 0, x, a * scipy.special.expm1(x)),
    "square": lambda x, a, b: np.power(x, 2),
    "abs": lambda x, a, b: np.sign(x) * x,
    "sqrt": lambda x, a, b: np.power(x, 0.5),
    "linear": lambda x, a, b: b + x * a,
    "logistic": lambda x, a, b: scipy.special.expit(x),
    "exp": lambda x, a, b: np.exp2(x * np.log2(np.e)),
    "log": lambda x, a, b: np.log2(x) * np.log(2),
    "clip": np.clip,
    "gelu_erf": lambda x, a, b: x * scipy.special.ndtr(x),
    "hardswish": lambda x, a, b: x * np.minimum(1, np.maximum(0, a * x + b)),
    "hardsigmoid": lambda x, a, b: np.minimum(1, np.maximum(0, a * x + b)),
    "softplus": lambda x, a, b: np.logaddexp(0, a * x) / a,
    "swish": lambda x, a, b: x * scipy.special.expit(a * x),
    "mish": lambda x, a, b: x * np.tanh(np.logaddexp(0, x)),
    "clip_v2": np.clip,
    "gelu_tanh": lambda x, a, b: x * scipy.special.expit(2 * np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)),
    "pow": lambda x, a, b: a * np.exp(b * np.log(x)),
    "round": lambda x, a, b: np.floor(x + 0.5) - ((x % 1 == 0.5) & (np.floor(x) % 2 == 0)),
    "floor": lambda x, a, b: x - x % 1,
    "ceil": lambda x, a, b: x + -x % 1,
    "trunc": lambda x, a, b: x - np.fmod(x, 1),
    "erf": lambda x, a, b: scipy.special.erf(x),
    "sin": lambda x, a, b: np.exp(1j * x).imag,
    "cos": lambda x, a, b: np.exp(1j * x).real,
    "softsign": lambda x, a, b: np.sign(x) * (1 - 1 / (1 + np.abs(x))),
    "tan": lambda x, a, b: np.sin(x) / np.cos(x),
    "atan": lambda x, a, b: np.angle(1 + 1j * x),
    "asin": lambda x, a, b: np.angle(np.sqrt(1 - x * x) + 1j * x),
    "acos": lambda x, a, b: np.angle(x + 1j * np.sqrt(1 - x * x)),
    "sign": lambda x, a, b: np.heaviside(x, 0.5) - np.heaviside(-x, 0.5),
    "threshold": lambda x, a, b: x * np.heaviside(x - a, 0),
}


@pytest.mark.parametrize("algorithm", ELTWISE_ALGORITHMS)
def test_eltwise_agrees_with_scipy(algorithm: str) -> None:
    x = np.abs(X) if algorithm in ("sqrt", "log", "pow") else X
    with np.errstate(all="ignore"):
        wanted = INDEPENDENT[algorithm](x, 0.5, 0.75)
    np.testing.assert_allclose(eltwise(algorithm, x, 0.5, 0.75), wanted, rtol=1e-9, atol=1e-15)


def test_relu_without_a_slope_keeps_infinity_away_and_nan() -> None:
    np.testing.assert_array_equal(eltwise("relu", np.array([-np.inf, np.nan, 2.0]), 0.0, 0.0), [0.0, np.nan, 2.0])


def test_post_ops_are_applied_in_order() -> None:
    md = MemoryDesc((3,), "f32")
    chain = PrimitiveAttr(
        (PostOp("binary", "add", src1=md), PostOp("eltwise", "relu"), PostOp("eltwise", "linear", 2.0, 1.0))
    )
    args = {Arg.SRC: np.array([1.0, -3.0, 5.0]), post_op_src(0): np.array([1.0, 1.0, -6.0])}
    got = reference(Eltwise(md, md, "linear", 1.0, 0.0), chain, args)
    assert got.tolist() == [5.0, 1.0, 1.0]


def test_sum_takes_its_sources_by_number() -> None:
    md = MemoryDesc((1,), "f32")
    args = {multiple_src(i): np.array([10.0**i]) for i in range(3)}
    assert reference(Sum((md,) * 3, md), NO_ATTR, args).tolist() == [111.0]


TAGS = ("abcd", "acdb", "cdba", "aBcd16b", "ABcd16b32a", "ABcd4b16a4b", "aBcd8b")


@pytest.mark.parametrize("tag", TAGS)
def test_packing_places_every_element_where_the_tag_says(tag: str) -> None:
    """Each element is looked up by the arithmetic of oneDNN's blocking description, element by element."""
    dims = (3, 21, 2, 4)
    array = np.arange(1, np.prod(dims) + 1, dtype=np.float32).reshape(dims)
    md = MemoryDesc(dims, "f32", tag)
    flat = pack(array, md)
    layout, outer = md.layout, md.outer_strides()
    for index in itertools.product(*map(range, dims)):
        rest, position, step = list(index), 0, 1
        for dim, size in reversed(layout.blocks):
            position += rest[dim] % size * step
            rest[dim] //= size
            step *= size
        position += sum(r * s for r, s in zip(rest, outer, strict=True))
        assert flat[position] == array[index]
    assert np.count_nonzero(flat) == array.size
    assert flat.ctypes.data % 64 == 0
    np.testing.assert_array_equal(unpack(flat, md), array)


def test_a_value_in_the_padding_is_noticed() -> None:
    md = MemoryDesc((1, 17, 2, 2), "f32", "aBcd16b")
    flat = pack(np.ones(md.dims), md)
    assert_padding_is_zero(flat, md)
    flat[-1] = 1e-30
    with pytest.raises(AssertionError, match="1 non-zero"):
        assert_padding_is_zero(flat, md)


def test_a_reorder_keeps_the_logical_array() -> None:
    op = Reorder(MemoryDesc((2, 3), "f32", "ab"), MemoryDesc((2, 3), "f32", "ba"))
    array = np.arange(6.0).reshape(2, 3)
    np.testing.assert_array_equal(reference(op, NO_ATTR, {Arg.SRC: array}), array)


@pytest.mark.parametrize("got", [np.float32(1.001), np.float32("nan"), np.float32("inf")])
def test_a_case_rejects_a_wrong_result(got: np.float32) -> None:
    case = next(c for c in cases("eltwise") if c.name.startswith("relu alpha 0 "))
    with pytest.raises(AssertionError, match="1 of 1 wrong"):
        case.check(np.array([got]), np.array([1.0]))
