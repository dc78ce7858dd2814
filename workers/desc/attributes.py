"""Primitive attributes: post-operations that an implementation applies before it stores its result."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from .memory_desc import MemoryDesc

ELTWISE_ALGORITHMS: Final = (
    "relu", "tanh", "elu", "square", "abs", "sqrt", "linear", "logistic", "exp", "log", "clip", "gelu_erf",
    "hardswish", "hardsigmoid", "softplus", "swish", "mish",
)  # fmt: skip
BINARY_ALGORITHMS: Final = ("add", "sub", "mul", "div", "max", "min")


@dataclass(frozen=True, slots=True)
class PostOp:
    """One step of the chain: ``eltwise`` (algorithm, alpha, beta) or ``binary`` (algorithm, second source)."""

    kind: str
    algorithm: str
    alpha: float = 0.0
    beta: float = 0.0
    src1: MemoryDesc | None = None

    def __post_init__(self) -> None:
        known = {"eltwise": ELTWISE_ALGORITHMS, "binary": BINARY_ALGORITHMS}.get(self.kind)
        if known is None:
            raise ValueError(f"unknown post-op kind {self.kind!r}; known: eltwise, binary")
        if self.algorithm not in known:
            raise ValueError(f"unknown {self.kind} algorithm {self.algorithm!r}; known: {', '.join(known)}")
        if (self.src1 is not None) != (self.kind == "binary"):
            raise ValueError("a binary post-op needs src1, an eltwise post-op takes none")

    def fields(self) -> dict[str, object]:
        """Return the named fields for a key."""
        return {
            "kind": self.kind,
            "algorithm": self.algorithm,
            "alpha": float(self.alpha),
            "beta": float(self.beta),
            "src1": self.src1.fields() if self.src1 else None,
        }


@dataclass(frozen=True, slots=True)
class PrimitiveAttr:
    """Attributes of a primitive: the chain of post-ops, applied in order."""

    post_ops: tuple[PostOp, ...] = ()

    def fields(self) -> dict[str, object]:
        """Return the named fields for a key."""
        return {"post_ops": tuple(p.fields() for p in self.post_ops)}

    def to_wire(self) -> list[object]:
        """Return plain data for a message."""
        return [[p.kind, p.algorithm, p.alpha, p.beta, p.src1.to_wire() if p.src1 else None] for p in self.post_ops]

    @classmethod
    def from_wire(cls, wire: list[list[object]]) -> PrimitiveAttr:
        """Rebuild from `to_wire`'s data. Raises ValueError where it is malformed."""
        steps = []
        for kind, algorithm, alpha, beta, src1 in wire:
            desc = MemoryDesc.from_wire(src1) if isinstance(src1, list) else None
            steps.append(PostOp(str(kind), str(algorithm), float(alpha), float(beta), desc))  # type: ignore[arg-type]
        return cls(tuple(steps))
