"""Kernels of users in graphs that a process runs itself: right results, errors that name the argument, and ranges."""

from __future__ import annotations

import copy
from base64 import b85encode
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from poolrt import Engine, Executor, Graph, GraphError, NativeKernel, OpenClKernel, Stream, StreamAttr
from poolrt.graph.errors import LoweringError
from poolrt.workers.desc import MemoryDesc
from poolrt.workers.desc.operations.call import MOST_CODE, Call
from poolrt.workers.engines.object_loader import ObjectError
from poolrt.workers.engines.target import cpu_target
from poolrt.workers.kernels.native.compiler.codegen import CompileError
from poolrt.workers.kernels.native.given import given_object
from poolrt.workers.primitives.provider import PrimitiveProvider
from poolrt.workers.threadpools.interface import KernelFailed
from poolrt.workers.threadpools.native import NativePool
from poolrt.workers.threadpools.threads import ThreadsPool
from tests.poolrt.graph.user_kernels import OPENCL, SIGNATURE, between_convolutions, expected, images, scale
from tests.workers.compiled import region_loop


def begins(begin: int, end: int, x: Any, y: Any, z: Any, offset: int) -> None:
    """Write where the part began, and the element with an offset."""
    for item in range(begin, end):
        if x[item] < 0:
            raise ValueError("negative")
        y[item] = begin
        z[item] = x[item] + offset


def total(x: Any, y: Any) -> None:
    """Called once: no range."""
    y[0] = 0
    for item in range(x.shape[0]):
        y[0] += x[item]


@pytest.fixture(scope="module")
def kernel() -> NativeKernel:
    return NativeKernel.compile(scale, SIGNATURE)


@pytest.fixture(scope="module")
def parts() -> NativeKernel:
    return NativeKernel.compile(begins, "void(int64, int64, int32[::1], int64[::1], float64[::1], int8)")


def test_a_kernel_between_two_convolutions_is_right_on_one_and_two_threads(
    cache: PrimitiveProvider, kernel: NativeKernel
) -> None:
    engine, pool = Engine("cpu"), ThreadsPool(2)
    attr = StreamAttr("cpu")
    attr.set_threadpool(pool)
    try:
        for executor in (
            Executor(between_convolutions(kernel), cache=cache),
            Executor(between_convolutions(kernel), engine, Stream(engine, attr), cache=cache),
        ):
            x = images()
            np.testing.assert_allclose(executor.run(x=x)["y"], expected(x), rtol=1e-4, atol=1e-5)
    finally:
        pool.close()


def test_sizes_follow_inputs_of_other_shapes(cache: PrimitiveProvider, parts: NativeKernel) -> None:
    g = Graph("sizes")
    x = g.input("x", (8,), "int32")
    shape, work = (x.size(-1),), x.size(0)
    y, z = g.call(parts, [x], [(shape, "int64"), (shape, "float64")], scalars=[x.size(0)], work=work)
    g.output("y", y)
    g.output("z", z)
    executor = Executor(g, cache=cache)
    for count in (8, 3, 100):
        found = executor.run(x=np.arange(count, dtype=np.int32))
        assert found["y"].shape == (count,)
        assert np.array_equal(found["z"], np.arange(count) + count)


def test_ranges_are_parts_of_the_work_that_threads_share(cache: PrimitiveProvider, parts: NativeKernel) -> None:
    g = Graph("parts")
    x = g.input("x", (1 << 16,), "int32")
    y, z = g.call(parts, [x], [(x.shape, "int64"), (x.shape, "float64")], scalars=[-7])
    g.output("y", y)
    g.output("z", z)
    engine, pool, attr = Engine("cpu"), ThreadsPool(2), StreamAttr("cpu")
    attr.set_threadpool(pool)
    given = np.arange(1 << 16, dtype=np.int32)
    try:
        found = Executor(g, engine, Stream(engine, attr), cache=cache).run(x=given)
    finally:
        pool.close()
    bounds = np.unique(found["y"])
    assert len(bounds) > 1
    assert np.array_equal(found["y"], bounds[np.searchsorted(bounds, given, "right") - 1])
    assert np.array_equal(found["z"], given - 7.0)


