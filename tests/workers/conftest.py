"""Fixtures of the compute floor's tests."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final
from zlib import crc32

import pytest

from poolrt.cachestore import CacheStore
from poolrt.workers.engines.object_loader import NativeKernel
from poolrt.workers.engines.target import host_isa
from poolrt.workers.implementations.native.region_loop import PARTS
from poolrt.workers.verbose.output import set_verbose

from .compiled import region_loop
from .implementations.opencl.reference.runner import OpenClRunner
from .levels import LEVELS, WITH_ALL_INSTRUCTIONS, target_of
from .native_runner import NativeRunner
from .verbose.lines import ReadLines, parsed

#: Levels with instructions that not every host has which runs tests.
_BEYOND = (LEVELS[-1], "+", str(WITH_ALL_INSTRUCTIONS))
#: Tests whose kernels are compiled for them alone: those of a file are about one implementation or its kernels.
_HAS_KERNELS: Final = re.compile("implementations/(native|nested|reference)/|kernels/native/test_")
_COMPILING: Final = {"native", "isa", "instructions", "runner", "held_back", "every_pool"}
#: In the names or propagation kinds of tests of gradients.
_GRADIENT: Final = re.compile("gradient|backward")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run one case in five on native kernels, on one ISA level, and each on one kind of engine; the thorough tier runs all.

    Of a test's cases on ISA levels, one in three is run, others in each run, and of a file's tests that compile kernels one in
    three: the compiler takes most of their time.
    Levels and engines change from case to case. Of cases with instructions that this host lacks, one in three is run.
    `support.test_cells` has one row of its table in six, and one in 30 with all instructions that kernels use. Gradients are
    computed on the processor, on OpenCL only those of eltwise: PoCL compiles the kernel of each for one or two seconds.
    """
    others = [each for each in (*LEVELS, "+") if each != host_isa()]
    oldest, usual, newest = LEVELS
    choices = {
        # Kernels for x86-64-v3 are compiled for most tests anyway, those for x86-64-v2 for these cases alone.
        "isa": (oldest, usual, usual, usual, newest, newest),
        "instructions": others,
        # PoCL takes up to a second for a kernel, several times as long as the compiler for processors.
        "runner": (*["held_back"] * 4, "opencl"),
        "verification": (WITH_ALL_INSTRUCTIONS, *[None] * 4),
    }
    for item in items:
        parameters = item.callspec.params if isinstance(item, pytest.Function) and hasattr(item, "callspec") else {}
        if "isa" in parameters and item.get_closest_marker("one_in") is None:
            item.add_marker(pytest.mark.one_in(3))
        if _HAS_KERNELS.search(item.nodeid) and not _COMPILING.isdisjoint(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.one_test_in(3))
        is_gradient = _GRADIENT.search(f"{item.name} {parameters.get('prop', '')}") is not None
        if is_gradient and parameters.get("verification") == "opencl" and parameters.get("kind") != "eltwise":
            item.add_marker(pytest.mark.slow)
        for name, values in choices.items():
            value = parameters.get(name)
            # With extensions, whichever they are.
            kind = "+" if name == "instructions" and "+" in str(value) else value
            if kind is not None and kind in values:
                chosen = ("held_back",) if is_gradient and name == "runner" else values
                number = crc32(item.nodeid.replace(str(value), "").encode())
                is_emulated = str(kind) in _BEYOND and host_isa() not in _BEYOND
                if (
                    chosen[number % len(chosen)] != kind
                    or ("case" in parameters and name == "isa" and number // 8 % 5)
                    or (is_emulated and number // 64 % 3)
                ):
                    item.add_marker(pytest.mark.slow)
    # A process that runs these starts two others with a driver. They come first, so that one process has most of them.
    items.sort(key=lambda item: not _is_on_opencl(item))


def _is_on_opencl(item: pytest.Item) -> bool:
    if not isinstance(item, pytest.Function):
        return False
    parameters = item.callspec.params.values() if hasattr(item, "callspec") else ()
    # Some are arrays.
    is_asked = any(isinstance(value, str) and value == "opencl" for value in parameters)
    return is_asked or not {"opencl", "creating"}.isdisjoint(item.fixturenames)


@pytest.fixture(scope="session")
def native() -> NativeRunner:
    """Return a runner that compiles each native kernel once a session."""
    return NativeRunner()


@pytest.fixture(params=LEVELS)
def isa(request: pytest.FixtureRequest) -> str:
    """Return each ISA level that is tested."""
    return target_of(str(request.param)).isa


@pytest.fixture(scope="session")
def opencl(device: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpenClRunner]:
    """Return a runner that compiles each OpenCL kernel once a session."""
    runner = OpenClRunner(tmp_path_factory.mktemp("opencl"))
    yield runner
    runner.close()


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CacheStore]:
    """Return a store of its own for the session, so that each primitive is compiled once."""
    with CacheStore.connect(home=str(tmp_path_factory.mktemp("home"))) as opened:
        yield opened
        opened.down()


@pytest.fixture(scope="session")
def clocked_loop() -> tuple[NativeKernel, ...]:
    """Return the kernels of native pools, the clock among them."""
    return region_loop(*PARTS)


@pytest.fixture
def read_lines(capfd: pytest.CaptureFixture[str]) -> Iterator[ReadLines]:
    """Return what gives the verbose lines written since it was last asked; verbose is off before and after the test."""
    set_verbose(0)
    yield lambda: parsed(capfd.readouterr().err)
    set_verbose(0)
