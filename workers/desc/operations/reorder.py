"""Reorder: a tensor copied into another layout, data type or engine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar

from ..args import Arg
from ..memory_desc import MemoryDesc
from ..op_desc import OpDesc, one_of, require

if TYPE_CHECKING:
    from ...engines.engine import Engine
    from ...execution.primitive_desc_iface import PrimitiveDescIface
    from ...streams.stream import Stream
    from ..attributes import PrimitiveAttr


@dataclass(frozen=True, slots=True)
class Reorder(OpDesc):
    """Copy a tensor into another layout or data type, or to another engine.

    A transposition is a reorder whose source tag names the permuted order. Values that dst's type cannot hold are
    rounded to even and saturated. ``src_engine`` and ``dst_engine`` are engine kinds where the tensors lie on different
    engines, of which one is no CPU; both are empty within one engine.
    """

    kind: ClassVar[str] = "reorder"
    src: MemoryDesc
    dst: MemoryDesc
    src_engine: str = ""
    dst_engine: str = ""

    def __post_init__(self) -> None:
        require(self.src.dims == self.dst.dims, "dst", f"expect {self.src.dims}, got {self.dst.dims}")
        require(not (self.src.is_any or self.dst.is_any), "dst", "a reorder's layouts must both be given")
        engines = (self.src_engine, self.dst_engine)
        for name, engine in zip(("src_engine", "dst_engine"), engines, strict=True):
            one_of(name, engine, ("", "cpu", "opencl"))
        require(
            engines == ("", "") or ("opencl" in engines and "" not in engines),
            "dst_engine",
            f"expect none for a reorder within one engine, else two of which one is no cpu, got {engines}",
        )

    @property
    def is_cross_engine(self) -> bool:
        """Whether the tensors lie on different engines."""
        return bool(self.dst_engine)

    def memories(self) -> dict[int, MemoryDesc]:
        return {Arg.SRC: self.src, Arg.DST: self.dst}

    @classmethod
    def PrimitiveDesc(  # noqa: N802 - it stands for a class of oneDNN's
        cls, engine: Engine, *args: Any, attr: PrimitiveAttr | None = None, hint: PrimitiveDescIface | None = None,
        stream: Stream | None = None, **named: Any,
    ) -> PrimitiveDescIface:  # fmt: skip
        """Return the primitive descriptor for one engine, ``(engine, src, dst)``, or two: ``(engine, src, dst_engine, dst)``.

        The first engine is that of src then. What goes between two is executed on streams of the one that is no CPU, that
        of src where neither is; described for a ``stream`` on a CPU it is computed there. Raises as that of every operation
        does.
        """
        if len(args) == 3 and not isinstance(args[1], MemoryDesc):
            src, dst_engine, dst = args
            return _cross_engine_describe()(engine, src, dst_engine, dst, attr=attr, hint=hint, stream=stream, **named)
        if "dst_engine" in named and not isinstance(named["dst_engine"], str):
            return _cross_engine_describe()(engine, *args, attr=attr, hint=hint, stream=stream, **named)
        # Without arguments, super would look for the class that slots were added to.
        return super(Reorder, cls).PrimitiveDesc(engine, *args, attr=attr, hint=hint, stream=stream, **named)


@lru_cache(maxsize=1)
def _cross_engine_describe() -> Callable[..., PrimitiveDescIface]:
    from ...execution.cross_engine.desc import describe_cross_engine

    return describe_cross_engine
