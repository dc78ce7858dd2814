"""Models in which a size or a value has to be known that only a run gives: sessions run them in stages, right as ONNX Runtime."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import poolrt
import poolrt.onnx as ort
from poolrt.errors import WorkerLost
from poolrt.onnx import stages
from poolrt.workers.primitives.provider import PrimitiveProvider
from tests.interrupting import interrupted_by_timer

from . import staged_models
from .models import Array, rival, session
from .staged_models import FLOAT, KINDS, made, node


def check(found: ort.InferenceSession, expected: Any, feed: dict[str, Array]) -> None:
    for given, wanted in zip(found.run(None, feed), expected.run(None, feed), strict=True):
        assert (given.dtype, given.shape) == (wanted.dtype, wanted.shape)
        np.testing.assert_allclose(given, wanted, rtol=1e-4, atol=1e-4)


def resident() -> int:
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.one_in(4)
def test_a_session_runs_a_model_in_stages(kind: str, cache: PrimitiveProvider) -> None:
    source, feeds = KINDS[kind](np.random.default_rng())
    with pytest.raises(poolrt.ModelError):
        poolrt.load_onnx(source, shapes={name: array.shape for name, array in next(feeds).items()})
    found, expected = session(source, cache), rival(source)
    for feed in feeds:
        check(found, expected, feed)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_nodes_in_any_order_run_in_stages(kind: str, cache: PrimitiveProvider) -> None:
    source, feeds = KINDS[kind](np.random.default_rng())
    mixed = onnx.ModelProto()
    mixed.CopyFrom(source)
    del mixed.graph.node[:]
    mixed.graph.node.extend(source.graph.node[each] for each in np.random.permutation(len(source.graph.node)))
    found, expected = session(mixed, cache), rival(source)
    for feed in feeds:
        check(found, expected, feed)


def counted(call: Callable[..., Any], name: str, calls: list[str]) -> Callable[..., Any]:
    def called(*arguments: Any) -> Any:
        calls.append(name)
        return call(*arguments)

    return called


def test_counts_that_differ_take_plans_of_later_stages_only(
    cache: PrimitiveProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    random = np.random.default_rng()
    source, _ = KINDS["chosen_rows"](random)
    found, expected = session(source, cache), rival(source)
    imports: list[str] = []
    for name in ("graph", "part_graph"):
        monkeypatch.setattr(found._model, name, counted(getattr(found._model, name), name, imports))
    for positive in (3, 5, 3, 0, 9, 5):
        x = np.abs(random.standard_normal((9, 4), np.float32))
        x[positive:] *= -1
        check(found, expected, {"x": x})
    # The whole model is refused once; then there is a plan of the first stage, and one for each count.
    assert imports == ["graph", *["part_graph"] * (1 + 4)]
    assert found._stages.cuts() == [("rows", "turned")]


def test_values_of_an_input_that_sizes_depend_on_cut_no_model(cache: PrimitiveProvider) -> None:
    nodes = [node("Relu", ["x"], ["r"]), node("Reshape", ["r", "shape"], ["y"])]
    found = session(made(nodes, {"x": (FLOAT, [2, 6]), "shape": (staged_models.INT64, [2])}, {"y": FLOAT}), cache)
    (y,) = found.run(None, {"x": np.ones((2, 6), np.float32), "shape": np.array([3, 4])})
    assert y.shape == (3, 4)
    assert found._stages.cuts() == []


def test_what_later_stages_need_is_computed_once(cache: PrimitiveProvider) -> None:
    nodes = [
        node("Mul", ["x", "x"], ["squares"]),
        node("Greater", ["squares", "limit"], ["great"]),
        node("Compress", ["squares", "great"], ["kept"], axis=0),
        node("Constant", [], ["of_rows"], value_ints=[0]),
        node("ReduceSum", ["kept", "of_rows"], ["sum"], keepdims=0),
        node("Sub", ["squares", "sum"], ["y"]),
    ]
    source = made(nodes, {"x": (FLOAT, ["n"])}, {"y": FLOAT, "squares": FLOAT}, limit=np.array(0.1, np.float32))
    found, expected = session(source, cache), rival(source)
    for feed in staged_models.columns(np.random.default_rng(), 50, 8):
        check(found, expected, feed)
    # A constant is no tensor that goes from one stage to the next.
    assert found._stages.cuts() == [("squares", "kept")]


def test_threads_run_stages_at_once(cache: PrimitiveProvider) -> None:
    source, feeds = KINDS["different"](np.random.default_rng())
    found, expected = session(source, cache), rival(source)
    every = [feed for feed in feeds for _ in range(5)]
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda feed: check(found, expected, feed), every))


def test_outputs_of_stages_are_written_to_bound_memory(cache: PrimitiveProvider) -> None:
    random = np.random.default_rng()
    source, _ = KINDS["places"](random)
    found, expected = session(source, cache), rival(source)
    for feed in staged_models.columns(random, 9, 5, width=4):
        y = np.zeros(2, np.float32)
        binding = found.io_binding()
        binding.bind_cpu_input("x", feed["x"])
        binding.bind_ortvalue_output("y", ort.OrtValue.ortvalue_from_numpy(y))
        found.run_with_iobinding(binding)
        np.testing.assert_allclose(binding.get_outputs()[0].numpy(), expected.run(None, feed)[0], rtol=1e-4, atol=1e-4)


def test_an_output_in_the_memory_of_an_input_is_written_when_no_stage_reads_it(cache: PrimitiveProvider) -> None:
    nodes = [
        node("Mul", ["x", "x"], ["squares"]),
        node("Greater", ["squares", "limit"], ["great"]),
        node("Compress", ["squares", "great"], ["kept"], axis=0),
        node("ReduceSum", ["kept", "at_0"], ["sum"], keepdims=0),
        node("Sub", ["x", "sum"], ["y"]),
    ]
    source = made(nodes, {"x": (FLOAT, ["n"])}, {"y": FLOAT, "squares": FLOAT}, limit=np.array(0.1, np.float32))
    found, x = session(source, cache), np.random.default_rng().standard_normal(50, np.float32)
    wanted = rival(source).run(None, {"x": x})[0]
    binding = found.io_binding()
    binding.bind_cpu_input("x", x)
    binding.bind_ortvalue_output("squares", ort.OrtValue.ortvalue_from_numpy(x))
    binding.bind_output("y")
    found.run_with_iobinding(binding)
    np.testing.assert_allclose(binding.copy_outputs_to_cpu()[1], wanted, rtol=1e-4, atol=1e-4)


def test_nodes_that_no_output_needs_cut_no_model(cache: PrimitiveProvider) -> None:
    source, feeds = KINDS["chosen_rows"](np.random.default_rng())
    source.graph.node.extend([node("Relu", ["x"], ["r"]), node("Mul", ["r", "r"], ["kept"])])
    del source.graph.output[:]
    source.graph.output.append(onnx.ValueInfoProto(name="kept"))
    source.graph.output[0].type.tensor_type.elem_type = FLOAT
    found, expected = session(source, cache), rival(source)
    check(found, expected, next(feeds))
    assert found._stages.cuts() == []


def test_the_number_of_stages_is_bounded(cache: PrimitiveProvider, monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng()
    source, feeds = KINDS["nested"](random)
    monkeypatch.setattr(stages, "MOST_STAGES", 3)
    found = session(source, cache)
    with pytest.raises(ort.NotImplemented, match="a run would take more than 3 stages"):
        found.run(None, next(feeds))


def test_bfloat16_goes_from_one_stage_to_the_next(cache: PrimitiveProvider) -> None:
    kind = onnx.TensorProto.BFLOAT16
    nodes = [
        node("Greater", ["x", "zero"], ["positive"]),
        node("Compress", ["x", "positive"], ["kept"], axis=0),
        node("Cast", ["kept"], ["short"], to=kind),
        node("Concat", ["short", "short"], ["twice"], axis=0),
    ]
    source = made(nodes, {"x": (FLOAT, ["n"])}, {"twice": kind, "short": kind})
    x = np.array([1, -1, 2.5, 3, -8], np.float32)
    twice, short = session(source, cache).run(None, {"x": x})
    assert twice.dtype.name == short.dtype.name == "bfloat16"
    np.testing.assert_array_equal(twice.astype(np.float32), [1, 2.5, 3] * 2)
    np.testing.assert_array_equal(short.astype(np.float32), [1, 2.5, 3])


def test_an_error_in_a_later_stage_names_the_node_and_the_tensors_that_it_is_given(cache: PrimitiveProvider) -> None:
    nodes = [
        node("Greater", ["x", "zero"], ["positive"]),
        node("Compress", ["x", "positive"], ["kept"], axis=0),
        node("Reshape", ["kept", "pairs"], ["rows"], name="pairing"),
        node("ReduceSum", ["rows", "at_0"], ["y"], keepdims=0),
    ]
    source = made(nodes, {"x": (FLOAT, ["n"])}, {"y": FLOAT}, pairs=np.array([-1, 2]))
    found, expected = session(source, cache), rival(source)
    check(found, expected, {"x": np.array([1, 2, -1, 3, 4], np.float32)})
    with pytest.raises(
        ort.InvalidGraph, match=r"'pairing' \(Reshape.*in a later stage of the run, given kept float32\[3\]"
    ):
        found.run(None, {"x": np.array([1, 2, -1, 3], np.float32)})
    check(found, expected, {"x": np.array([1, 2, -1, -3, 4, 5], np.float32)})


@pytest.mark.parametrize("computed", [False, True])
def test_a_session_runs_a_model_for_two_widths_of_which_each_fits_one_branch(
    computed: bool, cache: PrimitiveProvider
) -> None:
    then, other = (
        staged_models.graph([node("MatMul", ["x", name], [name + " result"])], {}, {name + " result": (FLOAT, None)})
        for name in ("wide", "narrow")
    )
    nodes = [node("If", ["c"], ["y"], then_branch=then, else_branch=other)]
    inputs: dict[str, Any] = {"x": (FLOAT, [2, "n"])}
    if computed:
        nodes = [node("ReduceSum", ["x"], ["sum"], keepdims=0), node("Greater", ["sum", "zero"], ["c"]), *nodes]
    else:
        inputs["c"] = (staged_models.BOOL, [])
    weights = {
        name: np.arange(3.0 * rows, dtype=np.float32).reshape(rows, 3) for name, rows in (("wide", 4), ("narrow", 5))
    }
    source = made(nodes, inputs, {"y": FLOAT}, **weights)
    found, expected = session(source, cache), rival(source)
    for _ in range(2):
        for width, sign in ((4, 1), (5, -1)):
            feed: dict[str, Array] = {"x": np.full((2, width), sign, np.float32)}
            check(found, expected, feed if computed else {**feed, "c": np.array(sign > 0)})
            wrong = {"x": -feed["x"]} if computed else {**feed, "c": np.array(sign < 0)}
            with pytest.raises(ort.InvalidGraph, match="MatMul"):
                found.run(None, wrong)


def test_what_no_stage_can_compute_is_refused_as_before(cache: PrimitiveProvider) -> None:
    """An option that poolrt does not have, for constant and for counted sizes."""
    kind = {"x": (FLOAT, [6, 4])}
    unknown = node("Cast", ["rows"], ["y"], to=onnx.TensorProto.FLOAT8E4M3FN, name="narrow")
    plain = made([node("Neg", ["x"], ["rows"]), unknown], kind, {"y": onnx.TensorProto.FLOAT8E4M3FN})
    with pytest.raises(ort.NotImplemented, match=r"'narrow'.*cannot be cast to float8_e4m3fn$"):
        session(plain, cache)
    counts = [node("NonZero", ["x"], ["places"]), node("Concat", ["places", "places"], ["rows"], axis=1), unknown]
    found = session(made(counts, kind, {"y": onnx.TensorProto.FLOAT8E4M3FN}), cache)
    for _ in range(2):
        with pytest.raises(
            ort.NotImplemented, match=r"'narrow'.*float8_e4m3fn; in a later stage.*given places int64\[2, 24\]"
        ):
            found.run(None, {"x": np.ones((6, 4), np.float32)})


@pytest.mark.parametrize("most", [30, pytest.param(100, marks=pytest.mark.slow)])
def test_plans_of_many_counts_take_bounded_memory(cache: PrimitiveProvider, most: int) -> None:
    random = np.random.default_rng()
    source, _ = KINDS["chosen_rows"](random)
    bound = 1 << 20
    found, expected = session(source, cache, plan_bytes=bound), rival(source)
    context: Any = found._plans.context  # type: ignore[attr-defined]

    def run(counts: Iterator[int]) -> None:
        for count in counts:
            x = np.abs(random.standard_normal((4000, 4), np.float32))
            x[random.permutation(4000)[10 * count :]] *= -1
            check(found, expected, {"x": x})
            assert context.nbytes <= bound

    run(iter(random.permutation(401)[:most]))
    assert context.statistics().evicted > 0
    gc.collect()
    before = resident()
    run(iter(random.permutation(401)[:most]))
    gc.collect()
    assert resident() - before < 8 << 20


def test_an_interrupt_in_any_stage_leaves_a_session_that_runs(cache: PrimitiveProvider) -> None:
    random = np.random.default_rng()
    source, feeds = KINDS["nested"](random)
    found, expected = session(source, cache), rival(source)
    every = list(feeds)
    for feed in every:
        check(found, expected, feed)

    class Interrupt(BaseException):
        pass

    ended = 0
    with interrupted_by_timer(Interrupt):
        for number, delay in enumerate(random.uniform(1e-5, 2e-3, 60)):
            try:
                signal.setitimer(signal.ITIMER_REAL, delay)
                found.run(None, every[number % len(every)])
                signal.setitimer(signal.ITIMER_REAL, 0)
            except Interrupt:
                ended += 1
    assert ended > 5
    for feed in every:
        check(found, expected, feed)


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[poolrt.Pool]:
    home = tmp_path_factory.mktemp("home")
    settings: dict[str, Any] = {"home": str(home), "redis_url": f"unix://{home}/none.sock", "arena_bytes": 1 << 23}
    with poolrt.Pool(workers=1, threads=1, **settings) as pool:
        yield pool


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["boxes", "branches", "chosen_rows", "nested", "places"])
def test_stages_run_on_a_pool(kind: str, pool: poolrt.Pool) -> None:
    source, feeds = KINDS[kind](np.random.default_rng())
    found, expected = ort.InferenceSession(source, pool=pool), rival(source)
    for feed in feeds:
        check(found, expected, feed)


@pytest.mark.slow
def test_many_counts_take_bounded_memory_of_a_pool(pool: poolrt.Pool) -> None:
    random = np.random.default_rng()
    source, _ = KINDS["chosen_rows"](random)
    found, expected = ort.InferenceSession(source, pool=pool, plan_bytes=1 << 20), rival(source)
    # The inputs of later stages take 11 MB together, the arena has 8.
    for count in range(40_000, 18_000, -2_000):
        x = np.abs(random.standard_normal((40_000, 4), np.float32))
        x[count:] *= -1
        check(found, expected, {"x": x})
    assert len(found._plans._models) <= 2  # type: ignore[attr-defined]


def longer(rows: int, steps: int) -> onnx.ModelProto:
    """Return a model of two stages, of which the second, of chosen rows, takes ``steps`` steps for each run."""
    nodes = [
        node("ReduceMax", ["x"], ["most"], axes=[1], keepdims=0),
        node("Greater", ["most", "zero"], ["mask"]),
        node("Compress", ["x", "mask"], ["kept"], axis=0),
        node("CumSum", ["kept", "none"], ["s0"]),
        *(node("Softsign" if n % 2 else "Tanh", [f"s{n}"], [f"s{n + 1}"]) for n in range(steps)),
    ]
    return made(nodes, {"x": (FLOAT, [rows, 256])}, {f"s{steps}": FLOAT})


@pytest.mark.slow
def test_a_later_stage_that_takes_too_long_is_an_error_and_the_session_goes_on(tmp_path: Path) -> None:
    source = longer(65536, 2000)
    settings: dict[str, Any] = {"home": str(tmp_path), "redis_url": f"unix://{tmp_path}/none.sock"}
    x = np.random.default_rng().standard_normal((65536, 256), np.float32)
    few = x.copy()
    few[3:] = -1
    with poolrt.Pool(workers=1, threads=1, run_timeout_s=0.5, retries=1, **settings) as pool:
        found = ort.InferenceSession(source, pool=pool)
        check(found, rival(source), {"x": few})
        lost = pool.stats()["workers_lost"]
        # The first stage of all rows ends in time, the second does not.
        with pytest.raises(WorkerLost, match=r"20\d\d steps.*run_timeout_s") as caught:
            found.run(None, {"x": x})
        assert caught.value.attempts == 2
        assert pool.stats()["workers_lost"] - lost == 2
        # The worker that comes up next runs both stages, also of sizes that it has not seen.
        check(found, rival(source), {"x": few})
        few[5] = x[5]
        check(found, rival(source), {"x": few})
