"""Fixtures that more than one part of the tests needs."""

from __future__ import annotations

import os

import pytest

from tests.workers.opencl.processes import python


@pytest.fixture(scope="session")
def device() -> str:
    """Return the name of the first OpenCL device; without one the test is skipped at home and fails in CI."""
    code = "from poolrt.workers.engines.opencl import *; print(dict(opencl_target().device)['name'] if count() else '')"
    name = python(code).strip()
    if not name and "CI" not in os.environ:
        pytest.skip("there is no OpenCL device")
    assert name, "CI must have an OpenCL device: pyopencl[pocl] brings one"
    return name
