"""A case: an operation, its arguments, and the allowed error of its result; values to fill arguments."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from poolrt.workers.desc import Arg, MemoryDesc, OpDesc, PostOp, PrimitiveAttr, post_op_src
from poolrt.workers.desc.memory_desc import plain_tag

Array = NDArray[Any]


#: Half a unit in the last place of float32, relative.
EPSILON: Final = 2.0**-24


@dataclass(frozen=True)
class Case:
    """One problem: ``args`` by execution argument in logical dimensions, and the error allowed.

    A result is right where ``|got - want| <= atol + rtol * |want|``, and NaN and infinities agree.
    """

    name: str
    op: OpDesc
    args: dict[int, Array]
    attr: PrimitiveAttr = field(default_factory=PrimitiveAttr)
    rtol: float = 4 * EPSILON
    atol: float = 1e-30

    def __str__(self) -> str:
        return self.name

    def memories(self) -> dict[int, MemoryDesc]:
        """Return the memory descriptors of all arguments, post-op sources included."""
        extra = {post_op_src(i): p.src1 for i, p in enumerate(self.attr.post_ops) if p.src1 is not None}
        return {**self.op.memories(), **extra}

    def check(self, got: Array, want: Array) -> None:
        """Raise AssertionError with the worst element if ``got`` is not close to ``want`` (float64)."""
        assert got.shape == want.shape, f"{self.name}: shape {got.shape}, expected {want.shape}"
        with np.errstate(all="ignore"):
            narrow = want.astype(np.float32)
            special = ~np.isfinite(narrow)
            agree = (narrow == got) | (np.isnan(narrow) & np.isnan(got))
            error = np.abs(got.astype(np.float64) - want)
            wrong = np.where(special, ~agree, ~(error <= self.atol + self.rtol * np.abs(want)))
        if wrong.any():
            at = tuple(int(i) for i in np.argwhere(wrong)[0])
            worst = np.nanmax(np.where(special, 0, error), initial=0)
            message = (
                f"{wrong.sum()} of {wrong.size} wrong, first at {at}: {got[at]!r}, not {want[at]!r}; worst {worst}"
            )
            raise AssertionError(f"{self.name}: {message}")


def blocked(case: Case) -> Case | None:
    """Return a case with all activations in blocks of 16 channels, or None if its rank has no such layout."""
    dst = case.op.memories()[Arg.DST]
    if dst.ndims < 3:
        return None
    tag = "aB" + plain_tag(dst.ndims)[2:] + "16b"
    keep = ("weights", "bias")

    def convert(md: Any) -> Any:
        return md.with_tag(tag) if isinstance(md, MemoryDesc) and md.ndims == dst.ndims else md

    changed: dict[str, Any] = {}
    for part in dataclasses.fields(case.op):
        value = getattr(case.op, part.name)
        if part.name not in keep:
            changed[part.name] = tuple(map(convert, value)) if isinstance(value, tuple) else convert(value)
    steps = tuple(dataclasses.replace(p, src1=convert(p.src1)) for p in case.attr.post_ops)
    op: OpDesc = dataclasses.replace(case.op, **changed)
    return dataclasses.replace(case, name=f"{case.name} blocked", op=op, attr=PrimitiveAttr(steps))


def plain(*dims: int) -> MemoryDesc:
    return MemoryDesc(dims, "f32")


def _rng(*seed: object) -> np.random.Generator:
    return np.random.default_rng(list(repr(seed).encode()))


def integers(shape: tuple[int, ...], *seed: object, low: int = -5, high: int = 5) -> Array:
    """Return small integers as float32: sums of their products are exact, so any order of summation agrees."""
    return _rng("integers", shape, *seed).integers(low, high + 1, shape).astype(np.float32)


def normals(shape: tuple[int, ...], *seed: object, scale: float = 1.0) -> Array:
    """Return normally distributed float32 values."""
    return (_rng("normals", shape, *seed).standard_normal(shape) * scale).astype(np.float32)


RELU: Final = PostOp("eltwise", "relu")


def residual(dst: MemoryDesc, algorithm: str = "add") -> PostOp:
    return PostOp("binary", algorithm, src1=dst)


def chains(dst: MemoryDesc) -> list[tuple[str, tuple[PostOp, ...]]]:
    return [("", ()), (" +relu", (RELU,)), (" +add", (residual(dst),)), (" +add+relu", (residual(dst), RELU))]


def post_op_args(steps: tuple[PostOp, ...]) -> dict[int, Array]:
    return {post_op_src(i): integers(p.src1.dims, "post", i) for i, p in enumerate(steps) if p.src1 is not None}
