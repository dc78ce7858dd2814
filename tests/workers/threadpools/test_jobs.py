"""Cutting work into jobs: none is empty or too short; a pool that balances gets several a thread; users may set a number."""

from __future__ import annotations

import ctypes
import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest

from poolrt.cachestore import CacheStore
from poolrt.workers import Eltwise, Softmax
from poolrt.workers.desc import (
    Arg,
    Binary,
    Convolution,
    Gather,
    Matmul,
    MemoryDesc,
    OpDesc,
    Pooling,
    PrimitiveAttr,
    Resampling,
    TopK,
)
from poolrt.workers.engines.engine import Engine
from poolrt.workers.engines.target import cpu_target
from poolrt.workers.execution.memory import Memory
from poolrt.workers.implementations.cost_model import nanoseconds
from poolrt.workers.implementations.primitive_desc import PrimitiveDesc, primitive_descs
from poolrt.workers.streams.attributes import StreamAttr
from poolrt.workers.streams.stream import Stream
from poolrt.workers.threadpools.interface import Region
from poolrt.workers.threadpools.jobs import Jobs, default_jobs, get_default_jobs, set_default_jobs
from poolrt.workers.threadpools.native import NativePool
from poolrt.workers.threadpools.sequential import SequentialPool
from poolrt.workers.threadpools.threads import ThreadsPool
from tests.workers import compiled
from tests.workers.levels import target_of


def test_there_is_at_least_one_job_and_none_is_empty() -> None:
    seed = random.randrange(1 << 32)
    draw = random.Random(seed)
    for _ in range(2000):
        jobs = Jobs(draw.randint(1, 9), draw.choice([1, 4]), draw.choice([0, 1000, 10_000]), 0, draw.random() < 0.5)
        least = jobs.least_ns // 2 if jobs.amid_others else jobs.least_ns
        work, cost = draw.randint(1, 100), draw.choice([0, 500, 20_000, 10**7])
        count = jobs.cut(work, cost)
        assert 1 <= count <= min(work, jobs.threads * jobs.each), (seed, jobs, work, cost)
        assert count == 1 or cost // count >= least, (seed, jobs, work, cost)


def test_a_pool_that_balances_gets_four_jobs_a_thread() -> None:
    class Balancing(SequentialPool):
        def get_flags(self) -> int:
            return self.AUTO_BALANCING

    found = Jobs.on(Balancing()), Jobs.on(SequentialPool())
    assert [jobs.each for jobs in found] == [4, 1]
    assert Jobs(2, found[0].each, 0).cut(100, 10**9) == 8


@pytest.mark.parametrize(
    ("jobs", "cost", "count"),
    [
        (Jobs(2, 1, 10_000), 19_000, 1),  # too short for two
        (Jobs(2, 1, 10_000), 20_000, 2),
        (Jobs(2, 1, 10_000), 10**9, 2),  # one a thread
        (Jobs(2, 4, 10_000), 70_000, 6),  # as many as are worth it, the same for each thread
        (Jobs(2, 4, 10_000), 10**9, 8),
        (Jobs(1, 4, 10_000), 10**9, 1),  # a thread alone has no other to help it
        (Jobs(7, 1, 10_000), 30_000, 3),  # fewer than threads
        (Jobs(2, 4, 10_000, 0, True), 9_000, 1),  # amid other regions
        (Jobs(2, 4, 10_000, 0, True), 10_000, 2),
        (Jobs(2, 4, 10_000, 0, True), 39_000, 2),
        (Jobs(2, 4, 10_000, 0, True), 70_000, 6),
        (Jobs(7, 1, 10_000, 0, True), 30_000, 6),
        (Jobs(7, 1, 10_000, 0, True), 50_000, 7),
        (Jobs(1, 4, 10_000, 0, True), 15_000, 1),
        (Jobs(2, 4, 10_000, 5), 10**9, 5),  # the number that was asked for, whatever the pool has
        (Jobs(7, 1, 0, 20), 100, 20),
        (Jobs(2, 1, 10_000, 5), 30_000, 3),  # unless jobs would be too short
        (Jobs(2, 1, 0, 4096), 10**9, 1000),  # or empty
    ],
)
def test_long_work_is_cut_into_the_best_number_of_jobs(jobs: Jobs, cost: int, count: int) -> None:
    assert jobs.cut(1000, cost) == count


