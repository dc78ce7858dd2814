"""The references of normalisations against ONNX Runtime, and their gradients against differences."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from poolrt.workers.desc import Arg, BatchNormalization, GroupNormalization, LayerNormalization, MemoryDesc

from .finite_differences import numeric_gradient
from .moments import normalization, normalization_backward
from .onnx_node import run_node, run_node_for_all

Array = NDArray[Any]
AFFINE = ("use_scale", "use_shift")


def operation(kind: str, *flags: str, prop: str = "forward_training") -> Any:
    md = MemoryDesc((3, 4, 2, 3), "f64")
    if kind == "group":
        return GroupNormalization(md, md, 2, 1e-2, flags, prop)
    return (BatchNormalization if kind == "batch" else LayerNormalization)(md, md, 1e-2, flags, prop)


def filled(op: Any) -> dict[int, Array]:
    rng = np.random.default_rng(7)
    found = {}
    for arg, md in op.memories().items():
        values = rng.standard_normal(md.dims)
        found[arg] = np.abs(values) + 0.5 if arg in (Arg.VARIANCE, Arg.SCALE) else values
    return found


def test_batch_normalization_with_statistics_of_the_batch_agrees_with_onnxruntime() -> None:
    op = operation("batch", *AFFINE)
    args = filled(op)
    zeros = np.zeros(4)
    dst, mean, variance = run_node_for_all(
        "BatchNormalization", [args[Arg.SRC], args[Arg.SCALE], args[Arg.SHIFT], zeros, zeros], 3,
        epsilon=op.epsilon, momentum=0.0, training_mode=1,
    )  # fmt: skip
    got = normalization(op, args)
    for arg, wanted in ((Arg.DST, dst), (Arg.MEAN, mean), (Arg.VARIANCE, variance)):
        np.testing.assert_allclose(got[arg], wanted, rtol=1e-4, atol=1e-6)


def test_layer_normalization_agrees_with_onnxruntime() -> None:
    op = operation("layer", *AFFINE)
    args = filled(op)
    dst, mean, inverse = run_node_for_all(
        "LayerNormalization", [args[Arg.SRC], args[Arg.SCALE], args[Arg.SHIFT]], 3, axis=-1, epsilon=op.epsilon
    )
    got = normalization(op, args)
    np.testing.assert_allclose(got[Arg.DST], dst, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(got[Arg.MEAN], mean[..., 0], rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(got[Arg.VARIANCE], inverse[..., 0] ** -2.0 - op.epsilon, rtol=1e-3, atol=1e-6)


def test_an_rms_normalization_agrees_with_onnxruntime() -> None:
    op = operation("layer", "rms_norm", "use_scale")
    args = filled(op)
    given = [args[Arg.SRC], args[Arg.SCALE]]
    wanted = run_node_for_all("RMSNormalization", given, 1, 23, axis=-1, epsilon=op.epsilon)
    np.testing.assert_allclose(normalization(op, args)[Arg.DST], wanted[0], rtol=1e-4, atol=1e-6)


def test_group_normalization_agrees_with_onnxruntime() -> None:
    op = operation("group", *AFFINE)
    args = filled(op)
    wanted = run_node_for_all(
        "GroupNormalization", [args[Arg.SRC], args[Arg.SCALE], args[Arg.SHIFT]], 1, 21,
        num_groups=op.groups, epsilon=op.epsilon,
    )  # fmt: skip
    np.testing.assert_allclose(normalization(op, args)[Arg.DST], wanted[0], rtol=1e-4, atol=1e-6)


def test_one_group_a_channel_is_instance_normalization() -> None:
    op = dataclasses.replace(operation("group", *AFFINE), groups=4)
    args = filled(op)
    wanted = run_node("InstanceNormalization", [args[Arg.SRC], args[Arg.SCALE], args[Arg.SHIFT]], epsilon=op.epsilon)
    np.testing.assert_allclose(normalization(op, args)[Arg.DST], wanted, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("given", [(), ("use_global_stats",)])
@pytest.mark.parametrize("affine", [(), ("use_scale",), AFFINE])
@pytest.mark.parametrize("kind", ["batch", "batch with relu", "layer"])
def test_gradients_agree_with_differences(kind: str, affine: tuple[str, ...], given: tuple[str, ...]) -> None:
    # Given the statistics that a forward operation used
    flags = (*affine, *given, *(("fuse_norm_relu",) if "relu" in kind else ()))
    op = operation(kind.split()[0], *flags)
    args = filled(op)
    args |= normalization(op, args)
    errors = np.random.default_rng(9).standard_normal(op.dst.dims)
    # When its gradients are computed from these
    backward = dataclasses.replace(op, prop="backward")
    got = normalization_backward(backward, {**args, Arg.DIFF_DST: errors})
    # Then they are those of the whole forward operation, through the statistics where they were computed
    for source, gradient in ((Arg.SRC, Arg.DIFF_SRC), (Arg.SCALE, Arg.DIFF_SCALE), (Arg.SHIFT, Arg.DIFF_SHIFT)):
        assert (gradient in got) == (source in args)
        if gradient in got:

            def forward(values: Array, source: int = source) -> Array:
                return normalization(op, {**args, source: values})[Arg.DST]

            wanted = numeric_gradient(forward, args[source], errors)
            np.testing.assert_allclose(got[gradient], wanted, rtol=1e-5, atol=1e-7)


def test_statistics_of_nothing_are_zero() -> None:
    md = MemoryDesc((0, 3, 2), "f64")
    got = normalization(BatchNormalization(md, md, 1e-2, (), "forward_training"), {Arg.SRC: np.zeros(md.dims)})
    assert got[Arg.MEAN].tolist() == got[Arg.VARIANCE].tolist() == [0.0, 0.0, 0.0]
