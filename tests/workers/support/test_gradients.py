"""What backward implementations compute is the slope of what forward ones do, by central differences in f64."""

from __future__ import annotations

import numpy as np
import pytest

from poolrt.workers.desc import Arg, Eltwise, MemoryDesc, OpDesc
from poolrt.workers.desc.attributes import ELTWISE_ALGORITHMS, STEP_ALGORITHMS
from poolrt.workers.desc.operations.eltwise import FROM_DST
from tests.references.finite_differences import STEP, numeric_derivative
from tests.workers.native_runner import NativeRunner

from .gradients import BACKWARD, F32_STEP, Array, computed, gradients, ordinary, pairs

#: Elements of a tensor that are moved.
_MOVED = 5
#: Steps for tensors in f32, in which results are linear.
_STEPS = {Arg.SCALE: F32_STEP, Arg.SHIFT: F32_STEP}
#: Of the largest slope. Differences are good to 1e-10; statistics that a normalisation keeps are f32.
_TOLERANCE = 1e-6


def check(native: NativeRunner, forward: OpDesc, backward: OpDesc, args: dict[int, Array]) -> None:
    """Raise AssertionError unless gradients of elements drawn at random are the slopes at them."""
    rng = np.random.default_rng(5)
    errors = rng.standard_normal(forward.memories()[Arg.DST].dims)
    for arg, gradient in gradients(native, forward, backward, args, errors).items():
        assert gradient.shape == args[arg].shape

        def moved(values: Array, arg: int = arg) -> Array:
            return computed(native, forward, {**args, arg: values})[Arg.DST]

        for _ in range(_MOVED if gradient.size else 0):
            index = tuple(int(rng.integers(size)) for size in gradient.shape)
            slope = numeric_derivative(moved, args[arg], errors, index, _STEPS.get(Arg(arg), STEP))
            limit = _TOLERANCE * max(1.0, np.abs(gradient).max())
            assert abs(gradient[index] - slope) <= limit, f"{backward}: {gradient[index]}, not {slope} at {index}"


@pytest.mark.parametrize(("kind", "prop"), BACKWARD)
@pytest.mark.one_in(8)
def test_gradients_are_slopes(native: NativeRunner, kind: str, prop: str) -> None:
    for forward, backward in pairs(kind, prop):
        check(native, forward, backward, ordinary(forward))


def test_gradients_of_every_function_are_slopes(native: NativeRunner) -> None:
    """Of each algorithm that has a slope, from src and where it can be from dst."""
    md = MemoryDesc((3, 5), "f64")
    parameters = {"clip": (-0.5, 0.75), "clip_v2": (-0.5, 0.75), "pow": (1.5, 2.5)}
    for algorithm in (name for name in ELTWISE_ALGORITHMS if name not in STEP_ALGORITHMS):
        alpha, beta = parameters.get(algorithm, (0.5, 0.75))
        forward = Eltwise(md, md, algorithm, alpha, beta, "forward_training")
        args = ordinary(forward)
        if algorithm in ("sqrt", "log", "pow"):
            args[Arg.SRC] = np.abs(args[Arg.SRC]) + 0.1
        elif algorithm in ("asin", "acos"):
            args[Arg.SRC] = 0.9 * np.tanh(args[Arg.SRC])
        for use_dst in (False, True) if algorithm in FROM_DST else (False,):
            backward = Eltwise(md, md, algorithm, alpha, beta, "backward_data", use_dst=use_dst)
            check(native, forward, backward, args)
