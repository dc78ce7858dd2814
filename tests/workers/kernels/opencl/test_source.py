"""Kernel sources: parameters become macros, chains of post-ops become statements."""

from __future__ import annotations

import math

import pytest

from poolrt.workers.kernels.opencl.build import launch_variants
from poolrt.workers.kernels.opencl.source import kernel_source, literal
from poolrt.workers.kernels.spec import KernelSpec


@pytest.mark.parametrize(
    ("value", "text"),
    [(3, "3"), (True, "1"), (0.1, "0x1.999999999999ap-4f"), (-math.inf, "-INFINITY"), (math.nan, "NAN"), ("f", "f")],
)
def test_parameters_are_exact(value: float | str, text: str) -> None:
    assert literal(value) == text


def test_a_parameter_without_a_form_is_refused() -> None:
    with pytest.raises(TypeError, match="number or text"):
        literal(None)


def test_the_chain_is_written_in_order() -> None:
    spec = KernelSpec.of("eltwise", v=16, post_ops=(("binary", "add"), ("eltwise", "relu", 0.5, 0.0)), local=(64, 1))
    source = kernel_source(spec)
    chain = "x = binary_add(x, other); x = eltwise_relu(x, 0x1.0000000000000p-1f, 0x0.0p+0f);"
    assert f"#define POST_OPS(x, other) {chain}" in source
    assert "#define POST_BINARY 1" in source
    assert "#define V 16" in source
    assert "LOCAL" not in source


def test_small_grids_are_launched_before_large_ones() -> None:
    spec = KernelSpec.of("eltwise", local=(64, 1), grids=("large", "small"))
    assert launch_variants(spec) == [((64, 1), (64, 1)), ((65536, 1), (64, 1))]


@pytest.mark.parametrize("params", [{}, {"local": (64, 1), "grids": ("huge",)}])
def test_a_kernel_must_declare_how_it_is_launched(params: dict[str, tuple[int, int] | tuple[str]]) -> None:
    with pytest.raises(ValueError, match="declare local sizes"):
        launch_variants(KernelSpec.of("eltwise", **params))
