"""Binaries: complete when they are taken, refused where they are not for the device, errors with the compiler's log."""

from __future__ import annotations

from pathlib import Path

import pytest

from ...own_process import python

BUILD = """
import sys
from pathlib import Path
from poolrt.workers.engines.opencl import opencl_target
from poolrt.workers.kernels.opencl.build import compile_kernel
from poolrt.workers.implementations.program import KernelSpec
params = dict(v=16, function="eltwise_relu", alpha=0.0, beta=0.0, post_ops=(), local=(64, 1), grids={grids})
spec = KernelSpec.of("eltwise", **params)
Path({path!r}).write_bytes(compile_kernel(spec, opencl_target()))
"""
USE = """
from pathlib import Path
import numpy
from poolrt.workers.engines.opencl import *
from poolrt.workers.engines.opencl_program import *
engine = OpenClEngine()
import pyopencl as cl  # when the engine has been made: it is the one that decides how
binary = Path({path!r}).read_bytes()
assert engine.realize(binary) is engine.realize(bytes(binary))
kernel = realize_kernel(engine.realize(binary), "eltwise")
values = numpy.arange(-8, 8, dtype=numpy.float32)
buffer = cl.Buffer(engine.context, cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR, hostbuf=values)
set_memory(kernel, 0, buffer, 0)
set_memory(kernel, 2, buffer, 0)
set_number(kernel, 4, 16, real=False)
before = len(list(runtime().cache.rglob("*.so")))
for width in {widths}:
    cl.enqueue_nd_range_kernel(engine.queue, kernel, (width, 1), ({local}, 1))
engine.queue.finish()
result = numpy.empty_like(values)
cl.enqueue_copy(engine.queue, result, buffer)
assert (result == numpy.maximum(values, 0)).all(), result
print(len(list(runtime().cache.rglob("*.so"))) - before)
"""


def test_a_binary_holds_every_variant_that_was_declared(device: str, tmp_path: Path) -> None:
    path = str(tmp_path / "binary")
    # Given a kernel built for small and large grids
    python(BUILD.format(grids=("small", "large"), path=path))
    # When a process whose first launch is small, and one whose first is large, use both
    compiled = [
        python(USE.format(path=path, widths=widths, local=64)).strip() for widths in ((64, 131072), (131072, 64))
    ]
    # Then nothing is compiled in either
    assert compiled == ["0", "0"]


@pytest.mark.slow
def test_an_undeclared_variant_is_what_a_consumer_would_compile(device: str, tmp_path: Path) -> None:
    # This is what the test above would miss if it counted wrongly.
    path = str(tmp_path / "binary")
    python(BUILD.format(grids=("small",), path=path))
    compiled = int(python(USE.format(path=path, widths=(131072,), local=64)))
    assert compiled == (1 if "pthread" in device else 0)


def test_what_is_in_place_of_code_for_any_size_is_never_called(device: str, tmp_path: Path) -> None:
    # Given a kernel built for groups of 64
    path = str(tmp_path / "binary")
    count = (
        "from poolrt.workers.engines.opencl import runtime\n"
        "libraries = [*runtime().cache.rglob('*.so')]\n"
        "print(len(libraries), len({each.stat().st_ino for each in libraries}))"
    )
    libraries = python(BUILD.format(grids=("small",), path=path) + count).split()
    # PoCL compiles for these alone; none is compiled for any size.
    assert libraries == (["2", "1"] if "pthread" in device else libraries)
    # When a process launches it in groups of 16, then the result is right, and compiled for them
    compiled = int(python(USE.format(path=path, widths=(16,), local=16)))
    assert compiled == (1 if "pthread" in device else 0)


def test_a_kernel_that_does_not_compile_gives_the_compilers_log(device: str) -> None:
    code = """
from poolrt.workers.engines.opencl import opencl_target
from poolrt.workers.kernels.opencl.build import *
from poolrt.workers.implementations.program import KernelSpec
spec = KernelSpec.of("eltwise", v=16, function="eltwise_missing", alpha=0.0, beta=0.0, post_ops=(), local=(64, 1))
try:
    compile_kernel(spec, opencl_target())
except KernelBuildError as error:
    print(error)
"""
    log = python(code)
    assert "OpenCL kernel eltwise" in log
    assert "eltwise_missing" in log
    assert "error:" in log


BROKEN = """
import base64
from poolrt.workers.engines.opencl import opencl_target
from poolrt.workers.kernels.opencl.build import KernelBuildError, compile_kernel
from poolrt.workers.kernels.spec import KernelSpec
texts = (
    "__kernel void called(__global float *x)\\n{ x[0] = pow(x[0]); }",
    "__kernel void called(__global float *x)\\n{ __local float a[1]; x[0] = b; x[1] = c; }",
    "__kernel void called(void) {}",
    "__kernel void call(__global float *x) {}",
    "__kernel void called(",
)
for text in texts:
    spec = KernelSpec.of(
        "poolrt_call", code=(base64.b85encode(text.encode()).decode(),), options="", function="called",
        parameters="__global float *a", arguments="a", nbytes=(256,), global_size=(1,), local=(1,),
    )
    try:
        compile_kernel(spec, opencl_target())
    except KernelBuildError as error:
        print(error)
"""


