"""Products of NumPy matrices: exact for integers, close for floats, on any threadpool."""

from __future__ import annotations

import mmap
import random
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any, Final

import numpy as np
import pytest
from numpy.typing import NDArray

from poolrt.cachestore import CacheStore
from poolrt.workers import gemm
from poolrt.workers.gemm import gemm_s8s8s32, gemm_u8s8s32, sgemm
from poolrt.workers.memory.buffer import SLACK
from poolrt.workers.primitives.provider import primitive_provider
from poolrt.workers.threadpools.interface import Region, ThreadpoolInterface
from poolrt.workers.threadpools.jobs import set_default_jobs
from poolrt.workers.threadpools.native import NativePool
from poolrt.workers.threadpools.sequential import SequentialPool
from tests.at_lines import at_each_line
from tests.workers.own_process import ROOT, python
from tests.workers.threadpools.checking import CheckingPool
from tests.workers.threadpools.kinds import KINDS, made, region_loop

Array = NDArray[Any]
#: An object of another type than any argument.
OTHER: Any = "other"
#: Products over random shapes, by tier.
FEW, MANY = 40, 1_000
GEMMS = {"u8": (gemm_u8s8s32, np.uint8), "s8": (gemm_s8s8s32, np.int8)}


@pytest.fixture(scope="module", autouse=True)
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Give the cache of this process a home of its own for these tests."""
    place = str(tmp_path_factory.mktemp("home"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("POOLRT_HOME", place)
        # Thousands of entries that no later test uses.
        patch.setenv("POOLRT_PRIMITIVE_CACHE_CAPACITY", "0")
        primitive_provider.cache_clear()
        gemm._products.cache_clear()
        yield
    primitive_provider.cache_clear()
    gemm._products.cache_clear()
    CacheStore.connect(home=place).down()


@pytest.fixture(scope="module")
def pools() -> Iterator[list[ThreadpoolInterface | None]]:
    """Return a threadpool of every kind, and none."""
    loop = region_loop()
    with ExitStack() as opened:
        found = [opened.enter_context(made(kind, 2, loop)) for kind in KINDS]
        for pool in found:
            pool.least_job_ns = 0  # however short the work is, it is cut
        yield [None, *found]


def factor(
    rng: np.random.Generator, shape: tuple[int, int], dtype: Any, transposed: bool, gap: int
) -> tuple[Array, Array]:
    """Return op(x) and x as it is given: transposed or not, with rows further apart than they are long."""
    rows, columns = shape[::-1] if transposed else shape
    info = np.iinfo(dtype)
    room = rng.integers(info.min, info.max + 1, (rows, columns + gap)).astype(dtype)
    given = room[:, :columns]
    return (given.T if transposed else given), given


@pytest.mark.parametrize("products", [FEW, pytest.param(MANY, marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", GEMMS)
def test_integer_products_are_exact_over_random_shapes(
    kind: str, products: int, pools: list[ThreadpoolInterface | None]
) -> None:
    multiply, dtype = GEMMS[kind]
    seed = random.SystemRandom().randrange(1 << 32)
    rng, draw = np.random.default_rng(seed), random.Random(seed)

    def size() -> int:
        return draw.choice((1, 16, 64, draw.randint(1, 40), draw.randint(1, 150)))

    # Kernels depend on the number of rows: several products have the same one
    rows = [size() for _ in range(products // 8)]
    for number in range(products):
        m, n, k = draw.choice(rows), size(), size()
        transposed = (draw.random() < 0.3, draw.random() < 0.3)
        gap = draw.choice((0, 0, 3))
        a, given_a = factor(rng, (m, k), dtype, transposed[0], gap)
        b, given_b = factor(rng, (k, n), np.int8, transposed[1], gap)
        ao, bo = (draw.choice((0, 1, -7, 128, 255)) for _ in range(2))
        offsetc = draw.choice("FRC")
        co = rng.integers(-1000, 1000, {"F": 1, "R": n, "C": m}[offsetc])
        c = rng.integers(-1000, 1000, (m, n)).astype(np.int32)
        beta = draw.choice((0.0, 1.0))
        want = (a.astype(np.int64) - ao) @ (b.astype(np.int64) - bo) + int(beta) * c
        want = want + (co[:, None] if offsetc == "C" else co)
        got = multiply(
            given_a, given_b, c, transa=transposed[0], transb=transposed[1], beta=beta, ao=ao, bo=bo,
            co=co, offsetc=offsetc, threadpool=draw.choice(pools),
        )  # fmt: skip
        assert got is c
        assert np.array_equal(got, want), f"seed {seed}, product {number}: {m}x{n}x{k}"


@pytest.mark.parametrize("kind", GEMMS)
def test_scaled_integer_products_are_rounded_to_even_and_saturated(kind: str) -> None:
    multiply, dtype = GEMMS[kind]
    rng = np.random.default_rng()
    a, _ = factor(rng, (9, 33), dtype, False, 0)
    b, _ = factor(rng, (33, 20), np.int8, False, 0)
    c = rng.integers(-1000, 1000, (9, 20)).astype(np.int32)
    for alpha, beta in ((0.5, 0.0), (1e6, 0.5), (-1.0, 2.0)):
        wide = alpha * (a.astype(np.float64) @ b.astype(np.float64)) + beta * c + 3
        want = np.clip(np.rint(wide), -(2**31), 2**31 - 1).astype(np.int32)
        np.testing.assert_array_equal(multiply(a, b, c.copy(), alpha=alpha, beta=beta, co=3), want)


def test_an_interrupted_product_keeps_its_matrices_until_its_tasks_have_ended() -> None:
    class Interrupted(Exception):
        """What a wait is left with."""

    class Left(CheckingPool):
        """Cannot be waited for at first."""

        left = True

        def wait(self) -> None:
            if self.left:
                self.left = False
                raise Interrupted
            super().wait()

    other = np.ones((16, 16), np.float32)
    sgemm(other, other)  # compiled now: Numba keeps errors that it has handled, and with them the frames of its callers
    # In the middle of a page: what ends with its page is copied
    room = np.empty(2 * mmap.PAGESIZE, np.uint8)
    start = -room.ctypes.data % mmap.PAGESIZE
    given = room[start : start + 4 * 16 * 16].view(np.float32).reshape(16, 16)
    given[:] = 1
    alive = weakref.ref(given)
    with Left(1) as pool:
        pool.hold_back()
        with pytest.raises(Interrupted):
            sgemm(given, np.ones((16, 16), np.float32), threadpool=pool)
        del given
        assert alive() is not None
        pool.wait()
    until = time.monotonic() + 10  # a thread lets go of its last task a moment after it has counted it as done
    while alive() is not None and time.monotonic() < until:
        time.sleep(0.001)
    assert alive() is None


@pytest.mark.parametrize("products", [6, pytest.param(100, marks=pytest.mark.slow)])
def test_float_products_are_close(products: int, pools: list[ThreadpoolInterface | None]) -> None:
    seed = random.SystemRandom().randrange(1 << 32)
    rng, draw = np.random.default_rng(seed), random.Random(seed)
    for _ in range(products):
        m, n, k = (draw.choice((1, 2, 7, 17, 33, 64, 100)) for _ in range(3))
        a, b = rng.standard_normal((m, k)).astype(np.float32), rng.standard_normal((k, n)).astype(np.float32)
        c = rng.standard_normal((m, n)).astype(np.float32)
        alpha, beta = draw.choice(((1.0, 0.0), (0.5, 0.0), (1.0, 1.0), (-2.0, 0.25)))
        transposed = (draw.random() < 0.5, draw.random() < 0.5)
        want = alpha * (a.astype(np.float64) @ b.astype(np.float64)) + beta * c.astype(np.float64)
        bound = abs(alpha) * (np.abs(a) @ np.abs(b)) + abs(beta) * np.abs(c)
        got = sgemm(
            a.T.copy() if transposed[0] else a, b.T.copy() if transposed[1] else b, c, transa=transposed[0],
            transb=transposed[1], alpha=alpha, beta=beta, threadpool=draw.choice(pools),
        )  # fmt: skip
        assert np.all(np.abs(got - want) <= 2e-6 * (bound + 1e-30)), f"seed {seed}: {m}x{n}x{k}"


def test_threads_multiply_matrices_in_place_side_by_side() -> None:
    """Matrices of one shape share launches and scratch memory that are kept ready."""
    rng = np.random.default_rng()
    jobs = []
    room = rng.standard_normal((2, 1030, 1030)).astype(np.float32)
    for turned in (False, True):
        a, b = room[0, 3:20, 5 : 5 + 1024], room[1, 2 : 2 + 1024, 7 : 7 + 48]
        given = (a.T, b.T.copy()) if turned else (a.copy(), b)
        want = a.astype(np.float64) @ b.astype(np.float64)
        jobs += [(given, turned, want, np.abs(a) @ np.abs(b))] * 8

    def task(job: tuple[tuple[Array, Array], bool, Array, Array]) -> float:
        (a, b), turned, want, bound = job
        c = np.full(want.shape, np.nan, np.float32)
        assert sgemm(a, b, c, transa=turned, transb=turned) is c
        assert np.array_equal(sgemm(a, b, transa=turned, transb=turned), c)
        return float(np.max(np.abs(c - want) / bound))

    with ThreadPoolExecutor(4) as threads:
        assert max(threads.map(task, jobs * 4)) <= 2e-6


def test_matrices_of_the_last_shapes_in_another_order_are_multiplied_right() -> None:
    a, b = (np.random.default_rng(seed).standard_normal((16, 16), np.float32) for seed in (1, 2))
    apart = np.zeros((16, 32), np.float32)
    apart[:, :16] = a
    for left, right, turned in (
        (a, b, False),
        (a.T, b, False),
        (a, b.T, True),
        (a, b, False),
        (apart[:, :16], b, False),
    ):
        want = left @ (right.T if turned else right)
        np.testing.assert_allclose(sgemm(left, right, transb=turned), want, rtol=1e-4, atol=1e-5)


def test_matrices_may_begin_anywhere_in_a_cache_line() -> None:
    rng = np.random.default_rng()
    a = rng.standard_normal((40, 700)).astype(np.float32)
    for lead in range(16):
        room = rng.standard_normal(16 + 700 * 64 + 16).astype(np.float32)
        start = (-room.ctypes.data // 4) % 16 + lead
        b = room[start : start + 700 * 64].reshape(700, 64)
        bound = np.abs(a) @ np.abs(b)
        assert np.max(np.abs(sgemm(a, b) - a.astype(np.float64) @ b) / bound) <= 2e-6


_AT_THE_END: Final = """
import ctypes, mmap
import numpy as np
from poolrt.workers.gemm import gemm_u8s8s32, sgemm
size = mmap.PAGESIZE
room = mmap.mmap(-1, 5 * size)
start = ctypes.addressof(ctypes.c_char.from_buffer(room))
assert ctypes.CDLL(None).mprotect(ctypes.c_void_p(start + 4 * size), ctypes.c_size_t(size), 0) == 0
rng = np.random.default_rng(3)
def at_the_end(values):
    found = np.frombuffer(room, np.uint8)[4 * size - values.nbytes : 4 * size].view(values.dtype).reshape(values.shape)
    found[...] = values
    return found
