"""Primitive attributes: quantisation, post-operations applied before the result is stored, and modes of computing."""

from __future__ import annotations

from collections.abc import Sequence
from math import copysign
from typing import Any, Final

from poolrt.cachestore.deferred_dataclass import dataclass, field

from .args import post_op_src
from .data_type import data_type
from .memory_desc import MemoryDesc
from .quantisation import KINDS, Quantisation
from .typed import Signed, Typed, to_float, without_sign

ELTWISE_ALGORITHMS: Final = (
    "relu", "tanh", "elu", "square", "abs", "sqrt", "linear", "logistic", "exp", "log", "clip", "clip_v2", "gelu_erf",
    "gelu_tanh", "hardswish", "hardsigmoid", "softplus", "swish", "mish", "pow", "round", "floor", "ceil", "trunc", "erf",
    "sin", "cos", "softsign", "tan", "atan", "asin", "acos", "sign", "threshold",
)  # fmt: skip
#: Functions that are constant between their steps.
STEP_ALGORITHMS: Final = ("round", "floor", "ceil", "trunc", "sign")
BINARY_ALGORITHMS: Final = (
    "add", "sub", "mul", "div", "max", "min", "ge", "gt", "le", "lt", "eq", "ne", "and", "or", "xor", "mod", "fmod",
    "floor_div", "trunc_div", "pow",
)  # fmt: skip
_ALGORITHMS: Final = {"eltwise": ELTWISE_ALGORITHMS, "binary": BINARY_ALGORITHMS, "sum": ("",)}
POST_OP_KINDS: Final = tuple(_ALGORITHMS)
FPMATH_MODES: Final = ("strict", "bf16", "f16", "any")
SCRATCHPAD_MODES: Final = ("library", "user")
#: Kind and algorithm of the operations that compute other results, or other gradients, with -0.0 than with 0.0 -> for which
#: of alpha and beta. ``swish`` is not among them: its alpha is the factor of an exponent.
_SIGNED: Final = {
    **dict.fromkeys([("eltwise", name) for name in ("relu", "elu", "softplus")], ("alpha",)),
    **dict.fromkeys(
        [("eltwise", name) for name in ("linear", "clip", "clip_v2", "pow", "hardswish", "hardsigmoid")], ("alpha", "beta")
    ),
    ("sum", ""): ("alpha", "beta"),
}  # fmt: skip
#: Most jobs of a parallel region that a user may ask for.
MAX_JOBS: Final = 4096
#: oneDNN's limit for the length of a chain.
MAX_POST_OPS: Final = 32


def eltwise_algorithm(name: str) -> str:
    """Return an eltwise algorithm's own name: ``softplus`` for oneDNN's ``soft_relu``."""
    return "softplus" if name == "soft_relu" else name


def drop_signs(op: Any) -> None:
    """Drop the sign of a zero from alpha and beta of an operation or post-op if its results do not depend on it."""
    alpha, beta = op.alpha, op.beta
    if (alpha == 0.0 and copysign(1.0, alpha) < 0.0) or (beta == 0.0 and copysign(1.0, beta) < 0.0):
        signed = _SIGNED.get((op.kind, op.algorithm), ())
        for name, value in (("alpha", alpha), ("beta", beta)):
            if name not in signed:
                object.__setattr__(op, name, without_sign(value))


@dataclass(frozen=True, slots=True)
class PostOp(Typed):
    """One step of the chain: ``eltwise`` (algorithm, alpha, beta), ``binary`` (algorithm, second source) or ``sum``.

    A sum adds alpha * (dst - beta) with dst's former content, read as ``dtype`` if given: see `accumulate`.
    """

    kind: str
    algorithm: str
    alpha: Signed = 0.0
    beta: Signed = 0.0
    src1: MemoryDesc | None = None
    dtype: str = ""

    def __post_init__(self) -> None:
        if self.kind not in POST_OP_KINDS:
            raise ValueError(f"kind: unknown post-op kind {self.kind!r}; known: {', '.join(POST_OP_KINDS)}")
        if self.kind == "eltwise":
            object.__setattr__(self, "algorithm", eltwise_algorithm(self.algorithm))
        known = _ALGORITHMS[self.kind]
        if self.algorithm not in known:
            raise ValueError(f"algorithm: unknown {self.kind} algorithm {self.algorithm!r}; known: {', '.join(known)}")
        drop_signs(self)
        if (self.src1 is not None) != (self.kind == "binary"):
            raise ValueError("src1: expect one for a binary post-op, none for another")
        if self.dtype:
            if self.kind != "sum":
                raise ValueError("dtype: only a sum post-op has a data type")
            object.__setattr__(self, "dtype", data_type(self.dtype))

    @classmethod
    def accumulate(cls, scale: float = 1.0, zero_point: int = 0, dtype: str = "") -> PostOp:
        """Return the sum post-op: add scale * (dst - zero_point) with dst's former content."""
        numbers = (to_float("scale", scale, "PostOp"), to_float("zero_point", zero_point, "PostOp"))
        return cls("sum", "", *numbers, None, dtype)

    def fields(self) -> dict[str, object]:
        """Return the named fields for a key."""
        return {
            "kind": self.kind,
            "algorithm": self.algorithm,
            "alpha": self.alpha,
            "beta": self.beta,
            "src1": self.src1.fields() if self.src1 else None,
            "dtype": self.dtype,
        }


