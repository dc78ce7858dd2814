"""Eltwise: every algorithm in every layout, forward and backward, memory read and written once."""

from __future__ import annotations

from ...desc import Arg, Eltwise, PrimitiveAttr
from ...desc.attributes import STEP_ALGORITHMS
from ...engines.target import Target
from ...kernels.spec import KernelSpec
from ..program import Launch, LaunchArgument, Program
from .backward import NativeBackward, refuse_gradient
from .blocks import EVERY_TYPE, refuse, refuse_different, span
from .chain import chain, chain_source, refuse_chain
from .implementation import NativeImplementation
from .past_caches import streams
from .quantise import NativeQuantisedEltwise


class NativeEltwise(NativeImplementation[Eltwise]):
    """Runs of elements, 16 at a time; src and dst in the same layout, and of one data type if there are post-ops."""

    name = "native:eltwise"
    stays_inside = True

    def reject(self, op: Eltwise, attr: PrimitiveAttr, target: Target) -> str | None:
        if op.algorithm == "softplus" and op.alpha == 0.0:
            return "softplus divides by alpha, which is 0"
        op = self.complete(op, attr, target)
        if attr.post_ops and op.src.dtype != op.dst.dtype:
            return f"post-ops between {op.src.dtype} and {op.dst.dtype}"
        return (
            refuse(op.src, dtypes=EVERY_TYPE)
            or refuse(op.dst, dtypes=EVERY_TYPE)
            or refuse_different(op.src, op.dst)
            or refuse_chain(attr, op.dst)
        )

    def program(self, op: Eltwise, attr: PrimitiveAttr, target: Target) -> Program:
        if op.dst.elements == 0:
            return Program((), ())
        runs = span(op.dst)
        kernel = KernelSpec.of(
            "eltwise", algorithm=op.algorithm, src=op.src.dtype, dst=op.dst.dtype, chain=chain(attr),
            streams=streams(op.dst, target),
        )  # fmt: skip
        args = (
            ("m", (Arg.SRC, 0)), ("m", (Arg.DST, 0)), chain_source(attr), *runs.arguments(),
            ("f", float(op.alpha)), ("f", float(op.beta)),
        )  # fmt: skip
        return Program((kernel,), (Launch(0, args, runs.work),))


class NativeEltwiseBackward(NativeBackward[Eltwise]):
    """The same runs; src (or dst) and both gradients in one layout."""

    name = "native:eltwise_backward"

    def reject(self, op: Eltwise, attr: PrimitiveAttr, target: Target) -> str | None:
        if op.algorithm in STEP_ALGORITHMS:
            return f"{op.algorithm} has no gradient"
        op = self.complete(op, attr, target)
        return refuse_gradient(op, attr, op.dst if op.use_dst else op.src, op.diff_dst, op.diff_src)

    def program(self, op: Eltwise, attr: PrimitiveAttr, target: Target) -> Program:
        if op.dst.elements == 0:
            return Program((), ())
        runs = span(op.dst if op.use_dst else op.src)
        kernel = KernelSpec.of("eltwise_backward", algorithm=op.algorithm, from_result=op.use_dst)
        args: tuple[LaunchArgument, ...] = (
            ("m", (Arg.DST if op.use_dst else Arg.SRC, 0)), ("m", (Arg.DIFF_DST, 0)), ("m", (Arg.DIFF_SRC, 0)),
            *runs.arguments(), ("f", float(op.alpha)), ("f", float(op.beta)),
        )  # fmt: skip
        return Program((kernel,), (Launch(0, args, runs.work),))


IMPLEMENTATIONS = (NativeEltwise(), NativeQuantisedEltwise(), NativeEltwiseBackward())