for m, k, n in {shapes}:
    a, b = rng.standard_normal((m, k)).astype("f4"), rng.standard_normal((k, n)).astype("f4")
    for left, right, swaps in ((at_the_end(a), b, {}), (a, at_the_end(b), {}), (a, at_the_end(b.T.copy()), {"transb": True}),
                               (at_the_end(a.T.copy()), b, {"transa": True})):
        left_, right_ = left.copy(), right.copy()
        assert np.allclose(sgemm(left, right, **swaps), sgemm(left_, right_, **swaps), atol=1e-5)
    u, s = rng.integers(0, 99, (m, k)).astype("u1"), rng.integers(-99, 99, (k, n)).astype("i1")
    want = u.astype("i4") @ s.astype("i4")
    assert (gemm_u8s8s32(at_the_end(u), s) == want).all() and (gemm_u8s8s32(u, at_the_end(s)) == want).all()
print("done")
"""


@pytest.mark.parametrize(
    "shapes",
    [((1, 40, 5), (1, 24, 100), (7, 33, 21)), pytest.param(((3, 16, 100), (5, 64, 48)), marks=pytest.mark.slow)],
    ids=["ends of vectors", "whole vectors"],
)
@pytest.mark.parametrize("level", ["x86-64-v4", "x86-64-v3"])
@pytest.mark.one_in(2)
def test_nothing_past_the_end_of_a_matrix_is_read(shapes: tuple[tuple[int, int, int], ...], level: str) -> None:
    env = {"PYTHONPATH": str(ROOT / "tests/startup"), "INSTRUCTIONS_OF_TESTS": level, "POOLRT_MAX_CPU_ISA": ""}
    assert python(_AT_THE_END.replace("{shapes}", str(shapes)), env) == "done\n"


def test_a_product_has_more_scratch_memory_than_its_thread_keeps() -> None:
    """Rows of 4 KiB are packed."""
    a, b = np.ones((17_000, 1024), np.float32), np.ones((1024, 16), np.float32)
    with NativePool(2) as pool:
        for threads in (None, pool):
            assert (sgemm(a, b, threadpool=threads) == 1024).all()


def test_a_product_within_another_one_leaves_its_scratch_memory_alone() -> None:
    """A finalizer, or the handler of a signal, may multiply between any two lines. Both factors are packed."""
    matrices = [np.random.default_rng(n).integers(-3, 4, (300, 300)).astype(np.float32) for n in range(4)]
    a, b, other, right = matrices
    wanted, beside = a.T @ b.T, other.T @ right.T

    def multiply() -> None:
        np.testing.assert_array_equal(sgemm(a, b, transa=True, transb=True), wanted)

    def multiply_beside() -> None:
        np.testing.assert_array_equal(sgemm(other, right, transa=True, transb=True), beside)

    multiply()
    assert at_each_line(multiply, multiply_beside, "workers/execution/calling_thread.py") > 9


def test_empty_products_are_zeros_and_offsets() -> None:
    assert sgemm(np.ones((2, 0), np.float32), np.ones((0, 3), np.float32)).tolist() == [[0.0] * 3] * 2
    got = gemm_u8s8s32(np.ones((2, 0), np.uint8), np.ones((0, 3), np.int8), co=5)
    assert got.tolist() == [[5] * 3] * 2
    assert sgemm(np.ones((0, 4), np.float32), np.ones((4, 3), np.float32)).shape == (0, 3)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: sgemm(np.ones((2, 3)), np.ones((3, 2), np.float32)), "a: expect a matrix of float32"),
        (lambda: sgemm(np.ones((2, 3), np.float32), np.ones((2, 2), np.float32)), "b: expect 3 rows"),
        (lambda: gemm_u8s8s32(np.ones((2, 3), np.uint8), np.ones((3, 2), np.uint8)), "b: expect a matrix of int8"),
        (lambda: gemm_s8s8s32(np.ones((2, 3), np.int8), np.ones((3, 2), np.int8), co=[1, 2, 3], offsetc="R"), "co: expect 2"),
        (lambda: gemm_s8s8s32(np.ones((2, 3), np.int8), np.ones((3, 2), np.int8), offsetc="X"), "offsetc: unknown"),
        (lambda: sgemm(np.ones((2, 3), np.float32), np.ones((3, 2), np.float32), np.ones((2, 3), np.float32)), "c: expect"),
        (lambda: sgemm(np.ones((2, 3), np.float32), np.ones((3, 2), np.float32), OTHER), "c: expect an array, got str"),
        (lambda: sgemm(np.ones((2, 3), np.float32), np.ones((3, 2), np.float32), threadpool=OTHER), "threadpool: expect a Thr"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused(call: Callable[[], object], message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        call()


def test_a_task_multiplies_at_once_on_every_pool(pools: list[ThreadpoolInterface | None]) -> None:
    a, b = np.full((40, 30), 2, np.float32), np.full((30, 20), 3, np.float32)
    found: list[Array] = []

    def task(pool: ThreadpoolInterface) -> None:
        found.append(sgemm(a, b, threadpool=pool).copy())

    for pool in filter(None, pools):
        pool.parallel_for(1, lambda _i, _n, pool=pool: task(pool))  # type: ignore[misc]
        pool.wait()
    assert len(found) == len(pools) - 1
    for product in found:
        np.testing.assert_array_equal(product, np.full((40, 20), 180, np.float32))


def test_a_product_in_one_job_is_refused_by_a_closed_pool_as_one_in_several_is() -> None:
    a, b = np.full((40, 30), 2, np.float32), np.full((30, 20), 3, np.float32)
    with NativePool(2, kernels=region_loop()) as pool:
        # Once with several jobs, and twice with one.
        for least_job_ns in (0, 1 << 40, 1 << 40):
            pool.least_job_ns = least_job_ns
            np.testing.assert_array_equal(sgemm(a, b, threadpool=pool), np.full((40, 20), 180, np.float32))
    for least_job_ns in (1 << 40, 0):
        pool.least_job_ns = least_job_ns
        with pytest.raises(RuntimeError, match="the threadpool is closed"):
            sgemm(a, b, threadpool=pool)


def test_products_on_pools_in_turn_keep_one_set_of_launches_for_each() -> None:
    a, b = np.full((41, 30), 2, np.float32), np.full((30, 21), 3, np.float32)
    with NativePool(2, kernels=region_loop()) as fine, NativePool(2, kernels=region_loop()) as coarse:
        fine.least_job_ns, coarse.least_job_ns = 0, 1 << 40
        for _ in range(5):
            for pool in (fine, coarse):
                np.testing.assert_array_equal(sgemm(a, b, threadpool=pool), np.full((41, 21), 180, np.float32))
    _, ready = gemm._products()._latest
    assert ready is not None
    execution: Any = ready[1]
    assert [len(idle) for idle in execution.__self__._on_pools.values()] == [1, 1]


class _CountingPool(SequentialPool):
    """Has four threads in name, and remembers the tasks of regions."""

    IS_CONSTANT = True

    def __init__(self, least_job_ns: int) -> None:
        self.least_job_ns = least_job_ns
        self.tasks = 0

    def get_num_threads(self) -> int:
        return 4

    def run_regions(self, regions: Sequence[Region]) -> None:
        self.tasks = max(len(region.blobs) for region in regions)
        super().run_regions(regions)


def test_a_product_is_cut_for_the_pool_that_it_gets_and_for_what_has_changed() -> None:
    rng = np.random.default_rng()
    a, b = rng.standard_normal((96, 96), np.float32), rng.standard_normal((96, 256), np.float32)
    expected = sgemm(a, b)
    fine, coarse = _CountingPool(0), _CountingPool(1 << 40)

    def tasks(pool: _CountingPool) -> int:
        np.testing.assert_array_equal(sgemm(a, b, threadpool=pool), expected)
        return pool.tasks

    assert [tasks(pool) for pool in (fine, fine, coarse, fine)] == [4, 4, 1, 4]
    coarse.least_job_ns = 0
    assert tasks(coarse) == 4
    try:
        set_default_jobs(2)
        assert tasks(coarse) == 2
    finally:
        set_default_jobs(0)
    assert tasks(coarse) == 4


class _Named(np.ndarray):
    """Arrays of another type, which are the same matrices."""


def _drawn(rng: np.random.Generator, rows: int, columns: int) -> Array:
    """Return a matrix that does not end with its page: it would be copied, and the product be none of the same matrices."""
    size = rows * columns
    room = np.empty(size + 2 * SLACK, np.float32)
    start = SLACK if -(room.ctypes.data + 4 * size) % mmap.PAGESIZE < 2 * SLACK else 0
    drawn = room[start : start + size].reshape(rows, columns)
    drawn[...] = rng.integers(-4, 5, (rows, columns))
    return drawn


@pytest.mark.parametrize("transposed", [(False, False), (True, False), (False, True), (True, True)])
@pytest.mark.parametrize("size", [5, 33, 64])
def test_repeated_products_look_at_each_matrix(size: int, transposed: tuple[bool, bool]) -> None:
    """Compiled code looks at matrices of the last shapes; all others are multiplied as at first."""
    rng = np.random.default_rng()
    dims = size, size + 3, size + 1
    given = [
        (rows, columns)[:: -1 if turned else 1]
        for rows, columns, turned in zip(dims, dims[1:], transposed, strict=False)
    ]

    def check(a: Array, b: Array, **more: Any) -> None:
        left, right = (
            np.asarray(x).T if turned else np.asarray(x) for x, turned in zip((a, b), transposed, strict=True)
        )
        got = sgemm(a, b, transa=transposed[0], transb=transposed[1], **more)
        np.testing.assert_array_equal(got, left.astype(np.float64) @ right)
        assert type(got) is np.ndarray

    room = np.empty(2 * mmap.PAGESIZE + 8 * size * size, np.uint8)
    with NativePool(2, kernels=region_loop()) as pool:
        for threads in (None, pool):
            for _ in range(4):
                check(_drawn(rng, *given[0]), _drawn(rng, *given[1]), threadpool=threads)
            assert gemm._products()._repeated is not None
            a, b = _drawn(rng, *given[0]), _drawn(rng, *given[1])
            for left, right in (
                (a.astype(np.float32, order="F"), b),
                (a, b.astype(np.float32, order="F")),
                (np.repeat(a, 2, axis=1)[:, ::2], b),
                (a.view(_Named), b),
                (a, b.view(_Named)),
            ):
                check(left, right, threadpool=threads)
                check(a, b, threadpool=threads)
                check(a, b, threadpool=threads)
            # Not aligned, and at the end of a page.
            for end in (1, 2 * mmap.PAGESIZE):
                start = 1 if end == 1 else (-room.ctypes.data - b.nbytes) % mmap.PAGESIZE
                other = room[start : start + b.nbytes].view(np.float32).reshape(b.shape)
                other[...] = b
                check(a, other, threadpool=threads)
                check(a, b, threadpool=threads)
            check(a, b, c=np.empty((dims[0], dims[2]), np.float32), threadpool=threads)
            for error in ((a.astype(np.float64), b), (a[:-1, :-1], b), (a, b[None])):
                with pytest.raises(ValueError, match="expect"):
                    sgemm(*error, transa=transposed[0], transb=transposed[1], threadpool=threads)
                check(a, b, threadpool=threads)


def test_repeated_products_side_by_side_and_within_one_another_have_matrices_of_their_own() -> None:
    rng = np.random.default_rng()
    sets = [(_drawn(rng, 40, 50), _drawn(rng, 50, 60)) for _ in range(8)]
    # Short ones keep the interpreter's lock, others let go of it.
    sets += [(_drawn(rng, 9, 9), _drawn(rng, 9, 9)) for _ in range(8)]

    def check(number: int, times: int = 3) -> None:
        a, b = sets[number]
        for _ in range(times):
            np.testing.assert_array_equal(sgemm(a, b), a.astype(np.float64) @ b)

    def check_those(first: int) -> None:
        check(first, 1)
        with ThreadPoolExecutor(4) as threads:
            list(threads.map(check, [first + number % 8 for number in range(200)]))
        check(first)
        assert gemm._products()._repeated is not None
        file = "workers/execution/array_call.py"
        assert at_each_line(lambda: check(first, 1), lambda: check(first + 1, 1), file) > 5

    check_those(0)
    check_those(8)


def test_shapes_in_turn_are_not_looked_at_by_compiled_code() -> None:
    pairs = [(np.ones((n, n), np.float32), np.ones((n, n), np.float32)) for n in (7, 9)]
    for _ in range(3):
        for a, b in pairs:
            assert (sgemm(a, b) == len(a)).all()
            assert gemm._products()._repeated is None
