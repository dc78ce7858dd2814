"""Code generation: objects are made for a level, never for the host, and need nothing of Python."""

from __future__ import annotations

import ast
import ctypes
import gc
import math
import os
import pickle
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from hashlib import sha256
from types import ModuleType
from typing import Any

import llvmlite.binding as llvm
import llvmlite.ir as ir
import numpy as np
import pytest

from poolrt.workers.engines.object_loader import ObjectError, load_object
from poolrt.workers.engines.target import ISA_LEVELS
from poolrt.workers.kernels.native import vec
from poolrt.workers.kernels.native.compiler import types
from poolrt.workers.kernels.native.compiler.codegen import CompileError, compile_function, compile_kernel, lower_kernel
from poolrt.workers.kernels.native.compiler.language import intrinsic
from poolrt.workers.kernels.native.reference.scalars import operand, write_64
from poolrt.workers.kernels.spec import KernelSpec

I = types.int64  # noqa: E741
SIGNATURE = types.void(I, I, I, I)


def square(begin: int, end: int, src: int, dst: int) -> None:
    for i in range(begin, end):
        x = vec.vload(src + i * 64)
        vec.vstore(dst + i * 64, vec.vmul(x, x))


def test_the_same_function_gives_the_same_bytes_twice() -> None:
    assert compile_function("k", square, SIGNATURE, "x86-64-v3") == compile_function(
        "k", square, SIGNATURE, "x86-64-v3"
    )


@pytest.mark.parametrize(("isa", "register"), [("x86-64", "xmm"), ("x86-64-v3", "ymm"), ("x86-64-v4", "zmm")])
def test_a_level_uses_its_own_registers_and_none_above(isa: str, register: str) -> None:
    text = disassemble(compile_function("k", square, SIGNATURE, isa))
    wider = {"xmm": "[yz]mm", "ymm": "zmm", "zmm": "(?!)"}[register]
    assert register in text
    assert not re.search(wider, text)


@pytest.mark.parametrize(("isa", "register", "width"), [("x86-64-v3", "ymm", 32), ("x86-64-v4", "zmm", 64)])
def test_the_end_of_a_page_cuts_no_vector_on_the_stack_in_two(isa: str, register: str, width: int) -> None:
    """A loop that stores and reads one there takes two to four times as long, with any luck of the caller's stack."""
    # Given a kernel with more vectors than registers
    spec = KernelSpec.of("eltwise", algorithm="sin", src="f32", dst="f32", chain=())
    defined = [line for line in lower_kernel(spec, isa).splitlines() if line.startswith("define")]
    # Then each of its functions aligns the stack, and vectors are at multiples of their width
    assert defined
    assert all(f"alignstack({width})" in line for line in defined)
    lines = disassemble(compile_kernel(spec, isa)).splitlines()
    places = [
        found[1] for line in lines if register in line and (found := re.search(r"(-?0x[0-9a-f]+|)\(%rsp\)", line))
    ]
    assert places
    assert not [place for place in places if int(place or "0", 16) % width]
    masks = [int(found[1], 16) for line in lines if (found := re.search(r"and +\$0x(f+[0-9a-f]0),%rsp", line))]
    assert masks
    assert not any(mask % width for mask in masks)


def test_what_a_kernel_was_lowered_from_is_freed_without_a_collection_of_garbage() -> None:
    gc.collect()
    gc.disable()
    try:
        lower_kernel(KernelSpec.of("reference.reduction"), "x86-64-v3")
        assert not [each for each in gc.get_objects() if isinstance(each, ir.Instruction)]
    finally:
        gc.enable()


def test_functions_that_a_kernel_calls_are_compiled_for_its_level_too() -> None:
    # Given a kernel with a helper, compiled for two levels one after the other
    def make() -> Callable[..., None]:

        def double(x: float) -> float:
            return x + x

        def kernel(begin: int, end: int, src: int, dst: int) -> None:
            for i in range(begin, end):
                vec.fstore(dst + i * 4, double(vec.fload(src + i * 4)))

        return kernel

    # When / Then both compile, without a register of the other
    for isa in ("x86-64-v4", "x86-64-v3"):
        assert compile_function("k", make(), SIGNATURE, isa)


