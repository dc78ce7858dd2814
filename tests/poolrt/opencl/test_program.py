"""Programs of `poolrt.opencl`, in processes of their own: each is built once, and launched elsewhere without a compiler."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from poolrt.cachestore import CacheStore
from tests.workers.own_process import Server, python

from .drivers import choose_platform

MODULE = "tests.poolrt.opencl.program_server"
SOURCE = (
    '#include "h.h"\n__kernel void f(__global float *x, int n) { int i = get_global_id(0); x[i] = x[i] * n + H; }\n'
)
PLAIN = "__kernel void f(__global float *x) { x[0] = 1; }\n"


class Process:
    """A process that builds programs in one home."""

    def __init__(self, cache: Path) -> None:
        self._server = Server(MODULE, str(cache))

    def __call__(self, function: str, **arguments: Any) -> Any:
        return self._server.ask([function, arguments])

    def close(self) -> None:
        self._server.close()


@pytest.fixture(scope="module", params=["Portable", pytest.param("Intel", marks=pytest.mark.slow)])
def platform(request: pytest.FixtureRequest) -> str:
    """Return a part of the name of the driver that the programs are built with."""
    name: str = request.param
    return name


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory, device: str, platform: str) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("programs")
    with pytest.MonkeyPatch.context() as patch:
        choose_platform(platform, patch)
        patch.setenv("TMPDIR", str(folder))  # pyopencl leaves sources there that do not compile
        patch.setenv("POOLRT_HOME", str(folder / "home"))
        patch.delenv("POOLRT_REDIS_URL", raising=False)
        yield folder
        CacheStore.connect(home=str(folder / "home")).down()


@pytest.fixture(scope="module")
def creator(home: Path) -> Iterator[Process]:
    process = Process(home / "pocl-1")
    yield process
    process.close()


@pytest.fixture(scope="module")
def other(home: Path) -> Iterator[Process]:
    process = Process(home / "pocl-2")
    yield process
    process.close()


@pytest.fixture(scope="module")
def includes(home: Path, creator: Process, platform: str) -> Path:
    """Return a folder of includes; `SOURCE` was built with it, launched and published."""
    folder = home / "include"
    folder.mkdir()
    (folder / "h.h").write_text("#define H 7\n")
    built = creator("build", source=SOURCE, options=["-I", str(folder)], local=64)
    assert built["counts"] == {"created": 1}
    assert built["values"] == [7.0, 10.0, 13.0]
    late = int(platform == "Portable")  # PoCL compiles at the first launch
    assert built["late"] == late
    assert creator("publish") == late
    assert creator("publish") == 0  # nothing new
    return folder


def test_another_process_builds_nothing_and_its_launches_compile_nothing(other: Process, includes: Path) -> None:
    built = other("build", source=SOURCE, options=f"-I {includes}", local=64)
    assert built["counts"] == {"files": 1}
    assert built["values"] == [7.0, 10.0, 13.0]
    assert built["late"] == 0
    assert built["same"]
    assert built["kernels"] == ["f"]
    assert built["warnings"] == []


def test_a_changed_include_and_a_damaged_entry_are_built_again(
    home: Path, creator: Process, other: Process, includes: Path
) -> None:
    # Given a changed include
    (includes / "h.h").write_text("#define H 9\n")
    built = creator("build", source=SOURCE, options=["-I", str(includes)], local=64)
    assert (built["counts"], built["values"]) == ({"created": 1}, [9.0, 12.0, 15.0])
    # The former content has its entry still
    (includes / "h.h").write_text("#define H 7\n")
    assert creator("build", source=SOURCE, options=["-I", str(includes)])["counts"] == {"files": 1}
    # Given entries that were changed by a byte in their binaries, and no Redis
    CacheStore.connect(home=str(home / "home")).clear()
    assert creator("build", source=PLAIN)["counts"] == {"created": 1}
    store = CacheStore.connect(home=str(home / "home"), read_only=True)
    files = [path for path in (home / "home").rglob("*") if path.is_file() and path.stat().st_size > 1_000]
    digest = store.entries()[0].digest
    damaged = [path for path in files if digest in path.name or digest[2:] in path.name]
    assert damaged
    for path in damaged:
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 1
        path.chmod(0o600)
        path.write_bytes(bytes(content))
    # Then the binary comes from Redis, or is built, and nothing parses the damaged one
    found = other("build", source=PLAIN)
    assert found["counts"] in ({"redis": 1}, {"created": 1})
    assert other("corrupt") >= 1


def test_an_error_of_the_compiler_is_pyopencls_own_with_the_log_and_the_options(creator: Process) -> None:
    for _ in range(2):  # the next request tries again
        failed = creator("build", source="__kernel void f() { nonsense_here; }", options="-DA=1")
        assert failed["code"] == -11
        assert "use of undeclared identifier 'nonsense_here'" in failed["error"]
        assert "(options: -DA=1" in failed["error"]
        assert failed["error"].startswith("clBuildProgram failed: BUILD_PROGRAM_FAILURE")
        assert failed["counts"] == {}


def test_an_error_at_the_end_of_a_text_has_the_place_that_pyopencl_gives(creator: Process) -> None:
    def places(**options: Any) -> list[str]:
        """Return what the compiler says, without its names of the file and of the device."""
        error = creator("build", source="__kernel void f(__global float *x) {\n    x[0] = 1;\n", **options)["error"]
        named: list[str] = re.findall(r":(\d+:\d+: .*)", error)
        return named

    expected = places(cache_dir=False)
    assert expected
    assert "expected '}'" in expected[0]
    assert places() == expected


@pytest.mark.parametrize(
    ("source", "options", "reason"),
    [
        ("#define N <h.h>\n#include N\n" + PLAIN, "-I {includes}", "names no file"),
        (PLAIN, "-cl-kernel-arg-info", "-cl-kernel-arg-info"),
    ],
)
def test_an_unusual_program_is_built_by_pyopencl_with_one_warning_and_counted(
    creator: Process, includes: Path, source: str, options: str, reason: str
) -> None:
    built = creator("build", source=source, options=options.format(includes=includes))
    assert built["counts"] == {"fallbacks": 1}
    assert [reason in text for text in built["warnings"] if text.startswith("FallbackWarning")] == [True]


def test_a_file_that_no_folder_has_is_no_obstacle_unless_the_compiler_reaches_it(
    creator: Process, other: Process
) -> None:
    guarded = "#ifdef __cplusplus\n#include <stdexcept_of_tests>\n#include <dir/of.tests>\n#endif\n" + PLAIN
    assert creator("build", source=guarded)["counts"] == {"created": 1}
    found = other("build", source=guarded)
    assert (found["counts"], found["warnings"]) == ({"files": 1}, [])
    reached = creator("build", source="#include <stdexcept_of_tests>\n" + PLAIN)
    assert "stdexcept_of_tests" in reached["error"]
    assert reached["counts"] == {"fallbacks": 1}
    broken = creator("build", source=guarded + "nonsense")
    assert (broken["counts"], broken["code"]) == ({"fallbacks": 1}, -11)


def test_a_program_that_was_used_before_its_build_and_one_without_caches_are_pyopencls(creator: Process) -> None:
    assert "FallbackWarning" in creator("used_before_its_build", source=PLAIN)
    built = creator("build", source=PLAIN, cache_dir=False)
    assert (built["counts"], built["warnings"]) == ({}, [])


def test_a_store_that_is_refused_costs_the_cache_and_not_the_program(creator: Process, tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    warned, counts = creator("with_a_store_in", home=str(tmp_path), source=PLAIN)
    assert len(warned) == 1
    assert f"{tmp_path} is refused" in warned[0]
    assert counts == {"fallbacks": 1}


def test_programs_from_binaries_and_from_programs_are_taken_and_one_from_a_number_is_refused(creator: Process) -> None:
    refused = "expect the program's text as str or bytes, got 5"
    assert creator("other_forms", source=PLAIN) == [["f"], ["f"], ["f"], [refused]]


def test_a_kernel_of_a_program_is_called_in_a_graph_and_one_of_another_program_is_refused(
    home: Path, creator: Process
) -> None:
    source = """
