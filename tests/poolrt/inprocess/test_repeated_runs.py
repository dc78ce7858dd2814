"""Runs like the last one take a short path; anything that differs takes the long one, and results are right on both."""

from __future__ import annotations

import mmap
import threading
from collections.abc import Callable, Sequence
from contextlib import closing
from typing import Any, Final

import numpy as np
import pytest

from poolrt import DeviceContext, Engine, Executor, Graph, NativePool, Stream, StreamAttr, set_default_jobs
from poolrt.inprocess.device_context import InstanceKey
from poolrt.workers.primitives.provider import PrimitiveProvider
from poolrt.workers.threadpools.interface import Region
from poolrt.workers.threadpools.threads import ThreadsPool
from tests.workers.compiled import region_loop

from .networks import Array
from .test_arrays import before_a_guard

ROWS: Final = (6, 40)
BOUND_S: Final = 60.0


def softmax(cache: PrimitiveProvider, **given: Any) -> Executor:
    """Return an executor of ``y = softmax(a + b)``, two steps on two inputs."""
    g = Graph("rows")
    g.output("y", g.softmax(g.binary(g.input("a", ROWS), g.input("b", ROWS), "add"), axis=1))
    return Executor(g, cache=cache, **given)


def check(executor: Executor, a: Any, b: Any) -> Array:
    """Run, compare with float64, and return the result."""
    y: Array = executor.run(a=a, b=b)["y"]
    e = np.exp(np.asarray(a, np.float64) + b)
    np.testing.assert_allclose(y, e / e.sum(1, keepdims=True), rtol=1e-5, atol=1e-7)
    return y


def drawn(shape: tuple[int, int] = ROWS) -> Array:
    """Return random numbers in memory that does not end where a page does, which takes the long path."""
    room = np.empty(3 * mmap.PAGESIZE, np.uint8)
    begin = -room.ctypes.data % mmap.PAGESIZE
    found: Array = room[begin : begin + 4 * shape[0] * shape[1]].view(np.float32).reshape(shape)
    found[...] = np.random.default_rng().standard_normal(shape, np.float32)
    return found


def is_repeated(executor: Executor, a: Any, b: Any) -> bool:
    """Return whether a run of these inputs takes the short path, and check its result if it does."""
    found = executor._graphs.repeat({"b": b, "a": a}, executor.phase)
    if found is None:
        return False
    e = np.exp(a.astype(np.float64) + b)
    np.testing.assert_allclose(found["y"], e / e.sum(1, keepdims=True), rtol=1e-5, atol=1e-7)
    return True