def test_a_pool_defines_the_shortest_worthwhile_job() -> None:
    with ThreadsPool(3) as pool:
        pool.least_job_ns = 7
        assert Jobs.on(pool) == Jobs(3, 1, 7)


@pytest.fixture
def no_default() -> Iterator[None]:
    """Forget the number of this process before the test and after it."""
    default_jobs.cache_clear()
    yield
    default_jobs.cache_clear()


class Counting(SequentialPool):
    """Counts the tasks of regions."""

    least_job_ns = 0

    def __init__(self) -> None:
        self.tasks: list[int] = []

    def run_regions(self, regions: Sequence[Region]) -> None:
        self.tasks += [len(region.blobs) for region in regions]
        super().run_regions(regions)


@pytest.mark.usefixtures("no_default")
def test_an_attribute_comes_before_the_number_of_the_process_and_that_before_the_pools(
    store: CacheStore,
) -> None:
    set_default_jobs(3)
    engine, pool, md = Engine("cpu"), Counting(), MemoryDesc((256, 1024), "f32")
    attributes = StreamAttr("cpu")
    attributes.set_threadpool(pool)
    stream = Stream(engine, attributes)
    args = {arg: Memory(md, engine) for arg in (Arg.SRC, Arg.DST)}
    args[Arg.SRC].numpy()[:] = 2

    def executed(attr: PrimitiveAttr | None = None) -> int:
        args[Arg.DST].numpy()[:] = 0
        pd = Eltwise.PrimitiveDesc(engine, md, md, "linear", 2.0, attr=attr)
        pd.create(compiled.cache(4, store)).execute(stream, args)
        assert (args[Arg.DST].numpy() == 4).all()
        return pool.tasks.pop()

    assert get_default_jobs() == 3
    assert executed() == 3
    assert executed(PrimitiveAttr(jobs=7)) == 7
    set_default_jobs(5)
    assert (executed(), executed(PrimitiveAttr(jobs=2))) == (5, 2)
    set_default_jobs(0)
    assert executed() == 1


@pytest.mark.usefixtures("no_default")
@pytest.mark.parametrize("wrong", [-1, 4097, True, 2.5, "2", None])
def test_another_number_of_jobs_is_refused(wrong: Any) -> None:
    with pytest.raises(ValueError, match="jobs: expect"):
        PrimitiveAttr(jobs=wrong)
    with pytest.raises(ValueError, match="jobs: expect"):
        set_default_jobs(wrong)
    assert get_default_jobs() == 0


def convolutions(size: int) -> list[PrimitiveDesc]:
    src, dst = MemoryDesc((1, 64, size, size), "f32"), MemoryDesc((1, 64, size, size), "f32")
    op = Convolution(src, MemoryDesc((64, 64, 1, 1), "f32"), None, dst, (1, 1), (0, 0), (0, 0), (0, 0))
    return primitive_descs(op, PrimitiveAttr(), cpu_target())


def test_the_estimate_grows_with_the_problem_and_references_are_slower() -> None:
    small, large = convolutions(8), convolutions(80)
    assert 50 < nanoseconds(large[0]) / nanoseconds(small[0]) < 200
    assert nanoseconds(small[-1]) > 10 * nanoseconds(small[0])
    assert small[-1].impl_name().startswith("ref:")