__kernel void f(__global const float *x, __global float *y, int n) {
    int i = get_global_id(0);
    y[i] = x[i] * FACTOR + n;
}
"""
    found = creator("in_a_graph", source=source, home=str(home / "graphs"))
    assert found["attribute"] == found["constructed"] == [3.0 * i + 4 for i in range(33)]
    begin = "call 'mine': kernel: f is no kernel of a poolrt.opencl.Program that still exists"
    for name in ("plain", "binary", "left"):
        assert found[name].startswith(begin), name
    assert found["unknown"].startswith("call 'mine': kernel: f: the option -cl-kernel-arg-info")


def test_importing_poolrt_and_its_door_loads_no_pyopencl() -> None:
    code = "import sys, poolrt; poolrt.opencl; print('pyopencl' in sys.modules, 'msgpack' in sys.modules)"
    assert python(code).split() == ["False", "False"]
    assert python(f"{code}; poolrt.opencl.Program; print('pyopencl' in sys.modules)").split()[2] == "True"


@pytest.mark.slow
def test_each_device_of_a_context_has_a_binary_of_its_own(home: Path, platform: str) -> None:
    if platform != "Portable":
        pytest.skip("only PoCL makes two devices of a processor")
    code = """
import numpy, poolrt, warnings
import pyopencl as cl
warnings.simplefilter("error", poolrt.opencl.FallbackWarning)
devices = next(each for each in cl.get_platforms() if "Portable" in each.name).get_devices()
context = cl.Context(devices)
source = "__kernel void f(__global float *x) { x[get_global_id(0)] += 1; }"
program = poolrt.opencl.Program(context, source).build()
assert len(devices) == len(program.binaries) == 2
for chosen in (program, poolrt.opencl.Program(context, source).build(devices=devices[1:])):
    values = numpy.zeros(64, "f4")
    queue = cl.CommandQueue(context, devices[1])
    buffer = cl.Buffer(context, cl.mem_flags.COPY_HOST_PTR, hostbuf=values)
    cl.Kernel(chosen, "f")(queue, (64,), (64,), buffer)
    cl.enqueue_copy(queue, values, buffer)
    assert (values == 1).all()
