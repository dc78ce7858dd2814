"""Kernels are given memory between pages that cannot be touched: they read and write what is theirs, and nothing around it."""

from __future__ import annotations

import ctypes
import random
import signal
import subprocess
import sys

import pytest

from poolrt.workers.engines.target import cpu_target
from poolrt.workers.implementations.primitive_desc import implementations

from .descriptors import MAKERS
from .reading import EdgeBuffer


def computed(level: str, most: int, *kinds: str) -> subprocess.CompletedProcess[str]:
    """Return how a process ended that computes, of each implementation and type, ``most`` problems, or all (0)."""
    seed = random.randrange(1 << 30)
    command = [sys.executable, "-m", "tests.workers.support.reading", level, str(seed), str(most), *kinds]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("most", [1, pytest.param(0, marks=pytest.mark.slow)])
@pytest.mark.timeout(3600)
def test_kernels_stay_in_the_memory_of_their_arguments(most: int, isa: str) -> None:
    done = computed(isa, most)
    last = done.stdout.splitlines()[-1:]
    assert done.returncode == 0, f"seed and level {done.args[3:]}: {last} {done.stderr[-2000:]}"


@pytest.mark.slow
@pytest.mark.parametrize("kind", MAKERS)
@pytest.mark.timeout(3600)
def test_kernels_stay_there_in_problems_that_are_drawn_at_random(kind: str, isa: str) -> None:
    done = computed(isa, 6, kind)
    last = done.stdout.splitlines()[-1:]
    assert done.returncode == 0, f"level, seed and kind {done.args[3:]}: {last} {done.stderr[-2000:]}"


@pytest.mark.one_test_in(3)
def test_few_outputs_a_group_of_row_major_tensors_read_no_more_behind_weights_than_they_may(isa: str) -> None:
    compute = f"""
from poolrt.workers.desc import Convolution, MemoryDesc, PrimitiveAttr
from poolrt.workers.implementations.primitive_desc import primitive_descs
from tests.workers.levels import target_of
from tests.workers.support.problems import values
from tests.workers.support.reading import EdgeRunner
src, dst = MemoryDesc((2, 64, 8), "f32"), MemoryDesc((2, 16, 9), "f32")
op = Convolution(src, MemoryDesc((16, 32, 1), "f32", "any"), None, dst, (1,), (0,), (1,), (0,), 2)
(pd,) = (pd for pd in primitive_descs(op, PrimitiveAttr(), target_of({isa!r})) if pd.impl_name() == "native:gathered")
assert pd.op.weights.tag == "ABc16b8a"
EdgeRunner().run(pd, values(pd.op, pd.attr, 3))
"""
    done = subprocess.run([sys.executable, "-c", compute], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.mark.one_test_in(3)
def test_few_outputs_a_group_read_no_more_behind_weights_than_they_may(isa: str) -> None:
    """Three outputs a group: where there are no masks, the last row of weights is read as if it had 16."""
    compute = f"""
from poolrt.workers.desc import Convolution, MemoryDesc, PrimitiveAttr
from poolrt.workers.implementations.primitive_desc import primitive_descs
from tests.workers.levels import target_of
from tests.workers.support.problems import values
from tests.workers.support.reading import EdgeRunner
src, dst = MemoryDesc((1, 64, 15, 11), "f32", "aBcd16b"), MemoryDesc((1, 6, 8, 4), "f32", "aBcd16b")
weights = MemoryDesc((6, 32, 2, 3), "f32", "any")
op = Convolution(src, weights, None, dst, (2, 3), (0, 2), (1, 3), (1, 2), 2)
(pd,) = (pd for pd in primitive_descs(op, PrimitiveAttr(), target_of({isa!r})) if pd.impl_name() == "native:grouped")
EdgeRunner().run(pd, values(pd.op, pd.attr, 3))
"""
    done = subprocess.run([sys.executable, "-c", compute], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.mark.parametrize("window", [1, 9])
@pytest.mark.one_test_in(3)
def test_windows_that_move_by_two_read_nothing_behind_the_last_row(window: int, isa: str) -> None:
    """Of an odd number of columns, 16 windows see one element less than two vectors have for each second column."""
    size = (9001 - window) // 2 + 1  # of planes that are too large for another kernel
    compute = f"""
import numpy as np
from poolrt.workers.desc import Arg, MemoryDesc, Pooling, PrimitiveAttr
from poolrt.workers.implementations.primitive_desc import primitive_desc
from tests.workers.levels import target_of
from tests.workers.support.reading import EdgeRunner
src, dst = MemoryDesc((1, 3, 9001), "f32"), MemoryDesc((1, 3, {size}), "f32")
op = Pooling(src, dst, "max", ({window},), (2,), (0,), (0,), (0,))
pd = primitive_desc(op, PrimitiveAttr(), target_of({isa!r}))
assert "pooling_rows" in str(pd.program().kernels), pd.program().kernels
EdgeRunner().run(pd, {{Arg.SRC: np.zeros((1, 3, 9001))}})
"""
    done = subprocess.run([sys.executable, "-c", compute], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]


def test_who_reads_behind_such_memory_ends() -> None:
    read = "import ctypes; from tests.workers.support.reading import EdgeBuffer; at = EdgeBuffer(100)"
    for offset, wanted in ((99, 0), (100, -signal.SIGSEGV)):
        command = [sys.executable, "-c", f"{read}; ctypes.string_at(at.address + {offset}, 1)"]
        assert subprocess.run(command, check=False, capture_output=True).returncode == wanted


def test_who_reads_before_such_memory_ends_if_it_begins_with_a_page() -> None:
    read = "import ctypes; from tests.workers.support.reading import EdgeBuffer; at = EdgeBuffer(100, at_start=True)"
    for offset, wanted in ((0, 0), (-1, -signal.SIGSEGV)):
        command = [sys.executable, "-c", f"{read}; ctypes.string_at(at.address + {offset}, 1)"]
        assert subprocess.run(command, check=False, capture_output=True).returncode == wanted


@pytest.mark.parametrize(("room", "at_start"), [(0, False), (64, False), (0, True), (64, True)])
def test_the_memory_is_that_of_the_values(room: int, at_start: bool) -> None:
    memory = EdgeBuffer(5000, room, at_start)
    assert memory.content.nbytes == 5000
    assert memory.content.ctypes.data == memory.address
    assert (memory.address if at_start else memory.address + 5000 + room) % 4096 == 0
    memory.assert_nothing_behind_was_written()
    (ctypes.c_char * 1).from_address(memory.address + (5000 if at_start or room else -1))[0] = b"0"
    with pytest.raises(AssertionError, match="outside"):
        memory.assert_nothing_behind_was_written()


@pytest.mark.parametrize("kind", ["eltwise", "binary", "reduction", "softmax", "reorder", "pooling", "convolution"])
def test_what_computes_large_arrays_reads_them_where_they_are(kind: str) -> None:
    assert cpu_target().engine_kind == "cpu"
    first = implementations(kind, "cpu")
    assert any(getattr(each, "stays_inside", False) for each in first), first
