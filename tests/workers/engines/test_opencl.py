"""The OpenCL engine: the devices that it finds, their identities, and its error if there is none."""

from __future__ import annotations

import pytest

from ..own_process import python

IDENTITY = "from poolrt.workers.engines.opencl import *; print(opencl_target())"
FAILS = """
from poolrt.workers.engines.opencl import *
try:
    OpenClEngine({index})
except EngineUnavailable as error:
    print(count(), error)
"""


@pytest.fixture(scope="module")
def identity(device: str) -> str:
    """Return the identity of the device in a process without variables of ours."""
    return python(IDENTITY)


def test_the_identity_is_the_same_in_every_process(identity: str) -> None:
    other = python(IDENTITY, {"POCL_MAX_PTHREAD_COUNT": "2", "HOSTNAME": "elsewhere", "TMPDIR": "/var/tmp"})
    assert identity == other


def test_the_identity_holds_no_ordinal_and_no_number_of_threads(identity: str) -> None:
    code = "from poolrt.workers.engines.opencl import *; runtime(threads={}); print(opencl_target())"
    assert python(code.format(1)) == python(code.format(2)) == identity


@pytest.mark.parametrize("variable", ["POCL_WORK_GROUP_METHOD", "CL_CONFIG_CPU_TARGET_ARCH"])
@pytest.mark.one_in(2)
def test_a_variable_that_changes_the_code_changes_the_identity(identity: str, variable: str) -> None:
    assert python(IDENTITY, {variable: "cbs"}) != identity


def test_the_identity_says_which_machine_code_the_device_runs(identity: str) -> None:
    for name in ("driver_version", "name", "platform_version", "type", "vector_width", "version"):
        assert f"('{name}', " in identity


def test_an_engine_that_does_not_exist_is_an_error_that_names_those_that_do(device: str) -> None:
    answer = python(FAILS.format(index=40))
    assert "there is no engine opencl:40" in answer
    assert f"opencl:0 {device}" in answer


def test_a_machine_without_a_device_has_no_engine(device: str) -> None:
    # Given a loader that finds no driver but PoCL, and a PoCL without devices
    answer = python(FAILS.format(index=0), {"POCL_DEVICES": "none", "OCL_ICD_VENDORS": "/nonexistent"})
    assert answer.startswith("0 there is no OpenCL device (left out: ")


def test_the_first_caller_decides_the_number_of_threads(device: str) -> None:
    code = """
from poolrt.workers.engines.opencl import *
engine = OpenClEngine(threads=1)
print(runtime(threads=2).threads, engine.device.max_compute_units if 'pthread' in engine.device.name else 1)
"""
    assert python(code).split() == ["1", "1"]


def test_a_forked_process_gets_an_error_instead_of_a_hanging_driver(device: str) -> None:
    code = """
import os
from poolrt.workers.engines.opencl import *
count()
child = os.fork()
if child == 0:
    try:
        count()
    except EngineUnavailable as error:
        os._exit(7 if "forked" in str(error) else 1)
    os._exit(2)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    assert python(code).strip() == "7"


def test_asking_for_an_engine_is_all_that_imports_pyopencl(device: str) -> None:
    code = """
import sys
import poolrt.workers.engines.opencl, poolrt.workers.plans.opencl_backend, poolrt.workers.implementations.native.convolution
print("pyopencl" in sys.modules, "numpy" in sys.modules)
"""
    assert python(code).split() == ["False", "False"]