counts = poolrt.opencl.stats()
assert sum(counts.values()) == 3, counts
print(counts.get("created", 0))
"""
    variables = {"POCL_DEVICES": "pthread pthread", "POCL_CACHE_DIR": str(home / "two")}
    assert int(python(code, variables)) >= 1
    assert int(python(code, {**variables, "POCL_CACHE_DIR": str(home / "two more")})) == 0


@pytest.mark.slow
def test_launches_are_published_with_their_code_or_not_at_all_if_folders_have_other_paths(
    home: Path, creator: Process, other: Process, platform: str
) -> None:
    if platform != "Portable":
        pytest.skip("only PoCL compiles at launches")
    for name in ("here", "there"):
        (home / name).mkdir()
        (home / name / "h.h").write_text("#define H 11\n")
    for source, always in ((SOURCE, False), (SOURCE.replace('#include "h.h"', "#define H 12"), True)):
        assert creator("build", source=source, options=f"-I {home}/here", local=64)["counts"] == {"created": 1}
        found = other("build", source=source, options=f"-I {home}/there", local=32)
        assert (found["counts"], found["late"]) == ({"files": 1}, 1)
        published = other("publish")
        assert published >= always
        third = Process(home / f"pocl-{always}")
        try:
            assert third("build", source=source, options=f"-I {home}/there", local=32)["late"] == 1 - published
        finally:
            third.close()
