"""The text of verbose lines about a primitive, in oneDNN's fields and words (verbose format v1, ``src/common/verbose.cpp``).

Engine, kind, implementation, propagation kind, memories, attributes and problem. Fields contain no comma; spaces separate
the parts of one. Attributes begin with ``attr-``. The same field then has the parameters of the operation, which are a
field of their own in oneDNN, such as ``alg:eltwise_relu``, and epsilon and the like. Unlike oneDNN's, a line has all
memories that there are, each with the name of its argument.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from ..desc import Arg, MemoryDesc, OpDesc, PostOp, PrimitiveAttr, Quantisation
from ..desc.quantisation import KINDS

if TYPE_CHECKING:
    from ..implementations.primitive_desc import PrimitiveDesc

#: Argument -> its name in lines, in the order of lines.
_NAMES: Final = {
    Arg.SRC: "src", Arg.SRC_1: "src1", Arg.SRC_2: "src2", Arg.DIFF_SRC: "diff_src",
    Arg.WEIGHTS: "wei", Arg.WEIGHTS_1: "wei1", Arg.WEIGHTS_2: "wei2", Arg.BIAS: "bia",
    Arg.DIFF_WEIGHTS: "diff_wei", Arg.DIFF_BIAS: "diff_bia", Arg.DST: "dst", Arg.DST_1: "dst1", Arg.DST_2: "dst2",
    Arg.DIFF_DST: "diff_dst", Arg.MEAN: "mean", Arg.VARIANCE: "var", Arg.SCALE: "scale", Arg.SHIFT: "shift",
    Arg.DIFF_SCALE: "diff_scale", Arg.DIFF_SHIFT: "diff_shift", Arg.WORKSPACE: "ws",
}  # fmt: skip
_ORDER: Final = {int(arg): place for place, arg in enumerate(_NAMES)}
#: The same for operations over time.
_RECURRENT: Final = {
    Arg.SRC: "src_layer", Arg.SRC_1: "src_iter", Arg.SRC_2: "src_iter_c", Arg.WEIGHTS: "wei_layer",
    Arg.WEIGHTS_1: "wei_iter", Arg.WEIGHTS_2: "wei_peephole", Arg.BIAS: "bias",
    Arg.DST: "dst_layer", Arg.DST_1: "dst_iter", Arg.DST_2: "dst_iter_c",
}  # fmt: skip
#: Their cells; a GRU with linear_before_reset is an ``lbr_gru``.
_CELLS: Final = {"rnn": "vanilla_rnn", "lstm": "vanilla_lstm", "gru": "vanilla_gru"}
#: Flag of a normalisation -> its letter.
_FLAGS: Final = {"use_global_stats": "G", "use_scale": "C", "use_shift": "H", "fuse_norm_relu": "R", "rms_norm": "M"}
#: Field of an operation -> the name of the parameter in lines.
_PARAMETERS: Final = {
    "algorithm": "alg", "alpha": "alpha", "beta": "beta", "k": "k", "p": "p", "eps": "eps", "epsilon": "epsilon",
    "axis": "axis", "group_size": "group", "scales": "scales", "use_dst": "use_dst",
}  # fmt: skip
#: Characters of a long field: a line must fit into the bytes that pipes take in one piece (`select.PIPE_BUF`).
_LONGEST: Final = 900


def describe_primitive(pd: PrimitiveDesc, index: int = 0) -> str:
    """Return the fields of a primitive, separated by commas: all but the operation of the line and its time.

    ``index`` is that of the engine that executes it, shown if it is not 0. A field is cut at 900 characters, with dots at its
    end.
    """
    op = pd.op
    return ",".join(
        (
            _engine(pd, index),
            op.kind,
            pd.impl_name(),
            getattr(op, "prop", "undef"),
            _shortened(_memories(op)),
            _shortened(" ".join((*_attributes(pd.attr, op), *_auxiliary(op)))),
            _shortened(_PROBLEMS.get(op.kind, _all_dims)(op)),
        )
    )


def _engine(pd: PrimitiveDesc, index: int) -> str:
    """Return the kind of the engine and its index, of a reorder between two kinds both kinds."""
    kinds = getattr(pd.op, "src_engine", ""), getattr(pd.op, "dst_engine", "")
    if kinds[0] != kinds[1]:
        return "2".join(kinds)
    return f"{pd.target.engine_kind}:{index}" if index else pd.target.engine_kind


def _shortened(field: str) -> str:
    return field if len(field) <= _LONGEST else field[: _LONGEST - 3] + "..."


def _memories(op: OpDesc) -> str:
    described = sorted(op.memories().items(), key=lambda item: _ORDER.get(int(item[0]), -1))
    return " ".join(f"{_name(arg, op)}:{_memory(desc)}{_spread(arg, desc, op)}" for arg, desc in described)


def _name(arg: int, op: OpDesc) -> str:
    if op.kind == "call" and arg >= Arg.MULTIPLE_DST:
        return f"dst{arg - Arg.MULTIPLE_DST}"
    if arg >= Arg.MULTIPLE_SRC:
        return f"src{arg - Arg.MULTIPLE_SRC}"
    names = {**_NAMES, **_RECURRENT} if op.kind in _CELLS else _NAMES
    return names[Arg(arg)]


def _memory(desc: MemoryDesc) -> str:
    """Return data type, ``p`` if the layout pads, order in memory, strides if the layout has them, no extra flags."""
    order = "".join(chr(ord("a") + dim) for dim in desc.layout.order) if desc.strides else desc.tag
    return f"{desc.dtype}:{'p' * (desc.padded_dims != desc.dims)}:blocked:{order}:{_dims(desc.strides)}:f0"


def _spread(arg: int, desc: MemoryDesc, op: OpDesc) -> str:
    """Return the dimensions along which the bias of a product varies: the others are spread over the result."""
    if op.kind != "matmul" or arg != Arg.BIAS:
        return ""
    return f"_mask{sum(1 << dim for dim, size in enumerate(desc.dims) if size != 1)}"


def _attributes(attr: PrimitiveAttr, op: OpDesc) -> list[str]:
    parts = []
    if attr.scratchpad_mode != "library":
        parts.append(f"attr-scratchpad:{attr.scratchpad_mode}")
    if attr.fpmath_mode != "strict":
        parts.append(f"attr-fpmath:{attr.fpmath_mode}")
    if attr.deterministic:
        parts.append("attr-deterministic:1")
    if attr.jobs:
        parts.append(f"attr-jobs:{attr.jobs}")
    for name, chosen in (("scales", attr.scales), ("zero_points", attr.zero_points)):
        if chosen:
            items = "+".join(_quantisation(item, KINDS[name].dtype) for item in chosen)
            parts.append(f"attr-{name.replace('_', '-')}:{items}")
    if attr.post_ops:
        dims = op.memories()[op.outputs()[0]].dims
        parts.append("attr-post-ops:" + "+".join(_post_op(step, dims) for step in attr.post_ops))
    return parts


def _quantisation(item: Quantisation, dtype: str) -> str:
    if item.arg >= Arg.MULTIPLE_SRC:
        name = f"msrc{item.arg - Arg.MULTIPLE_SRC}"
    else:
        name = "src0" if item.arg == Arg.SRC else _NAMES[Arg(item.arg)]
    return f"{name}:{item.mask}:{dtype}" + (":constant" if item.values else "")


def _post_op(step: PostOp, dims: Sequence[int]) -> str:
    """Return algorithm and parameters of a post-op, without defaults at the end."""
    if step.src1 is not None:
        mask = sum(
            1 << i for i, (own, whole) in enumerate(zip(step.src1.dims, dims, strict=False)) if own == whole != 1
        )
        return f"binary_{step.algorithm}:{step.src1.dtype}:{mask}:{step.src1.tag}"
    if step.kind == "sum":
        fields: tuple[str, ...] = ("sum", f"{step.alpha:g}", f"{step.beta:g}", step.dtype)
        defaults: tuple[bool, ...] = (step.alpha == 1, not step.beta, not step.dtype)
    else:
        fields = f"eltwise_{step.algorithm}", f"{step.alpha:g}", f"{step.beta:g}"
        defaults = (not step.alpha, not step.beta)
    last = max((place for place, is_default in enumerate(defaults, 1) if not is_default), default=0)
    return ":".join(fields[: last + 1])


def _auxiliary(op: Any) -> list[str]:
    if op.kind in _CELLS:
        return _cells(op)
    parts = [f"alg:{op.kind}_direct"] if op.kind in ("convolution", "deconvolution") else []
    if op.kind.endswith("_normalization"):
        parts.append("flags:" + "".join(letter for flag, letter in _FLAGS.items() if flag in op.flags))
    for field, name in _PARAMETERS.items():
        value: Any = getattr(op, field, None)
        if value is None or value is False or value == ():
            continue
        if field == "algorithm":
            value = f"{op.kind}_{value}"
        elif isinstance(value, tuple):
            value = "+".join(f"{item:g}" for item in value)
        elif isinstance(value, float):
            value = f"{value:g}"
        parts.append(f"{name}:{'true' if value is True else value}")
    return parts


def _cells(op: Any) -> list[str]:
    cell = "lbr_gru" if getattr(op, "linear_before_reset", False) else _CELLS[op.kind]
    direction = op.direction if op.direction.startswith("bi") else f"unidirectional_{op.direction}"
    activation = f"eltwise_{op.activation}" if op.kind == "rnn" else "undef"
    slope = [f"alpha:{op.alpha:g}"] if getattr(op, "alpha", 0.0) else []
    limit = [f"clip:{op.clip:g}"] if op.clip else []
    return [f"alg:{cell}", f"direction:{direction}", f"activation:{activation}", *slope, *limit, "flags:"]


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
    return f"{groups}mb{op.src.dims[0]}_ic{op.src.dims[1]}oc{op.dst.dims[1]}{_window(op, op.weights.dims[2:])}"


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


#: Kind -> the description of its problem; the default is the dimensions of its sources.
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
    "sum": lambda op: _dims(op.dst.dims),
    "rnn": _recurrent,
    "lstm": _recurrent,
    "gru": _recurrent,
}
