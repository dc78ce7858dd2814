"""The object loader runs the output of codegen and raises ObjectError for all else."""

from __future__ import annotations

import ctypes
import gc
import math
import struct
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from poolrt.workers.engines.elf_object import read_object
from poolrt.workers.engines.object_loader import NativeKernel, ObjectError, load_object
from poolrt.workers.kernels.native import exponentials, vec
from poolrt.workers.kernels.native.compiler import types
from poolrt.workers.kernels.native.compiler.codegen import compile_function

from ...mutations import fresh_seed
from ..fuzzer import fuzz

INT = types.int64
BOUND_S = 20.0
SIGNATURE = types.void(INT, INT, INT, INT, types.float64)


def powers(begin: int, end: int, src: int, dst: int, exponent: float) -> None:
    """Use constants, calls of the math library and vectors."""
    for i in range(begin, end):
        vec.vstore(dst + i * 64, exponentials.vexp(vec.vload(src + i * 64)))
        for j in range(16):
            at = dst + i * 64 + j * 4
            vec.fstore(at, np.float32(math.pow(vec.fload(at), exponent)))


@pytest.fixture(scope="module")
def binary() -> bytes:
    found: bytes = compile_function("powers", powers, SIGNATURE, "x86-64-v3")
    return found


def call(kernel: NativeKernel, x: np.ndarray, exponent: float) -> np.ndarray:
    y = np.zeros_like(x)
    blob = (ctypes.c_int64 * 5)(0, x.size // 16, x.ctypes.data, y.ctypes.data, 0)
    struct.pack_into("<d", blob, 32, exponent)
    ret, exc = ctypes.c_int64(), ctypes.c_void_p()
    assert kernel.function(ctypes.addressof(ret), ctypes.addressof(exc), ctypes.addressof(blob)) == 0
    return y


def test_a_loaded_kernel_computes(binary: bytes) -> None:
    x = np.linspace(-3, 3, 64).astype(np.float32)
    np.testing.assert_allclose(call(load_object(binary), x, 2.0), np.exp(2.0 * x), rtol=1e-5)


def test_no_page_of_a_kernel_is_writable_and_executable(binary: bytes) -> None:
    kernel = load_object(binary)
    found = [line.split()[1] for line in maps() if covers(line, kernel.address)]
    assert [access[:3] for access in found] == ["r-x"]


def test_a_kernel_is_unmapped_when_it_is_dropped_and_not_before_its_function_is(binary: bytes) -> None:
    kernel = load_object(binary)
    address, function = kernel.address, kernel.function
    del kernel
    gc.collect()
    assert any(covers(line, address) for line in maps())
    del function
    gc.collect()
    assert not any(covers(line, address) for line in maps())


def test_loading_imports_no_compiler_and_no_numpy(binary: bytes, tmp_path: Path) -> None:
    (tmp_path / "k.o").write_bytes(binary)
    code = """
        import sys
        from poolrt.workers.engines.object_loader import load_object
        load_object(open(sys.argv[1], "rb").read())
        print(sorted({"numba", "llvmlite", "numpy"} & set(sys.modules)))
    """
    done = run_python(code, str(tmp_path / "k.o"))
    assert done.stdout.strip() == "[]"


def test_a_call_releases_the_interpreter(binary: bytes) -> None:
    # Given a call that takes long
    kernel = load_object(binary)
    x = np.full(1 << 21, 0.5, np.float32)
    ticks: list[float] = []
    stop = threading.Event()

    def tick() -> None:
        while not stop.is_set():
            ticks.append(time.perf_counter())
            stop.wait(0.0005)

    # When another thread runs beside it, which may need several calls to get a core
    thread = threading.Thread(target=tick)
    thread.start()
    until, within = time.monotonic() + BOUND_S, 0
    while within < 3 and time.monotonic() < until:
        began = time.perf_counter()
        call(kernel, x, 1.5)
        ended = time.perf_counter()
        within = sum(began < t < ended for t in ticks)
    stop.set()
    thread.join(BOUND_S)

    # Then that thread ran during a call, not only around it
    assert within >= 3


def test_a_symbol_outside_of_the_list_is_refused_by_name(binary: bytes) -> None:
    with pytest.raises(ObjectError, match="'pop'"):
        load_object(binary.replace(b"\0pow\0", b"\0pop\0"))


@pytest.mark.parametrize(
    "damage",
    [
        lambda b: b"",
        lambda b: b[:40],
        lambda b: b[: len(b) // 2],
        lambda b: b[:-1],
        lambda b: b"\x7fELF" + bytes(60),
        lambda b: b.replace(b"poolrt_entry", b"poolrt_enter"),
        lambda b: b[:18] + b"\xb7" + b[19:],  # aarch64
        lambda b: b[:60] + b"\xff\xff" + b[62:],  # 65535 sections
    ],
)
def test_a_damaged_object_is_an_object_error(binary: bytes, damage: object) -> None:
    with pytest.raises(ObjectError, match="malformed"):
        load_object(damage(binary))  # type: ignore[operator]


def test_each_relocation_stays_inside_of_its_section(binary: bytes) -> None:
    elf = read_object(binary)
    assert elf.relocations
    for relocation in elf.relocations:
        moved = bytearray(binary)
        old = struct.pack("<QQq", relocation.offset, relocation.symbol << 32 | relocation.kind, relocation.addend)
        at = binary.index(old)
        struct.pack_into("<Q", moved, at, elf.sections[relocation.section].size)
        with pytest.raises(ObjectError, match="outside of its section"):
            load_object(bytes(moved))


def test_mutated_objects_load_or_give_an_object_error_and_never_crash_or_hang(binary: bytes, tmp_path: Path) -> None:
    seen = fuzz("object", binary, tmp_path, fresh_seed(), 10_000)
    assert min(seen["sound"], seen["ObjectError"]) > 100


def run_python(code: str, *args: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), *args], capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 0, done.stderr
    return done


def maps() -> list[str]:
    with open("/proc/self/maps", encoding="utf-8") as lines:
        return lines.readlines()


def covers(line: str, address: int) -> bool:
    low, high = (int(part, 16) for part in line.split()[0].split("-"))
    return low <= address < high
