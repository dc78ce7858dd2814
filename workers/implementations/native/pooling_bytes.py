"""Maximum pooling of 8-bit integers with channels side by side, as integer convolutions have them."""

from __future__ import annotations

import math

from poolrt.cachestore.deferred_dataclass import replace

from ...desc import Arg, Pooling, PrimitiveAttr
from ...engines.target import Target
from ...kernels.spec import KernelSpec
from ..program import Launch, LaunchArgument, Program


class NativeBytePooling:
    """u8 or s8, 1 or 2 spatial dimensions, without a workspace."""

    name = "native:pooling_bytes"
    engine_kind = "cpu"
    general = False

    def reject(self, op: Pooling, attr: PrimitiveAttr, target: Target) -> str | None:
        if op.algorithm != "max" or attr.post_ops or op.src.ndims not in (3, 4):
            return "only the maximum in 1 or 2 spatial dimensions is supported, without post-ops"
        if op.src.dtype not in ("u8", "s8") or op.dst.dtype != op.src.dtype:
            return f"data types {op.src.dtype} and {op.dst.dtype}; only u8 or s8 is supported"
        op = self.complete(op, attr, target)
        last = f"a{'cd'[: op.src.ndims - 2]}b"
        if (op.src.tag, op.dst.tag) != (last, last):
            return f"layouts {op.src.tag} and {op.dst.tag}; only {last} is supported"
        return None

    def complete(self, op: Pooling, attr: PrimitiveAttr, target: Target) -> Pooling:
        last = f"a{'cd'[: op.src.ndims - 2]}b"
        src, dst = (md.with_tag(last) if md.is_any else md for md in (op.src, op.dst))
        return replace(op, src=src, dst=dst)

    def program(self, op: Pooling, attr: PrimitiveAttr, target: Target) -> Program:
        if math.prod(op.dst.dims) == 0:
            return Program((), ())
        missing = 4 - op.src.ndims

        def two(values: tuple[int, ...], fill: int) -> tuple[int, ...]:
            return (*(fill,) * missing, *values)

        dilations = tuple(d + 1 for d in op.dilations)
        sizes = (
            op.src.dims[1], *two(op.src.dims[2:], 1), *two(op.dst.dims[2:], 1), *two(op.kernel, 1), *two(op.strides, 1),
            *two(dilations, 1), *two(op.padding_l, 0),
        )  # fmt: skip
        args: tuple[LaunchArgument, ...] = (
            ("m", (int(Arg.SRC), 0)),
            ("m", (int(Arg.DST), 0)),
            *(("i", n) for n in sizes),
        )
        kernel = KernelSpec.of("pooling_bytes", signed=op.src.dtype == "s8")
        return Program((kernel,), (Launch(0, args, op.dst.dims[0] * two(op.dst.dims[2:], 1)[0]),))