def halve(x: float) -> float:
    return x / 2


def quarter(x: float) -> float:
    return halve(halve(x))


def halving(begin: int, end: int, src: int, dst: int) -> None:
    for i in range(begin, end):
        vec.fstore(dst + i * 4, quarter(vec.fload(src + i * 4)))


def test_a_function_of_a_module_is_compiled_for_each_level() -> None:
    # When several kernels call functions that call each other, at several levels and in any order
    found = [compile_function("k", halving, SIGNATURE, isa) for isa in ("x86-64-v4", "x86-64", "x86-64-v4")]
    # Then each level has them with its own instructions
    assert found[0] == found[2]
    assert "vmul" in disassemble(found[0])
    assert "vmul" not in disassemble(found[1])
    # And so have the kernels of this package
    for level in ("x86-64-v3", "x86-64-v4"):
        assert compile_kernel(KernelSpec.of("region_loop", part="loop"), level)


def test_a_kernel_that_allocates_is_refused() -> None:
    def allocates(begin: int, end: int, src: int, dst: int) -> None:
        vec.fstore(dst, np.float32(np.ones(end).sum()))

    with pytest.raises(CompileError, match=r"kernel allocator: it cannot be lowered\n.*ones"):
        compile_function("allocator", allocates, SIGNATURE, "x86-64-v3")


@intrinsic
def process_id(_: object) -> object:
    def emit(context: object, builder: vec.Builder, sig: object, args: object) -> vec.Value:
        return vec.call(builder, "getpid", result=vec.I64)

    return I(), emit


def test_a_call_outside_of_the_c_and_math_library_is_refused_with_its_name() -> None:
    def asks(begin: int, end: int, src: int, dst: int) -> None:
        vec.fstore(dst, np.float32(process_id()))

    with pytest.raises(CompileError, match=r"kernel asker: it needs getpid"):
        compile_function("asker", asks, SIGNATURE, "x86-64-v3")


def test_a_kernel_that_does_not_type_carries_the_compilers_log() -> None:
    def wrong(begin: int, end: int, src: int, dst: int) -> None:
        vec.vstore(dst, begin)

    with pytest.raises(CompileError) as caught:
        compile_function("wrong", wrong, SIGNATURE, "x86-64-v3")
    assert "expect f32x16, not int64" in caught.value.log
    assert f"{__file__}:" in caught.value.log


def test_an_argument_that_is_no_number_of_64_bits_is_refused() -> None:
    with pytest.raises(CompileError, match="int64 or float64"):
        compile_function("k", square, types.void(I, I, I, types.float32), "x86-64-v3")


def test_a_kernel_may_call_the_math_library() -> None:
    def powers(begin: int, end: int, src: int, dst: int) -> None:
        for i in range(begin, end):
            vec.fstore(dst + i * 4, np.float32(math.pow(vec.fload(src + i * 4), 0.75)))

    assert b"pow" in compile_function("k", powers, SIGNATURE, "x86-64-v3")


def test_a_last_argument_is_the_place_of_all_that_follow() -> None:
    """A kernel adds up as many numbers as its argument says."""

    def add(begin: int, end: int, dst: int, count: int, numbers: object) -> None:
        total = 0
        for slot in range(count):
            total += operand(numbers, slot)
        write_64(dst, total)

    kernel = load_object(compile_function("add", add, types.void(I, I, I, I, types.voidptr), "x86-64-v2"))
    for numbers in ((), (5,), (1, 2, 3, 4)):
        found, result = ctypes.c_int64(-1), (ctypes.c_int64 * 8)()
        blob = (ctypes.c_int64 * 8)(0, 1, ctypes.addressof(found), len(numbers), *numbers)
        assert kernel.function(ctypes.addressof(result), ctypes.addressof(result) + 32, ctypes.addressof(blob)) == 0
        assert found.value == sum(numbers)


