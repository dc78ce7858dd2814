"""The contract with pyopencl: its private names are there, and a version without one of them is left alone."""

from __future__ import annotations

from tests.workers.own_process import python


def test_this_pyopencl_has_all_names_and_one_without_a_name_builds_alone(device: str) -> None:
    code = """
import warnings
import pyopencl as cl
from poolrt.opencl import FallbackWarning, Program, private, stats
private.check_names()
del private.raw._ErrorRecord
context = cl.Context(next(p for p in cl.get_platforms() if "Portable" in p.name).get_devices()[:1])
with warnings.catch_warnings(record=True) as warned:
    warnings.simplefilter("always")
    built = Program(context, "__kernel void f() {}").build()
print([w.message for w in warned if w.category is FallbackWarning], built.num_kernels, stats())
"""
    answer = python(code)
    assert "has no _ErrorRecord" in answer
    assert "1 {'fallbacks': 1}" in answer