def test_a_run_like_the_last_one_takes_the_short_path(
    cache: PrimitiveProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    executor = softmax(cache)
    results = [check(executor, drawn(), drawn())]
    copy, found = results[0].copy(), executor.context.statistics().found
    monkeypatch.setattr(executor._graphs, "run", None)
    results += [check(executor, drawn(), drawn()) for _ in range(5)]
    # Each result is memory of its own, and each run finds its instance once.
    assert not any(np.shares_memory(x, y) for i, x in enumerate(results) for y in results[:i])
    assert np.array_equal(results[0], copy)
    assert executor.context.statistics().found == found + 5


def test_other_inputs_take_the_long_path(cache: PrimitiveProvider) -> None:
    executor = softmax(cache)
    check(executor, drawn(), drawn())
    b = drawn()
    assert is_repeated(executor, drawn(), b)
    others: list[Any] = [
        drawn((ROWS[1], ROWS[0])).T, drawn((6, 80))[:, ::2], drawn().tolist(), drawn().astype(">f4"),
        drawn()[:, ::-1], drawn().view(_Other),
    ]  # fmt: skip
    for a in others:
        assert not is_repeated(executor, a, b)
    for a in (others[0], others[1], others[2], others[4], others[5]):
        check(executor, a, b)
        assert is_repeated(executor, drawn(), b)
    with pytest.raises(TypeError, match="input a: expect dtype float32, got float64"):
        executor.run(a=drawn().astype(np.float64), b=b)
    for wrong in ({"a": b}, {"a": b, "b": b, "c": b}, {"a": b, "c": b}):
        with pytest.raises(ValueError, match="graph rows"):
            executor.run(**wrong)
    check(executor, drawn(), b)


def test_the_same_arrays_are_read_again_after_a_run_of_others(cache: PrimitiveProvider) -> None:
    executor = softmax(cache)
    a, b = drawn(), drawn()
    check(executor, a, b)
    for other in (drawn(), drawn((ROWS[1], ROWS[0])).T):
        assert is_repeated(executor, a, b)
        a += 1
        assert is_repeated(executor, a, b)
        # By the short path and by the long one.
        check(executor, other, b)
        assert is_repeated(executor, a, b)
        assert is_repeated(executor, b, a)


class _Other(np.ndarray[Any, Any]):
    """An array of another class, which may hide what it has."""


def test_an_input_that_ends_with_its_page_takes_the_short_path_if_nothing_is_read_behind_it(
    cache: PrimitiveProvider,
) -> None:
    executor = softmax(cache)
    check(executor, drawn(), drawn())
    guarded = before_a_guard(ROWS)
    guarded[...] = drawn()
    assert is_repeated(executor, guarded, drawn())
    check(executor, guarded, drawn())


def test_an_input_that_ends_with_its_page_takes_the_long_path_if_a_kernel_reads_behind_it(
    cache: PrimitiveProvider,
) -> None:
    g = Graph("product")
    weights = drawn((ROWS[1], 5))
    x = g.input("x", ROWS)
    g.output("y", g.matmul(x, weights))
    # A step that reads nothing behind it leaves it so.
    g.output("z", g.eltwise(x, "relu"))
    executor = Executor(g, cache=cache)
    guarded = before_a_guard(ROWS)
    for given in (drawn(), guarded, drawn(), guarded):
        given[...] = drawn()
        got = executor.run(x=given)
        np.testing.assert_allclose(
            got["y"], given.astype(np.float64) @ weights.astype(np.float64), rtol=1e-4, atol=1e-5
        )
        assert np.array_equal(got["z"], np.maximum(given, 0))
    assert executor._graphs.repeat({"x": guarded}, executor.phase) is None
    assert executor._graphs.repeat({"x": drawn()}, executor.phase) is not None


def test_another_shape_is_the_last_one_from_then_on(cache: PrimitiveProvider) -> None:
    executor = softmax(cache)
    check(executor, drawn(), drawn())
    larger = drawn((9, 40)), drawn((9, 40))
    assert not is_repeated(executor, *larger)
    check(executor, *larger)
    assert is_repeated(executor, *larger)
    assert not is_repeated(executor, drawn(), drawn())
    check(executor, drawn(), drawn())


@pytest.mark.parametrize(
    "change",
    [
        lambda executor: setattr(executor, "phase", "train"),
        lambda executor: executor.context.forget(executor._graphs.context.executor),
        lambda executor: executor.context.add(InstanceKey("constant", (), (), object()), object()),
    ],
    ids=["phase", "forgotten", "another instance"],
)
def test_what_changes_beside_the_inputs_takes_the_long_path_once(
    cache: PrimitiveProvider, change: Callable[[Executor], None]
) -> None:
    executor = softmax(cache)
    check(executor, drawn(), drawn())
    change(executor)
    assert not is_repeated(executor, drawn(), drawn())
    check(executor, drawn(), drawn())
    assert is_repeated(executor, drawn(), drawn())


def test_a_number_of_jobs_that_is_set_takes_the_long_path_once(cache: PrimitiveProvider) -> None:
    executor = softmax(cache)
    check(executor, drawn(), drawn())
    set_default_jobs(3)
    try:
        assert not is_repeated(executor, drawn(), drawn())
        check(executor, drawn(), drawn())
        assert is_repeated(executor, drawn(), drawn())
    finally:
        set_default_jobs(0)
    assert not is_repeated(executor, drawn(), drawn())


@pytest.mark.parametrize("threads", [1, 2])
def test_a_synchronous_pool_takes_the_short_path_outside_of_its_tasks(cache: PrimitiveProvider, threads: int) -> None:
    found: list[bool] = []
    with closing(NativePool(threads, kernels=region_loop("loop", "submit", "nest", "clock"))) as pool:
        executor = softmax(cache, stream=on(pool))
        check(executor, drawn(), drawn())
        assert is_repeated(executor, drawn(), drawn())
        pool.parallel_for(1, lambda i, n: found.append(is_repeated(executor, drawn(), drawn())))
        pool.parallel_for(1, lambda i, n: found.append(check(executor, drawn(), drawn()).shape == ROWS))
        assert found == [False, True]
        check(executor, drawn(), drawn())
        assert is_repeated(executor, drawn(), drawn())


@pytest.mark.parametrize(("steps", "jobs"), [(4, 1), (5, 2)])
def test_a_step_of_10_us_is_cut_amid_many_others(
    cache: PrimitiveProvider, steps: int, jobs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    cut: list[int] = []
    run_regions = NativePool.run_regions

    def recorded(pool: NativePool, regions: Sequence[Region]) -> None:
        cut.extend(len(region.blobs) for region in regions)
        run_regions(pool, regions)

    monkeypatch.setattr(NativePool, "run_regions", recorded)
    g = Graph("g")
    values = g.input("x", (48, 1024))
    for _ in range(steps):
        values = g.eltwise(values, "tanh")
    g.output("y", values)
    want = x = np.random.default_rng(0).standard_normal((48, 1024), np.float32)
    for _ in range(steps):
        want = np.tanh(want)
    with closing(NativePool(2, kernels=region_loop("loop", "submit", "nest", "clock"))) as pool:
        executor = Executor(g, stream=on(pool), cache=cache)
        for _ in range(3):
            np.testing.assert_allclose(executor.run(x=x)["y"], want, atol=1e-5)
    assert cut[:steps] == [jobs] * steps


def test_other_pools_take_the_long_path(cache: PrimitiveProvider) -> None:
    with (
        closing(NativePool(2, asynchronous=True, kernels=region_loop("loop", "submit", "nest", "clock"))) as pool,
        closing(ThreadsPool(2)) as changing,
    ):
        for other in (pool, changing):
            executor = softmax(cache, stream=on(other))
            check(executor, drawn(), drawn())
            assert not is_repeated(executor, drawn(), drawn())
            check(executor, drawn(), drawn())


def test_in_a_shared_context_only_the_thread_of_the_last_run_takes_the_short_path(cache: PrimitiveProvider) -> None:
    executor = softmax(cache, context=DeviceContext(shared=True))
    check(executor, drawn(), drawn())
    assert is_repeated(executor, drawn(), drawn())
    found: list[bool] = []

    def another() -> None:
        found.append(is_repeated(executor, drawn(), drawn()))
        check(executor, drawn(), drawn())
        found.append(is_repeated(executor, drawn(), drawn()))

    thread = threading.Thread(target=another)
    thread.start()
    thread.join(BOUND_S)
    assert found == [False, True]
    assert not is_repeated(executor, drawn(), drawn())
    check(executor, drawn(), drawn())
    assert is_repeated(executor, drawn(), drawn())


def on(pool: Any) -> Stream:
    """Return a stream that computes on a pool."""
    attr = StreamAttr("cpu")
    attr.set_threadpool(pool)
    return Stream(Engine("cpu"), attr)