def test_the_estimate_is_longer_for_functions_and_windows_that_take_longer() -> None:
    image, large = (MemoryDesc((1, 64, size, size), "f32") for size in (32, 64))

    def estimate(op: OpDesc) -> int:
        return nanoseconds(primitive_descs(op, PrimitiveAttr(), cpu_target())[0])

    def pooling(size: int) -> OpDesc:
        return Pooling(
            image, image, "max", (size, size), (1, 1), (0, 0), (size // 2, size // 2), (size // 2, size // 2)
        )

    assert estimate(Eltwise(image, image, "gelu_erf")) > 2 * estimate(Eltwise(image, image, "relu"))
    assert estimate(Eltwise(image, image, "softplus")) > 4 * estimate(Eltwise(image, image, "relu"))
    assert estimate(Binary(image, image, image, "pow")) > 4 * estimate(Binary(image, image, image, "add"))
    half = MemoryDesc(image.dims, "f16")
    assert estimate(Eltwise(half, half, "erf")) == pytest.approx(estimate(Eltwise(image, image, "erf")), rel=0.01)
    cubic, nearest = (estimate(Resampling(image, large, algorithm)) for algorithm in ("cubic", "nearest"))
    assert cubic > 5 * nearest
    assert estimate(pooling(13)) > 3 * estimate(pooling(3))
    table, rows, best = MemoryDesc((50, 50), "u8"), MemoryDesc((50, 50), "f32"), MemoryDesc((50, 5), "f32")
    along = [Gather(table, MemoryDesc((50,), "s64"), table, "rows", axis) for axis in (0, 1)]
    assert estimate(along[1]) > 5 * estimate(along[0])
    first = MemoryDesc((50, 1), "f32")
    few, one = (TopK(rows, md, replace(md, dtype="s64"), k, 1) for md, k in ((best, 5), (first, 1)))
    assert estimate(few) > 3 * estimate(one)


@pytest.mark.parametrize("algorithm", ["erf", "log", "sin", "cos", "tan", "softplus"])
def test_functions_that_take_long_are_two_jobs_where_others_are_one(algorithm: str) -> None:
    def jobs(name: str) -> int:
        numbers = MemoryDesc((64, 1000), "f32")
        op = Eltwise(numbers, numbers, name, 1.0 if name == "softplus" else 0.0)
        estimated = nanoseconds(primitive_descs(op, PrimitiveAttr(), cpu_target())[0])
        return Jobs(2, 1, NativePool.least_job_ns).cut(64, estimated)

    assert jobs("relu") == 1
    assert jobs(algorithm) == 2


@pytest.mark.parametrize("form", ["forward", "gradient", "gradient from dst"])
def test_functions_of_other_floats_and_their_gradients_are_estimated_longer(form: str) -> None:
    def estimate(dtype: str) -> int:
        md = MemoryDesc((64, 1000), dtype)
        op = Eltwise(md, md, "tanh")
        if form != "forward":
            op = replace(op, prop="backward_data", diff_src=md, diff_dst=md, use_dst=form.endswith("dst"))
        return nanoseconds(primitive_descs(op, PrimitiveAttr(), cpu_target())[0])

    assert estimate("f64") > 3 * estimate("f32")  # of twice the bytes


def test_the_estimate_is_longer_for_products_on_shorter_vectors() -> None:
    matrix = MemoryDesc((96, 96), "f32")
    product = Matmul(matrix, matrix, None, matrix)

    def estimate(level: str) -> int:
        return nanoseconds(primitive_descs(product, PrimitiveAttr(), target_of(level))[0])

    assert estimate("x86-64-v3") > 1.5 * estimate("x86-64-v4")


def test_parts_of_uneven_work_are_as_even_for_threads_that_take_one_after_the_other(store: CacheStore) -> None:
    sizes: list[list[int]] = []

    class Parts(SequentialPool):
        least_job_ns = 0

        def run_regions(self, regions: Sequence[Region]) -> None:
            for region in regions:
                ranges = [(ctypes.c_int64 * 2).from_address(blob) for blob in region.blobs]
                assert [end for _, end in ranges[:-1]] == [begin for begin, _ in ranges[1:]]
                sizes.append([end - begin for begin, end in ranges])
            super().run_regions(regions)

    engine, md = Engine("cpu"), MemoryDesc((14, 1000), "f32")
    attributes, pool = StreamAttr("cpu"), Parts()
    attributes.set_threadpool(pool)
    args = {arg: Memory(md, engine) for arg in (Arg.SRC, Arg.DST)}
    pd = Softmax.PrimitiveDesc(engine, md, md, 1, attr=PrimitiveAttr(jobs=4))
    pd.create(compiled.cache(4, store)).execute(Stream(engine, attributes), args)
    assert sizes == [[4, 4, 3, 3]]
