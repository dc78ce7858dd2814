"""Results and gradients of implementations are PyTorch's, where that is installed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from poolrt.workers.desc import (
    Arg,
    BatchNormalization,
    Convolution,
    Eltwise,
    InnerProduct,
    LayerNormalization,
    OpDesc,
    Pooling,
    Softmax,
)
from tests.workers.native_runner import NativeRunner

from .gradients import BACKWARD, Array, computed, gradients, ordinary, pairs


def forward_in_torch(torch: Any, op: OpDesc, given: dict[int, Any]) -> Any:
    """Return dst of an operation as PyTorch computes it, or None where it has no such operation."""
    nn, src = torch.nn.functional, given[Arg.SRC]
    match op:
        case Convolution():
            convolve = (nn.conv1d, nn.conv2d, nn.conv3d)[src.ndim - 3]
            dilations = [d + 1 for d in op.dilations]
            padded = nn.pad(src, _pads(op))
            return convolve(padded, given[Arg.WEIGHTS], given.get(Arg.BIAS), op.strides, 0, dilations, op.groups)
        case InnerProduct():
            return nn.linear(src.flatten(1), given[Arg.WEIGHTS].flatten(1), given.get(Arg.BIAS))
        case Pooling(algorithm="max"):
            pool = (nn.max_pool1d, nn.max_pool2d, nn.max_pool3d)[src.ndim - 3]
            dilations = [d + 1 for d in op.dilations]
            return pool(nn.pad(src, _pads(op), value=-torch.inf), op.kernel, op.strides, 0, dilations)
        case Pooling() if not any(op.dilations):
            average = (nn.avg_pool1d, nn.avg_pool2d, nn.avg_pool3d)[src.ndim - 3]
            inside = nn.pad(torch.ones_like(src), _pads(op))
            total = average(nn.pad(src, _pads(op)), op.kernel, op.strides)
            return total / average(inside, op.kernel, op.strides) if "exclude" in op.algorithm else total
        case Eltwise():
            functions: dict[str, Any] = {
                "relu": lambda: nn.leaky_relu(src, op.alpha),
                "gelu_erf": lambda: nn.gelu(src),
                "clip_v2": lambda: torch.clamp(src, op.alpha, op.beta),
                "logistic": lambda: torch.sigmoid(src),
                "linear": lambda: op.alpha * src + op.beta,
                "square": lambda: src**2,
            }
            return functions[op.algorithm]()
        case Softmax():
            return (nn.log_softmax if op.algorithm == "log" else nn.softmax)(src, op.axis)
        case BatchNormalization():
            own = "use_global_stats" not in op.flags
            statistics = (None, None) if own else (given[Arg.MEAN], given[Arg.VARIANCE])
            scaled = nn.batch_norm(src, *statistics, given.get(Arg.SCALE), given.get(Arg.SHIFT), own, 0.0, op.epsilon)
            return torch.relu(scaled) if "fuse_norm_relu" in op.flags else scaled
        case LayerNormalization() if "use_global_stats" not in op.flags:
            return nn.layer_norm(src, src.shape[-1:], given.get(Arg.SCALE), given.get(Arg.SHIFT), op.epsilon)
        case _:
            return None


def _pads(op: Convolution | Pooling) -> list[int]:
    """Return paddings as PyTorch takes them: the last dimension first."""
    return [pad for sides in reversed(list(zip(op.padding_l, op.padding_r, strict=True))) for pad in sides]


@pytest.mark.parametrize(("kind", "prop"), BACKWARD)
def test_results_and_gradients_are_those_of_pytorch(native: NativeRunner, kind: str, prop: str) -> None:
    torch: Any = pytest.importorskip("torch")
    compared = 0
    for forward, backward in pairs(kind, prop):
        if 0 in forward.memories()[Arg.DST].dims:
            continue
        args = ordinary(forward)
        given = {
            arg: torch.tensor(values, requires_grad=arg not in (Arg.MEAN, Arg.VARIANCE)) for arg, values in args.items()
        }
        dst = forward_in_torch(torch, forward, given)
        if dst is None:
            continue
        errors = np.random.default_rng(5).standard_normal(tuple(dst.shape))
        dst.backward(torch.tensor(errors))
        np.testing.assert_allclose(computed(native, forward, args)[Arg.DST], dst.detach().numpy(), 1e-9, 1e-9)
        for arg, gradient in gradients(native, forward, backward, args, errors).items():
            assert_gradient(gradient, given[arg].grad.numpy())
        compared += 1
    assert compared >= 2


def assert_gradient(got: Array, want: Array) -> None:
    """Raise AssertionError unless gradients agree as far as statistics in f32 can tell."""
    np.testing.assert_allclose(got, want, 1e-5, 1e-6)
