"""Input arrays are read where they are, up to their last byte and never past their page; outputs belong to the caller."""

from __future__ import annotations

import ctypes
import mmap
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from poolrt import Executor, Graph, Value
from poolrt.cachestore import CacheStore
from poolrt.workers.primitives.provider import PrimitiveProvider
from tests.workers.compiled import creator
from tests.workers.own_process import ANSWER_S, ROOT

from .networks import Array, array

PROT_NONE = 0
#: Operations whose kernels read whole vectors, on rows that no vector divides.
OPERATIONS: dict[str, tuple[tuple[int, ...], Callable[[Graph, Value], Value]]] = {
    "softmax": ((3, 37), lambda graph, x: graph.softmax(x, axis=-1)),
    "eltwise": ((3, 41), lambda graph, x: graph.eltwise(x, "tanh")),
    "lrn": ((1, 5, 7, 9), lambda graph, x: graph.lrn(x)),
    "pooling": ((1, 3, 15, 15), lambda graph, x: graph.pooling(x, "max", (3, 3))),
    "convolution": ((1, 3, 17, 19), lambda graph, x: graph.convolution(x, array(8, 3, 3, 3))),
    "matmul": ((5, 37), lambda graph, x: graph.matmul(x, array(37, 29))),
}


def before_a_guard(shape: tuple[int, ...]) -> Array:
    """Return an array whose last byte is the last one before a page that cannot be read."""
    nbytes = 4 * int(np.prod(shape))
    size = -(-nbytes // mmap.PAGESIZE) * mmap.PAGESIZE
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    begin = libc.mmap(None, size + mmap.PAGESIZE, 3, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, 0)
    assert libc.mprotect(ctypes.c_void_p(begin + size), mmap.PAGESIZE, PROT_NONE) == 0
    memory = memoryview((ctypes.c_ubyte * nbytes).from_address(begin + size - nbytes))
    return np.frombuffer(memory, np.float32).reshape(shape)


def run_before_a_guard(cache: PrimitiveProvider) -> None:
    """Run every operation on an array that ends before a guard page; a read past it ends this process."""
    for name, (shape, operation) in OPERATIONS.items():
        graph = Graph(name)
        graph.output("y", operation(graph, graph.input("x", shape, "float32")))
        executor, guarded = Executor(graph, cache=cache), before_a_guard(shape)
        guarded[...] = array(*shape, seed=3)
        got, expected = executor.run(x=guarded)["y"], executor.run(x=guarded.copy())["y"]
        assert np.array_equal(got, expected), name
        print(name, flush=True)


def test_nothing_is_read_past_the_page_that_an_input_ends_in(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.poolrt.inprocess.test_arrays", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=ANSWER_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.split() == list(OPERATIONS)


@pytest.fixture
def doubling(cache: PrimitiveProvider) -> Executor:
    graph = Graph("doubling")
    graph.output("y", graph.eltwise(graph.input("x", (6, 50), "float32"), "linear", alpha=2.0))
    return Executor(graph, cache=cache)


@pytest.mark.parametrize("kind", ["transposed", "reversed", "read-only", "unaligned", "stepped"])
def test_any_array_of_the_right_type_is_read_right(doubling: Executor, kind: str) -> None:
    x = array(6, 50)
    if kind == "transposed":
        x = np.ascontiguousarray(x.T).T
    elif kind == "reversed":
        x = x[::-1, ::-1]
    elif kind == "read-only":
        x.flags.writeable = False
    elif kind == "unaligned":
        room = np.empty(x.nbytes + 1, np.uint8)
        x = room[1:].view(np.float32).reshape(6, 50)
        x[...] = array(6, 50)
    else:
        x = array(12, 100)[::2, ::2]
    before = x.copy()
    assert np.array_equal(doubling.run(x=x)["y"], 2 * x)
    assert np.array_equal(x, before)


def test_an_output_is_the_callers_and_no_later_run_writes_it(doubling: Executor) -> None:
    inputs = [array(6, 50, seed=seed) for seed in range(20)]
    outputs = [doubling.run(x=x)["y"] for x in inputs]
    for x, y in zip(inputs, outputs, strict=True):
        assert y.flags.writeable
        assert np.array_equal(y, 2 * x)


def test_an_output_that_is_an_input_is_a_copy_of_it(cache: PrimitiveProvider) -> None:
    graph = Graph("identity")
    x = graph.input("x", (4, 5), "float32")
    graph.output("same", x)
    graph.output("reshaped", graph.reshape(x, (20,)))
    given = array(4, 5)
    got = Executor(graph, cache=cache).run(x=given)
    expected = given.copy()
    given[...] = 0
    assert np.array_equal(got["same"], expected)
    assert np.array_equal(got["reshaped"], expected.ravel())


@pytest.mark.parametrize("dtype", ["float32", "int64", "bfloat16"])
def test_arrays_of_another_byte_order_are_converted_in_each_run(cache: PrimitiveProvider, dtype: str) -> None:
    graph = Graph("order")
    x = graph.input("x", (3, 5), dtype)
    graph.output("y", graph.binary(x, x, "max"))
    executor = Executor(graph, cache=cache)
    kind = np.dtype("uint16" if dtype == "bfloat16" else dtype)
    for number in range(4):
        given = np.arange(16_000, 16_015).reshape(3, 5).astype(kind) + kind.type(number)
        swapped = given if number == 1 else given.astype(kind.newbyteorder())
        assert np.array_equal(executor.run(x=swapped)["y"], given)


if __name__ == "__main__":
    with CacheStore.connect(home=sys.argv[1]) as store:
        run_before_a_guard(PrimitiveProvider(256, store, creator().create))
        store.down()
