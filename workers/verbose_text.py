"""What verbose lines say of a primitive, in oneDNN's words: engine, kind, implementation, memories, attributes, problem.

Fields hold no comma; parts of one are separated by spaces. Attributes begin with ``attr-``; behind them, in the same
field, stand the parameters of the operation that oneDNN calls auxiliary, such as ``alg:eltwise_relu``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from .desc import Arg, MemoryDesc, OpDesc, PostOp, PrimitiveAttr, Quantisation
from .primitives.primitive_desc import PrimitiveDesc

#: Argument -> its name in lines, in the order in which they are listed.
_NAMES: Final = {
    Arg.SRC: "src", Arg.SRC_1: "src1", Arg.SRC_2: "src2", Arg.DIFF_SRC: "diff_src",
    Arg.WEIGHTS: "wei", Arg.WEIGHTS_1: "wei1", Arg.WEIGHTS_2: "wei2", Arg.BIAS: "bia",
    Arg.DIFF_WEIGHTS: "diff_wei", Arg.DIFF_BIAS: "diff_bia", Arg.DST: "dst", Arg.DST_1: "dst1", Arg.DST_2: "dst2",
    Arg.DIFF_DST: "diff_dst", Arg.MEAN: "mean", Arg.VARIANCE: "var", Arg.SCALE: "scale", Arg.SHIFT: "shift",
    Arg.DIFF_SCALE: "diff_scale", Arg.DIFF_SHIFT: "diff_shift", Arg.WORKSPACE: "ws",
}  # fmt: skip
_ORDER: Final = {int(arg): place for place, arg in enumerate(_NAMES)}
#: Parameters that are told, by the name of the operation's field -> what they are called.
_PARAMETERS: Final = {
    "algorithm": "alg", "activation": "activation", "alpha": "alpha", "beta": "beta", "k": "k", "p": "p", "eps": "eps",
    "epsilon": "epsilon", "axis": "axis", "group_size": "group", "flags": "flags", "direction": "direction",
    "scales": "scales", "linear_before_reset": "linear_before_reset", "use_dst": "use_dst",
}  # fmt: skip


def described(pd: PrimitiveDesc) -> str:
    """Return the fields of a primitive, separated by commas: all but the operation of the line and its time."""
    op = pd.op
    return ",".join(
        (
            pd.target.engine_kind,
            op.kind,
            pd.impl_name(),
            getattr(op, "prop", "undef"),
            _memories(op),
            " ".join((*_attributes(pd.attr, op), *_parameters(op))),
            _PROBLEMS.get(op.kind, _all_dims)(op),
        )
    )


def _memories(op: OpDesc) -> str:
    described = sorted(op.memories().items(), key=lambda item: _ORDER.get(int(item[0]), -1))
    return " ".join(f"{_name(arg)}_{_memory(desc)}" for arg, desc in described)


def _name(arg: int) -> str:
    if arg >= Arg.MULTIPLE_SRC:
        return f"src{arg - Arg.MULTIPLE_SRC}"
    return _NAMES[Arg(arg)]


def _memory(desc: MemoryDesc) -> str:
    """Return data type, ``p`` where the layout pads, order in memory, strides where only they tell it, no extra flags."""
    order = "".join(chr(ord("a") + dim) for dim in desc.layout.order) if desc.strides else desc.tag
    return f"{desc.dtype}:{'p' * (desc.padded_dims != desc.dims)}:blocked:{order}:{_dims(desc.strides)}:f0"


def _attributes(attr: PrimitiveAttr, op: OpDesc) -> list[str]:
    parts = []
    if attr.scratchpad_mode != "library":
        parts.append(f"attr-scratchpad:{attr.scratchpad_mode}")
    if attr.fpmath_mode != "strict":
        parts.append(f"attr-fpmath:{attr.fpmath_mode}")
    if attr.deterministic:
        parts.append("attr-deterministic:true")
    for name, chosen in (("scales", attr.scales), ("zero-points", attr.zero_points)):
        if chosen:
            parts.append(f"attr-{name}:" + "+".join(_quantisation(item) for item in chosen))
    if attr.post_ops:
        dims = op.memories()[op.outputs()[0]].dims
        parts.append("attr-post-ops:" + "+".join(_post_op(step, dims) for step in attr.post_ops))
    return parts


def _quantisation(item: Quantisation) -> str:
    return f"{_name(item.arg)}:{item.mask}" + (":constant" if item.values else "")


def _post_op(step: PostOp, dims: Sequence[int]) -> str:
    if step.src1 is not None:
        mask = sum(
            1 << i for i, (own, whole) in enumerate(zip(step.src1.dims, dims, strict=False)) if own == whole != 1
        )
        return f"binary_{step.algorithm}:{step.src1.dtype}:{mask}:{step.src1.tag}"
    if step.kind == "sum":
        return _numbered("sum", step.alpha, step.beta, (1.0, 0.0)) + (f":{step.dtype}" if step.dtype else "")
    return _numbered(f"eltwise_{step.algorithm}", step.alpha, step.beta, (0.0, 0.0))


def _numbered(name: str, alpha: float, beta: float, usual: tuple[float, float]) -> str:
    return name if (alpha, beta) == usual else f"{name}:{alpha:g}:{beta:g}"


def _parameters(op: OpDesc) -> list[str]:
    parts = []
    for field, name in _PARAMETERS.items():
        value: Any = getattr(op, field, None)
        if value is None or value is False or value == ():
            continue
        if field == "algorithm":
            value = f"{op.kind}_{value}"
        elif isinstance(value, tuple):
            value = "+".join(item if isinstance(item, str) else f"{item:g}" for item in value)
        elif isinstance(value, float):
            value = f"{value:g}"
        parts.append(f"{name}:{'true' if value is True else value}")
    return parts


def _dims(dims: Sequence[int]) -> str:
    return "x".join(map(str, dims))


def _all_dims(op: Any) -> str:
    """Return the dimensions of all sources, or of source and weights, apart by colons."""
    src = getattr(op, "srcs", None) or tuple(filter(None, (getattr(op, n, None) for n in ("src", "src0", "src1"))))
    return ":".join(_dims(desc.dims) for desc in (*src, *filter(None, (getattr(op, "weights", None),))))


def _one_dims(op: Any) -> str:
    return _dims(op.src.dims)


def _to_dims(op: Any) -> str:
    return f"{_dims(op.src.dims)}:{_dims(op.dst.dims)}"


def _channels(op: Any) -> str:
    """Return ``mb1ic64`` and the extents ``ih56iw56``."""
    batch, channels, *spatial = op.src.dims
    return f"mb{batch}ic{channels}" + "".join(f"i{axis}{n}" for axis, n in zip(_axes(spatial), spatial, strict=True))


def _weighted(op: Any) -> str:
    groups = f"g{op.groups}" if op.groups > 1 else ""
    return f"mb{op.src.dims[0]}_{groups}ic{op.src.dims[1]}oc{op.dst.dims[1]}{_window(op, op.weights.dims[2:])}"


def _pooled(op: Any) -> str:
    return f"mb{op.src.dims[0]}ic{op.src.dims[1]}{_window(op, op.kernel)}"


def _window(op: Any, kernel: Sequence[int]) -> str:
    """Return for each spatial dimension input, output, kernel, stride, dilation and the padding before it."""
    spatial = zip(
        _axes(kernel), op.src.dims[2:], op.dst.dims[2:], kernel, op.strides, op.dilations, op.padding_l, strict=True
    )
    return "".join(f"_i{x}{i}o{x}{o}k{x}{k}s{x}{s}d{x}{d}p{x}{p}" for x, i, o, k, s, d, p in spatial)


def _resampled(op: Any) -> str:
    spatial = zip(_axes(op.src.dims[2:]), op.src.dims[2:], op.dst.dims[2:], strict=True)
    return f"mb{op.src.dims[0]}ic{op.src.dims[1]}" + "".join(f"_i{x}{i}o{x}{o}" for x, i, o in spatial)


def _axes(spatial: Sequence[int]) -> Sequence[str]:
    return "dhw"[-len(spatial) :] if spatial else ""


def _recurrent(op: Any) -> str:
    steps, batch, channels = op.src_layer.dims
    layers, hidden = op.weights_layer.dims[0], op.weights_layer.dims[4]
    return f"l{layers}t{steps}mb{batch}sic{hidden}slc{channels}dhc{hidden}dic{op.dst_layer.dims[2]}"


#: Kind -> how its problem is described; the others by the dimensions of what they read.
_PROBLEMS: Final[dict[str, Callable[[Any], str]]] = {
    "convolution": _weighted,
    "deconvolution": _weighted,
    "pooling": _pooled,
    "inner_product": lambda op: f"{_channels(op)}oc{op.dst.dims[1]}",
    "batch_normalization": _channels,
    "group_normalization": lambda op: f"g{op.groups}{_channels(op)}",
    "lrn": lambda op: f"{_channels(op)}ls{op.local_size}beta{op.beta:g}",
    "resampling": _resampled,
    "reduction": _to_dims,
    "eltwise": _one_dims,
    "softmax": _one_dims,
    "reorder": _one_dims,
    "rnn": _recurrent,
    "lstm": _recurrent,
    "gru": _recurrent,
}