def test_a_kernel_of_a_user_that_does_not_compile_gives_the_first_error_and_its_place(device: str) -> None:
    few, unknown, call, other, cut = python(BROKEN).splitlines()
    assert few == "OpenCL kernel called: line 2, column 10: no matching function for call to 'pow'"
    assert unknown == "OpenCL kernel called: line 2, column 30: use of undeclared identifier 'b', and 1 more error"
    fitting = (
        "OpenCL kernel called: its parameters do not fit the arrays and numbers of the call: too many arguments to "
    )
    assert call.startswith(fitting)
    assert other.startswith("OpenCL kernel called: the text has no kernel of this name: ")
    assert "'called'" in other
    assert cut.startswith("OpenCL kernel called: the end of the text: ")


def test_a_target_that_no_device_has_is_an_error(device: str) -> None:
    code = """
from poolrt.workers.engines.opencl import EngineUnavailable
from poolrt.workers.engines.target import Target
from poolrt.workers.kernels.opencl.build import *
from poolrt.workers.implementations.program import KernelSpec
try:
    spec = KernelSpec.of("copy", v=16, post_ops=(), local=(64, 1))
    compile_kernel(spec, Target("opencl", "opencl", (("name", "abacus"),)))
except EngineUnavailable as error:
    print(error)
"""
    assert "abacus" in python(code)


#: What is no binary, and why.
REFUSED = {
    "b'no binary at all'": "16 bytes are not a compressed program binary",
    "zlib.compress(b'no binary at all')": "the driver refuses a program binary of 16 bytes",
    "zlib.compress(bytes(1000))[:-9]": "is cut short",
    "zlib.compress(bytes(2001))": "has more than 2000 bytes",
}


@pytest.fixture(scope="module")
def reasons(device: str) -> list[str]:
    """Return the error of a process for each binary, in order."""
    code = f"""
import zlib
from poolrt.workers.engines.opencl import OpenClEngine
from poolrt.workers.engines.opencl_program import RealizeError, realize_program
engine = OpenClEngine()
for content in ({", ".join(REFUSED)}):
    try:
        realize_program(engine.context, engine.device, content, largest=2000)
        print("it is taken")
    except RealizeError as error:
        print(error)
"""
    return python(code).splitlines()


@pytest.mark.parametrize("content", REFUSED)
def test_bytes_that_are_no_binary_are_refused(reasons: list[str], content: str) -> None:
    assert len(reasons) == len(REFUSED)
    assert REFUSED[content] in reasons[list(REFUSED).index(content)]


CALLED = """
import base64
from poolrt.workers.engines.opencl import OpenClEngine, opencl_target
from poolrt.workers.kernels.opencl.build import KernelBuildError, compile_kernel
from poolrt.workers.kernels.opencl.source import kernel_source
from poolrt.workers.kernels.spec import KernelSpec
engine = OpenClEngine()
import pyopencl as cl  # when the engine has been made: it is the one that decides how
parameters = "__global float *x, __global float *y, int n"
body = "{ LOCAL float row[64]; size_t i = get_local_id(0); row[i] = x[i] * n; barrier(1); y[i] = row[i]; }"
other = f"__kernel void other({parameters}) {{ CALL; }}"
attribute = "__attribute__((reqd_work_group_size(64, 1, 1)))"
texts = {
    "declared and called": "#define CALL called(x, y, n)\\n/* called(x) */"
    f"__kernel void called({parameters});\\n__kernel void called({parameters}) {body} {other}",
    "named by a macro": f"#define K(end) __kernel void cal##end({parameters})\\nK(led) {body}",
    "in a branch": "#if 0\\n__kernel void called(int n)\\n#else\\n"
    f"__kernel {attribute} void called\\n({parameters})\\n#endif\\n{body}",
    "with a macro behind it": f"#define P ({parameters})\\n__kernel void called P {body}",
}
for case, text in texts.items():
    spec = KernelSpec.of(
        "poolrt_call", code=(base64.b85encode(text.encode()).decode(),), options="-D LOCAL=__local", function="called",
        parameters="__global float *a, __global float *b", arguments="a, b, 3", nbytes=(256, 256), global_size=(64,), local=(64,),
    )
    if case == "with a macro behind it":
        try:
            compile_kernel(spec, opencl_target())
        except KernelBuildError as error:
            print(case, error)
    else:
        program = cl.Program(engine.context, kernel_source(spec)).build("-w -D LOCAL=__local", cache_dir=False)
        kernel = cl.Kernel(program, "poolrt_call")
        print(case, kernel.get_work_group_info(cl.kernel_work_group_info.LOCAL_MEM_SIZE, engine.device))
"""


def test_local_memory_of_a_called_kernel_is_its_callers_or_the_kernel_is_refused(device: str) -> None:
    refusal = (
        "OpenCL kernel called: on PoCL, work-groups would share its __local variables; "
        "declare it with a parenthesis behind its name: __kernel void called(...)"
    )
    assert python(CALLED).splitlines() == [
        "declared and called 256",
        "named by a macro 256",
        "in a branch 256",
        f"with a macro behind it {refusal}",
    ]