def test_a_kernel_that_raises_names_node_and_function(cache: PrimitiveProvider, parts: NativeKernel) -> None:
    g = Graph("raises")
    y, _ = g.call(parts, [g.input("x", (4,), "int32")], [((4,), "int64"), ((4,), "float64")], scalars=[0], name="mine")
    g.output("y", y)
    engine = Engine("cpu")
    for pool in (None, ThreadsPool(2), NativePool(2, kernels=region_loop("loop", "submit", "nest", "clock"))):
        attr = StreamAttr("cpu")
        if pool is not None:
            attr.set_threadpool(pool)
        try:
            executor = Executor(g, engine, Stream(engine, attr), cache=cache)
            for _ in range(2):
                with pytest.raises(
                    KernelFailed, match=r"^step 'mine \(begins\)' failed: ValueError: negative$"
                ) as caught:
                    executor.run(x=np.full(4, -1, np.int32))
                cause = caught.value.__cause__
                assert (type(cause), cause and cause.args) == (ValueError, ("negative",))
                assert executor.run(x=np.full(4, 1, np.int32))["y"].shape == (4,)
        finally:
            if pool is not None:
                pool.close()


def test_a_function_without_a_range_is_called_once(cache: PrimitiveProvider) -> None:
    g = Graph("once")
    kernel = NativeKernel.compile(total, "void(f8[::1], f8[::1])")
    g.output("y", g.call(kernel, [g.input("x", (1 << 15,), "float64")], [((1,), "float64")]))
    x = np.arange(1 << 15, dtype=np.float64)
    assert Executor(g, cache=cache).run(x=x)["y"] == x.sum()
    with pytest.raises(GraphError, match=r"work: total takes no range"):
        g.call(kernel, [x], [((1,), "float64")], work=2)


def test_errors_name_the_argument(parts: NativeKernel) -> None:
    g = Graph("errors")
    x, real = g.input("x", (4,), "int32"), g.input("real", (4,))
    both: list[Any] = [((4,), "int64"), ((4,), "float64")]
    wrong: list[tuple[str, dict[str, Any]]] = [
        (r"inputs, outputs: begins takes 3 arrays, got 2 inputs and 2 outputs", {"inputs": [x, x]}),
        (r"inputs\[0\]: begins takes s32 of rank 1, got f32 of rank 1", {"inputs": [real]}),
        (r"inputs\[0\]: begins takes s32 of rank 1, got s32 of rank 2", {"inputs": [np.ones((2, 2), np.int32)]}),
        (r"outputs\[1\]: begins takes f64 of rank 1, got f32 of rank 1", {"outputs": [both[0], ((4,), "float32")]}),
        (r"outputs\[0\]: expect a shape and a data type", {"outputs": [4, 5]}),
        (r"outputs\[0\]: .*expect at least 0", {"outputs": [((-4,), "int64"), both[1]]}),
        (r"scalars: begins takes 1, got 0", {"scalars": []}),
        (r"scalars\[0\]", {"scalars": ["x"]}),
        (r"scalars\[0\]", {"scalars": [1 << 70]}),
        (r"work: ", {"work": 2.5}),
        (r"work: expect the size of an input of this call", {"work": real.size(0)}),
        (r"outputs\[0\]: shape: expect the size of an input", {"outputs": [((real.size(0),), "int64"), both[1]]}),
        (r"scalars\[0\]: expect the size of an input", {"scalars": [g.input("other", (4,)).size(0)]}),
        (r"global_size: ", {"global_size": 4}),
        (r"kernel: expect a NativeKernel or an OpenClKernel, got function; decorate it: ", {"kernel": total}),
        (r"kernel: expect a NativeKernel or an OpenClKernel, got str$", {"kernel": "total"}),
        (r"inputs: expect a list, such as \[x\], got Value", {"inputs": x}),
        (r"inputs: expect a list, such as \[x\], got ndarray", {"inputs": np.ones(1, np.int32)}),
        (r"outputs: expect a list of pairs", {"outputs": ((4,), "int64")}),
    ]
    for pattern, changed in wrong:
        given = {"kernel": parts, "inputs": [x], "outputs": both, "scalars": [1], **changed}
        with pytest.raises(GraphError, match=rf"^call 'call_\d+': {pattern}"):
            g.call(**given)


