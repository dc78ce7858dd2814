"""Names that other libraries give to operations of graphs, and what poolrt calls them, for messages about mistakes."""

from __future__ import annotations

from typing import Final

from poolrt.spelling import hint
from poolrt.workers.desc.attributes import ELTWISE_ALGORITHMS

_RUNS: Final = "load the graph and run the model: pool.load(graph).run(...)"
_CONVOLUTION: Final = "convolution(x, weights, bias)"
_DECONVOLUTION: Final = "deconvolution(x, weights, bias)"
_PRODUCT: Final = "inner_product(x, weights, bias)"
_MAX_POOLING: Final = "pooling(x, 'max', kernel)"
_POOLING: Final = "pooling(x, 'avg_exclude_padding', kernel)"
_INPUT: Final = "input(name, shape)"

#: A name that `Graph` does not have -> what to write instead.
_OPERATIONS: Final = {
    **{name: f"eltwise(x, {name!r})" for name in ELTWISE_ALGORITHMS},
    **dict.fromkeys(("sigmoid", "expit"), "eltwise(x, 'logistic')"),
    **dict.fromkeys(("silu",), "eltwise(x, 'swish')"),
    "gelu": "eltwise(x, 'gelu_erf')", "leaky_relu": "eltwise(x, 'relu', alpha=0.01)", "relu6": "eltwise(x, 'clip', 0, 6)",
    **{name: f"binary(a, b, {name!r})" for name in ("add", "sub", "mul", "div", "ge", "gt", "le", "lt", "eq", "ne")},
    "subtract": "binary(a, b, 'sub')", "multiply": "binary(a, b, 'mul')", "divide": "binary(a, b, 'div')",
    "maximum": "binary(a, b, 'max')", "minimum": "binary(a, b, 'min')", "power": "binary(a, b, 'pow')",
    **{name: f"reduction(x, {name!r}, axes)" for name in ("mean", "max", "min")},
    "prod": "reduction(x, 'mul', axes)", "norm": "reduction(x, 'norm_lp_sum', axes)",
    **dict.fromkeys(("conv", "conv1d", "conv2d", "conv3d"), _CONVOLUTION),
    **dict.fromkeys(("conv_transpose", "conv_transpose2d", "deconv"), _DECONVOLUTION),
    **dict.fromkeys(("linear", "dense", "gemm", "fc", "fully_connected"), _PRODUCT),
    **dict.fromkeys(("dot", "mm", "bmm"), "matmul(a, b)"),
    **dict.fromkeys(("max_pool", "max_pool2d", "maxpool"), _MAX_POOLING),
    **dict.fromkeys(("avg_pool", "avg_pool2d", "avgpool", "average_pool"), _POOLING),
    "batch_norm": "batch_normalization", "layer_norm": "layer_normalization", "group_norm": "group_normalization",
    **dict.fromkeys(("scaled_dot_product_attention", "sdpa", "multihead_attention"), "attention(query, key, value)"),
    "rms_norm": "rms_normalization",
    **dict.fromkeys(("take", "embedding", "index_select"), "gather(x, indices, axis)"),
    "topk": "top_k(x, k, axis)", "cumsum": "cumulative_sum(x, axis)", "argmax": "arg_max(x, axis)", "argmin": "arg_min(x, axis)",
    "fft": "dft(x, axis)", "ifft": "dft(x, axis, inverse=True)", "rfft": "dft(x, axis, one_sided=True)",
    "irfft": "dft(x, axis, inverse=True, one_sided=True)",
    "repeat": "tile(x, repeats)", "pixel_shuffle": "depth_to_space(x, block_size, 'CRD')",
    "pixel_unshuffle": "space_to_depth(x, block_size)",
    **dict.fromkeys(("scatter", "scatter_add", "put_along_axis"), "scatter_elements(x, indices, updates, axis)"),
    **dict.fromkeys(("nonzero", "argwhere"), "non_zero(x)"), "where": "select(condition, a, b)",
    "take_along_axis": "gather_elements(x, indices, axis)",
    "log_softmax": "softmax(x, axis, algorithm='log')", "cat": "concat(xs, axis)", "concatenate": "concat(xs, axis)",
    "flatten": "reshape(x, shape)", "view": "reshape(x, shape)", "permute": "transpose(x, perm)",
    "cast": "reorder(x, dtype=...)", "astype": "reorder(x, dtype=...)", "interpolate": "resampling(x, ...)",
    "upsample": "resampling(x, ...)", "placeholder": _INPUT, "add_input": _INPUT, "parameter": "constant(array)",
    "add_output": "output(name, value)", "outputs_": "output(name, value)",
    **dict.fromkeys(("run", "predict", "forward", "compile", "execute", "eval"), _RUNS),
}  # fmt: skip

#: An algorithm that an operation does not have -> those that compute the same.
_ALGORITHMS: Final = {
    "sigmoid": ("logistic",), "silu": ("swish",), "gelu": ("gelu_erf", "gelu_tanh"), "leaky_relu": ("relu",),
    "plus": ("add",), "subtract": ("sub",), "minus": ("sub",), "multiply": ("mul",), "times": ("mul",), "divide": ("div",),
    "maximum": ("max",), "minimum": ("min",), "avg": ("mean", "avg_exclude_padding"), "prod": ("mul",),
    "average": ("mean", "avg_exclude_padding"), "mean": ("avg_exclude_padding",), "hard_swish": ("hardswish",),
}  # fmt: skip


def describe_operation(name: str, known: list[str]) -> str:
    """Return the message for an attribute that a graph does not have."""
    found = _OPERATIONS.get(name.lower())
    if found is not None:
        advice = f"; {found}" if found is _RUNS else f"; write {found}"
    else:
        advice = hint(name, known) or f"; its operations: {', '.join(known)}"
    return f"a Graph has no {name!r}{advice}"


def suggest_algorithm(name: str, known: list[str]) -> str:
    """Return the end of a message about an unknown algorithm: one that computes the same, or the nearest name."""
    for each in _ALGORITHMS.get(name.lower(), ()):
        if each in known:
            return f"; {name!r} is {each!r} here"
    return hint(name, known)