@dataclass(frozen=True, slots=True)
class PrimitiveAttr(Typed):
    """Attributes of a primitive.

    ``post_ops`` are applied in order. ``scales`` multiply sources and divide dst; ``zero_points`` are subtracted from
    sources and added to dst. ``fpmath_mode`` names the data types that factors of f32 may be rounded to (``strict``: none), if
    that is faster; weights left open are then described in that type. ``scratchpad_mode`` names the
    provider of scratch memory (``user``: the argument `Arg.SCRATCHPAD`); ``deterministic`` requires equal results of
    equal runs. ``jobs`` is the number of jobs that a parallel region is cut into on a CPU, unless its work is short; 0: the
    number of the process, or else the threadpool's. Raises ValueError naming the argument.
    """

    post_ops: tuple[PostOp, ...] = ()
    scales: tuple[Quantisation, ...] = ()
    zero_points: tuple[Quantisation, ...] = ()
    fpmath_mode: str = "strict"
    scratchpad_mode: str = "library"
    deterministic: bool = False
    jobs: int = 0
    #: Computed once: users often keep attributes and describe an operation with them many times.
    _hash: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if len(self.post_ops) > MAX_POST_OPS:
            raise ValueError(f"post_ops: at most {MAX_POST_OPS}, got {len(self.post_ops)}")
        for name in KINDS:
            chosen = getattr(self, name)
            object.__setattr__(self, name, _by_argument(name, chosen) if chosen else ())
        for name, known in (("fpmath_mode", FPMATH_MODES), ("scratchpad_mode", SCRATCHPAD_MODES)):
            if getattr(self, name) not in known:
                raise ValueError(f"{name}: unknown {getattr(self, name)!r}; known: {', '.join(known)}")
        if not 0 <= self.jobs <= MAX_JOBS:
            raise ValueError(f"jobs: expect 0 to {MAX_JOBS}, got {self.jobs}")
        modes = self.fpmath_mode, self.scratchpad_mode, self.deterministic, self.jobs
        object.__setattr__(self, "_hash", hash((self.post_ops, self.scales, self.zero_points, modes)))

    def __hash__(self) -> int:
        return self._hash

    def __reduce__(self) -> tuple[Any, ...]:
        # Hashes of text differ between processes.
        return PrimitiveAttr, tuple(getattr(self, name) for name in self.__match_args__)

    @property
    def is_plain(self) -> bool:
        """Whether there are neither scales nor zero points."""
        return not (self.scales or self.zero_points)

    def memories(self, described: dict[int, MemoryDesc]) -> dict[int, MemoryDesc]:
        """Return the memory descriptors of all arguments that attributes add to those of an operation.

        Constant scales and zero points are no arguments. Raises ValueError for scales or zero points of an argument that the
        operation does not have, and for a wrong number of them.
        """
        extra = {post_op_src(i): p.src1 for i, p in enumerate(self.post_ops) if p.src1 is not None}
        for name, kind in KINDS.items():
            for item in getattr(self, name):
                if item.arg not in described:
                    raise ValueError(f"{name}: the operation has no argument {item.arg}")
                desc = item.desc(described[item.arg], kind.dtype)
                if not item.values:
                    extra[kind.argument(item.arg)] = desc
                elif len(item.values) != desc.elements:
                    raise ValueError(
                        f"{name}: expect {desc.elements} values for argument {item.arg} with mask {item.mask:#x}, "
                        f"got {len(item.values)}"
                    )
        return extra

    def fields(self) -> dict[str, object]:
        """Return the named fields for a key."""
        return {
            "post_ops": tuple(p.fields() for p in self.post_ops),
            "scales": tuple((q.arg, q.mask, q.values) for q in self.scales),
            "zero_points": tuple((q.arg, q.mask, q.values) for q in self.zero_points),
            "fpmath_mode": self.fpmath_mode,
            "scratchpad_mode": self.scratchpad_mode,
            "deterministic": self.deterministic,
            "jobs": self.jobs,
        }


def _by_argument(name: str, chosen: Sequence[Quantisation]) -> tuple[Quantisation, ...]:
    if len({item.arg for item in chosen}) != len(chosen):
        raise ValueError(f"{name}: an argument is named twice")
    return tuple(sorted((item.of(name) for item in chosen), key=lambda item: item.arg))
