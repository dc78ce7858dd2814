"""Nodes that draw random numbers: each run of a session draws them, and none are folded, kept or drawn twice."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import poolrt
import poolrt.onnx as ort
from poolrt.onnx import random_streams
from poolrt.workers.primitives.provider import PrimitiveProvider

from .models import Array, session
from .staged_models import BOOL, FLOAT, INT64, graph, made, node

FLOAT16, DOUBLE, INT32, BFLOAT16 = (
    onnx.TensorProto.FLOAT16, onnx.TensorProto.DOUBLE, onnx.TensorProto.INT32, onnx.TensorProto.BFLOAT16,
)  # fmt: skip
#: How many numbers the tests of distributions draw, and the deviations of a mean of them that a test allows: one run in 2e6.
COUNT, MOST = 10_000, 5.2


@pytest.fixture
def seeded() -> Iterator[None]:
    """Leave the process without a seed."""
    yield
    random_streams._process_seed().value = None


def drawing(kind: str, taken: Array | None = None, out: int = FLOAT, opset: int = 22, **options: Any) -> Any:
    """Return a model of one node that draws, and the inputs of a run."""
    inputs = {} if taken is None else {"x": (helper.np_dtype_to_tensor_dtype(taken.dtype), [None] * taken.ndim)}
    found = made([node(kind, [*inputs], ["y"], **options)], inputs, {"y": out})
    found.opset_import[0].version, found.ir_version = opset, 10
    return found, {} if taken is None else {"x": taken}


def draws(cache: PrimitiveProvider, source: Any, feed: dict[str, Array], runs: int = 1) -> list[Array]:
    """Return what runs of a new session draw."""
    found = session(source, cache)
    return [found.run(None, feed)[0] for _ in range(runs)]


def check_mean(found: Array, mean: float, deviation: float) -> None:
    assert abs(found.astype(np.float64).mean() - mean) < MOST * deviation / found.size**0.5


HALF = np.zeros((COUNT // 100, 100), np.float16)
NORMAL: list[tuple[str, Array | None, dict[str, Any], Any]] = [
    ("RandomNormal", None, {"shape": [COUNT // 100, 100]}, np.float32),
    ("RandomNormal", None, {"shape": [1, COUNT], "mean": 2.5, "scale": 3.0, "dtype": DOUBLE}, np.float64),
    ("RandomNormalLike", HALF, {"mean": -1.0, "scale": 0.25}, np.float16),
    ("RandomNormalLike", HALF.astype(np.int64), {"dtype": BFLOAT16}, None),
]


@pytest.mark.parametrize(("kind", "taken", "options", "dtype"), NORMAL)
def test_normal_numbers_have_shape_type_mean_and_scale(
    kind: str, taken: Any, options: Any, dtype: Any, cache: PrimitiveProvider
) -> None:
    out = options.get("dtype", FLOAT if taken is None else FLOAT16)
    (found,) = draws(cache, *drawing(kind, taken, out, **options))
    assert found.shape == tuple(options.get("shape", HALF.shape))
    assert found.dtype == (dtype or helper.tensor_dtype_to_np_dtype(BFLOAT16))
    scale, mean = options.get("scale", 1.0), options.get("mean", 0.0)
    check_mean(found, mean, scale)
    places = (found.astype(np.float64) - mean) / scale
    for power, expected, deviation in ((2, 1, 2**0.5), (3, 0, 15**0.5), (4, 3, 96**0.5)):
        check_mean(places**power, expected, deviation)


def test_uniform_numbers_have_shape_type_and_limits(cache: PrimitiveProvider) -> None:
    for source, dtype in (
        (drawing("RandomUniform", shape=[COUNT], low=-2.0, high=6.0), np.float32),
        (drawing("RandomUniformLike", np.zeros(COUNT), DOUBLE, low=-2.0, high=6.0), np.float64),
    ):
        (found,) = draws(cache, *source)
        assert (found.shape, found.dtype) == ((COUNT,), np.dtype(dtype))
        assert -2 <= found.min() < -1.9
        assert 5.9 < found.max() <= 6
        check_mean(found, 2, 8 / 12**0.5)
        check_mean((found - 2) ** 2, 64 / 12, 64 / 180**0.5)


def test_a_number_without_dimensions_is_drawn(cache: PrimitiveProvider) -> None:
    (found,) = draws(cache, *drawing("RandomUniformLike", np.array(3, np.float32)))
    assert (found.shape, found.dtype) == ((), np.dtype(np.float32))


@pytest.mark.parametrize("out", [FLOAT, BOOL, INT32])
def test_bernoulli_is_true_with_the_given_chance(out: int, cache: PrimitiveProvider) -> None:
    chances = np.array([[0.0], [0.25], [0.7], [1.0]], np.float32).repeat(COUNT, 1)
    (found,) = draws(cache, *drawing("Bernoulli", chances, out, **({"dtype": out} if out != FLOAT else {})))
    assert found.dtype == helper.tensor_dtype_to_np_dtype(out)
    assert set(np.unique(found).tolist()) == {0, 1}
    assert (not found[0].any(), bool(found[3].all())) == (True, True)
    check_mean(found[1], 0.25, 0.1875**0.5)
    check_mean(found[2], 0.7, 0.21**0.5)


def test_multinomial_chooses_classes_by_the_logarithms_of_their_chances(cache: PrimitiveProvider) -> None:
    chances = np.array([[0.0, 0.5, 0.0, 0.2, 0.3, 0.0], [1, 0, 0, 0, 0, 0]])
    with np.errstate(divide="ignore"):
        rows = np.log(chances).astype(np.float32) + np.array([[700], [-700]], np.float32)
    for out, options in ((INT32, {}), (INT64, {"dtype": INT64})):
        (found,) = draws(cache, *drawing("Multinomial", rows, out, sample_size=COUNT, **options))
        assert (found.shape, found.dtype) == ((2, COUNT), helper.tensor_dtype_to_np_dtype(out))
        for row, expected in zip(found, chances, strict=True):
            assert set(np.unique(row).tolist()) == {place for place, chance in enumerate(expected) if chance}
            for place, chance in enumerate(expected):
                check_mean(row == place, chance, (chance * (1 - chance)) ** 0.5 + 1e-9)
    assert draws(cache, *drawing("Multinomial", rows, INT32))[0].shape == (2, 1)


SEEDED = [
    drawing("RandomNormal", shape=[5], seed=1.5),
    drawing("RandomUniformLike", np.zeros((2, 3), np.float32), seed=-7.0),
    drawing("Bernoulli", np.full(64, 0.5, np.float32), seed=0.0),
    drawing("Multinomial", np.zeros((1, 1000), np.float32), INT32, sample_size=8, seed=1e30),
]


@pytest.mark.parametrize(("source", "feed"), SEEDED)
def test_a_seed_gives_each_session_the_same_numbers_and_each_run_others(
    source: Any, feed: Any, cache: PrimitiveProvider
) -> None:
    first, second = draws(cache, source, feed, 3), draws(cache, source, feed, 3)
    np.testing.assert_array_equal(first, second)
    assert len({each.tobytes() for each in first}) == 3


def test_without_a_seed_all_runs_and_sessions_differ(cache: PrimitiveProvider) -> None:
    source, feed = drawing("RandomNormal", shape=[5])
    assert len({each.tobytes() for each in (*draws(cache, source, feed, 3), *draws(cache, source, feed, 3))}) == 6


@pytest.mark.usefixtures("seeded")
def test_set_seed_gives_sessions_made_after_it_the_same_numbers_and_each_node_others(cache: PrimitiveProvider) -> None:
    nodes = [node("RandomNormal", [], [name], shape=[5]) for name in "ab"]
    source = made(nodes, {}, {"a": FLOAT, "b": FLOAT})

    def found() -> list[list[Array]]:
        made_now = session(source, cache)
        return [made_now.run(None, {}) for _ in range(2)]

    ort.set_seed(12)
    first, second = found(), found()
    ort.set_seed(-13)
    other = found()
    np.testing.assert_array_equal(first, second)
    every = [each.tobytes() for runs in (first, other) for run in runs for each in run]
    assert len(set(every)) == 8
    with pytest.raises(TypeError, match="seed: expect an integer"):
        ort.set_seed(1.5)  # type: ignore[arg-type]


def noisy() -> onnx.ModelProto:
    """Return a model with the sampling of a variational autoencoder, whose noise is an output too."""
    nodes = [
        node("Mul", ["x", "x"], ["squares"]),
        node("RandomNormalLike", ["squares"], ["noise"]),
        node("Mul", ["noise", "squares"], ["scaled"]),
        node("Add", ["x", "scaled"], ["y"]),
        node("Sub", ["noise", "scaled"], ["z"]),
    ]
    return made(nodes, {"x": (FLOAT, ["n", 3])}, dict.fromkeys(("y", "z", "noise"), FLOAT))


def check_noisy(found: list[Array], x: Array) -> bytes:
    y, z, noise = found
    np.testing.assert_allclose(y, x + noise * x * x, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(z, noise - noise * x * x, rtol=1e-5, atol=1e-5)
    return noise.tobytes()


def test_all_nodes_of_a_run_read_the_same_numbers_for_inputs_of_any_sizes(cache: PrimitiveProvider) -> None:
    found, random = session(noisy(), cache), np.random.default_rng()
    given = [random.standard_normal((count, 3), np.float32) for count in (4, 4, 7, 4)]
    assert len({check_noisy(found.run(None, {"x": x}), x) for x in given}) == 4
    assert found.run(None, {"x": np.zeros((0, 3), np.float32)})[0].shape == (0, 3)


def test_threads_draw_different_numbers(cache: PrimitiveProvider) -> None:
    found, x = session(noisy(), cache), np.ones((4, 3), np.float32)
    with ThreadPoolExecutor(4) as threads:
        drawn = list(threads.map(lambda _: check_noisy(found.run(None, {"x": x}), x), range(40)))
    assert len(set(drawn)) == 40


def test_numbers_like_a_constant_are_drawn_in_each_run_and_never_folded(cache: PrimitiveProvider) -> None:
    nodes = [
        node("Add", ["c", "c"], ["twice"]),
        node("RandomUniformLike", ["twice"], ["drawn"]),
        node("RandomUniformLike", ["c"], ["other"]),
        node("Add", ["drawn", "twice"], ["y"]),
        node("Mul", ["drawn", "x"], ["z"]),
    ]
    outputs: dict[str, int] = dict.fromkeys(("y", "z", "other"), FLOAT)
    source = made(nodes, {"x": (FLOAT, [2])}, outputs, c=np.full(2, 3, np.float32))
    found, x = session(source, cache), np.full(2, 10, np.float32)
    runs = [found.run(None, {"x": x}) for _ in range(3)]
    for y, z, _ in runs:
        np.testing.assert_allclose((y - 6) * 10, z, atol=1e-4)
    assert len({each.tobytes() for run in runs for each in (run[0], run[2])}) == 6


def test_each_pass_and_each_branch_draws(cache: PrimitiveProvider) -> None:
    inside = [
        node("Identity", ["goes"], ["goes_on"]),
        node("RandomNormalLike", ["old"], ["new"]),
        node("Identity", ["new"], ["kept"]),
    ]
    inputs: dict[str, Any] = {"step": (INT64, []), "goes": (BOOL, []), "old": (FLOAT, None)}
    body = graph(inside, inputs, {"goes_on": (BOOL, []), "new": (FLOAT, None), "kept": (FLOAT, [2])})
    then = graph([node("RandomUniformLike", ["x"], ["one"], low=5.0, high=6.0)], {}, {"one": (FLOAT, None)})
    other = graph([node("Identity", ["x"], ["two"])], {}, {"two": (FLOAT, None)})
    nodes = [
        node("Loop", ["passes", "", "x"], ["last", "all"], body=body),
        node("If", ["condition"], ["part"], then_branch=then, else_branch=other),
    ]
    given = {"x": (FLOAT, [2]), "condition": (BOOL, [])}
    source = made(nodes, given, dict.fromkeys(("last", "all", "part"), FLOAT), passes=np.array(3))
    found, x = session(source, cache), np.ones(2, np.float32)
    rows = []
    for condition in (True, False, True):
        last, every, part = found.run(None, {"x": x, "condition": np.array(condition)})
        np.testing.assert_array_equal(every[-1], last)
        rows += [each.tobytes() for each in every]
        assert bool((part > 4).all()) is condition
    assert len(set(rows)) == 9


def test_a_forked_process_draws_numbers_of_its_own_unless_there_is_a_seed(cache: PrimitiveProvider) -> None:
    sources = [drawing("RandomNormal", shape=[4])[0], drawing("RandomNormal", shape=[4], seed=3.0)[0]]
    sessions = [session(each, cache) for each in sources]
    for each in sessions:
        each.run(None, {})
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        os.write(writer, b"".join(each.run(None, {})[0].tobytes() for each in sessions))
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    there = os.read(reader, 64)
    os.close(reader)
    os.close(writer)
    here = b"".join(each.run(None, {})[0].tobytes() for each in sessions)
    assert len(there) == len(here) == 32
    assert (there[:16] != here[:16], there[16:] == here[16:]) == (True, True)


def test_a_graph_draws_nothing_and_says_that_sessions_do() -> None:
    with pytest.raises(poolrt.UnsupportedNode, match=r"a graph draws no numbers; sessions do: poolrt\.onnx\."):
        poolrt.load_onnx(noisy(), shapes={"x": (2, 3)})


REFUSED: list[tuple[Any, str]] = [
    (drawing("RandomNormal"), "attribute shape is missing"),
    (drawing("RandomNormal", shape=[-1]), "its result has a negative size"),
    (drawing("RandomUniform", shape=[1 << 20, 1 << 20]), "the limit of all is"),
    (drawing("RandomNormal", out=INT64, shape=[2], dtype=INT64), "dtype: expect float64, float32, float16, bfloat16, got int64"),
    (drawing("RandomNormalLike", np.zeros(2, np.int64)), "dtype: expect float64, float32, float16, bfloat16, got int64"),
    (drawing("RandomNormalLike", np.zeros(2, np.float32), seed=[1.0]), "attribute seed: expect a number"),
    (drawing("Bernoulli", np.zeros(2, np.float32), dtype=8), "dtype: expect"),
    (drawing("Multinomial", np.zeros(2, np.float32), INT32), "expect rows of classes, got 1 dimensions"),
    (drawing("Multinomial", np.zeros((1, 2), np.float32), INT32, sample_size=0), "sample_size: expect 1 at least, got 0"),
]  # fmt: skip


@pytest.mark.parametrize(("source", "text"), REFUSED, ids=[text for _, text in REFUSED])
def test_what_is_not_valid_is_refused(source: Any, text: str, cache: PrimitiveProvider) -> None:
    with pytest.raises(poolrt.ModelError) as caught:
        draws(cache, *source)
    assert text in str(caught.value)
