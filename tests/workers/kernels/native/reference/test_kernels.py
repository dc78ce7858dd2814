"""Every reference kernel compiles for the weakest processor too, where more is left to the math library."""

from __future__ import annotations

import importlib
import pkgutil

import pytest

from poolrt.workers.engines.object_loader import load_object
from poolrt.workers.kernels.native import reference
from poolrt.workers.kernels.native.compiler.codegen import compile_kernel
from poolrt.workers.kernels.spec import KernelSpec

NAMES = [module.name for module in pkgutil.iter_modules(reference.__path__)]
#: The kernel that leaves most to the math library, and the one that every conversion of data types is for.
FIRST = {"eltwise", "copy"}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name in FIRST else pytest.mark.slow)
        for name in NAMES
        if hasattr(importlib.import_module(f"{reference.__name__}.{name}"), "make")
    ],
)
def test_a_kernel_needs_nothing_that_cannot_be_loaded(name: str) -> None:
    assert load_object(compile_kernel(KernelSpec.of(f"reference.{name}"), "x86-64")).address