def test_only_the_last_argument_is_such_a_place() -> None:
    with pytest.raises(CompileError, match="int64 or float64"):
        compile_function("k", square, types.void(I, I, types.voidptr, I), "x86-64-v3")


def test_a_generator_may_be_one_folder_below() -> None:
    assert compile_kernel(KernelSpec.of("reference.padding"), "x86-64-v3")


@pytest.fixture
def generator() -> Iterator[ModuleType]:
    name = f"{vec.__package__}.a_generator"
    module = ModuleType(name)
    sys.modules[name] = module
    yield module
    del sys.modules[name]


def test_a_spec_names_generator_and_parameters(generator: ModuleType) -> None:
    def make(isa: str, factor: int) -> tuple[Callable[..., None], object]:
        def scale(begin: int, end: int, src: int, dst: int) -> None:
            vec.fstore(dst, vec.fload(src) * np.float32(factor))

        return scale, SIGNATURE

    generator.make = make  # type: ignore[attr-defined]
    two, three = (compile_kernel(KernelSpec.of("a_generator", factor=n), "x86-64-v3") for n in (2, 3))
    assert two != three
    with pytest.raises(CompileError, match=r"a_generator\(other=1\): its generator failed"):
        compile_kernel(KernelSpec.of("a_generator", other=1), "x86-64-v3")


@pytest.mark.parametrize(
    "name", ["no_such_generator", "os.path", "..codegen", "reference.a.b", "reference.no_such_generator"]
)
def test_a_generator_that_does_not_exist_is_a_compile_error(name: str) -> None:
    with pytest.raises(CompileError, match="generator"):
        compile_kernel(KernelSpec.of(name), "x86-64-v3")


def test_an_unknown_level_is_a_compile_error() -> None:
    with pytest.raises(CompileError, match=", ".join(ISA_LEVELS)):
        compile_kernel(KernelSpec.of("vec"), "x86-64-v9")


def disassemble(binary: bytes) -> str:
    """Return the names of registers and instructions of an object's code."""
    assert llvm.ObjectFileRef.from_data(binary)
    with tempfile.NamedTemporaryFile(suffix=".o") as file:
        file.write(binary)
        file.flush()
        return subprocess.run(["objdump", "-d", file.name], capture_output=True, text=True, check=True).stdout


def digests(names: Sequence[str]) -> dict[str, str]:
    """Return the digests of kernels that are compiled one after the other."""
    params: dict[str, dict[str, Any]] = {
        "conv_depthwise": {"ragged": True},
        "reorder": {"src": "f32", "dst": "bf16", "turns": True},
    }
    specs = {name: KernelSpec.of(name, **params.get(name, {})) for name in names}
    return {name: sha256(compile_kernel(spec, "x86-64-v3")).hexdigest() for name, spec in specs.items()}


@pytest.mark.parametrize(
    ("names", "hash_seeds"),
    [
        (("reference.sum", "reference.padding"), ("1",)),
        pytest.param(
            ("reorder", "conv_depthwise", "reference.sum", "reference.binary"), ("1", "2"), marks=pytest.mark.slow
        ),
    ],
)
def test_processes_compile_the_same_bytes_in_any_order(names: tuple[str, ...], hash_seeds: tuple[str, ...]) -> None:
    code = f"from {__name__} import digests; print(digests({names[::-1]}))"
    found = [
        ast.literal_eval(
            subprocess.run(
                [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=100,
                env={**os.environ, "PYTHONHASHSEED": seed},
            ).stdout
        )
        for seed in hash_seeds
    ]  # fmt: skip
    assert found == [digests(names)] * len(hash_seeds)


@pytest.mark.parametrize("error", [CompileError("conv(x=1)", "it fails", "log"), ObjectError("malformed")])
def test_errors_survive_the_way_to_another_process(error: Exception) -> None:
    copy = pickle.loads(pickle.dumps(error))  # noqa: S301
    assert (type(copy), str(copy), vars(copy)) == (type(error), str(error), vars(error))