def test_what_no_graph_can_call_is_refused_in_words() -> None:
    for signature, text in (
        ("void(f4[:])", "C-contiguous"),
        ("f4(f4[::1])", "expect void"),
        ("void(c16[::1])", "C-contiguous"),
        ("void(f4", "is none"),
    ):
        with pytest.raises(ValueError, match=text):
            NativeKernel.compile(total, signature)
    with pytest.raises(CompileError, match="kernel allocates: "):

        def allocates(x: Any) -> None:
            x[0] = np.ones(int(x[0])).sum()

        NativeKernel.compile(allocates, "void(f8[::1])")
    for source in (
        '#include "x.h"\n',
        "/* a */ # /* b */ include <x.h>",
        "%:include <x>",
        "#\\\ninclude <x>",
        "# /*\n*/ include <x>",
        "/*\n*/ #include <x>",
        "#inc??/\nlude <x>",
        "#import <x>",
        "__has_include(<x>)",
        "// /*\n# /* */ include <x>",
    ):
        with pytest.raises(ValueError, match="includes files"):
            OpenClKernel(source, "f")
    with pytest.raises(ValueError, match=str(MOST_CODE)):
        OpenClKernel(" " * (MOST_CODE + 1), "f")
    with pytest.raises(TypeError, match="source: expect text, got bytes"):
        OpenClKernel(b"__kernel void f() {}", "f")  # type: ignore[arg-type]


def test_code_for_another_processor_or_engine_is_not_run(parts: NativeKernel, kernel: NativeKernel) -> None:
    later = replace(parts, isa="v9")
    g = Graph("later")
    y, _ = g.call(later, [g.input("x", (4,), "int32")], [((4,), "int64"), ((4,), "float64")], scalars=[0])
    g.output("y", y)
    with pytest.raises(LoweringError, match="kernel begins is for the unknown ISA level 'v9'"):
        Executor(g).run(x=np.zeros(4, np.int32))
    with pytest.raises(LoweringError, match="kernel scale is OpenCL C"):
        Executor(between_convolutions(OPENCL)).run(x=images())


def test_an_object_is_checked_before_it_is_published(parts: NativeKernel) -> None:
    text = b85encode(parts.code).decode()
    assert given_object((text[:100], text[100:])) == parts.code
    for damaged in (text[:-40], "~" * 8, b85encode(b"\x7fELF" + bytes(200)).decode(), "\n"):
        with pytest.raises(ObjectError):
            given_object((damaged,))


def test_a_key_has_the_code() -> None:
    desc = MemoryDesc((2,), "f32")
    one, other = (Call((desc,), (desc,), "f", (code,), ("src 0", "dst 0"), cpu_target().isa) for code in ("abc", "abd"))
    assert one.fields() != other.fields()
    assert {name for name in one.fields() if one.fields()[name] != other.fields()[name]} == {"code"}


@pytest.mark.slow
def test_the_example_of_the_page_runs(capsys: pytest.CaptureFixture[str], monkeypatch: Any, tmp_path: Path) -> None:
    monkeypatch.setenv("POOLRT_HOME", str(tmp_path))
    monkeypatch.setenv("POOLRT_REDIS_URL", f"unix://{tmp_path}/none.sock")
    text = Path(__file__).parents[3].joinpath("docs", "calls.md").read_text()
    exec(text.split("```python\n")[1].split("```")[0], {})
    assert capsys.readouterr().out == "(64, 8)\n"


def test_texts_that_include_nothing_are_found_in_no_time_and_sizes_are_plain_integers_elsewhere() -> None:
    for text in (
        "\n" * 500_000,
        "#/*" * 100_000,
        "/*" * 100_000,
        " " * 500_000 + "//",
        "// includes the bias",
        "%" * 500_000,
    ):
        assert OpenClKernel(text, "f").source == text
    size = Graph("g").input("x", (4, 5)).size(-1)
    assert (copy.deepcopy(size), type(copy.deepcopy(size)), type(size + 1)) == (5, int, int)
