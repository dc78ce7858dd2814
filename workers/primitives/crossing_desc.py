"""Primitive descriptors of reorders between engines: they know both, and where scratch memory lies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ..desc import Arg, MemoryDesc, PrimitiveAttr, Reorder
from ..engines.engine import Engine
from ..engines.target import Target
from .offers import Offers, offers
from .primitive_desc_iface import PrimitiveDescIface, describe

if TYPE_CHECKING:
    from .cache import PrimitiveCache
    from .crossing_primitive import CrossingPrimitive


class Sides(NamedTuple):
    """The engines of a reorder between two."""

    src: Engine
    dst: Engine

    @property
    def streams(self) -> Engine:
        """The engine whose streams a reorder is executed on: that of src, or where it is a CPU that of dst."""
        return self.dst if self.src.kind == "cpu" else self.src

    def computing(self, target: Target) -> Engine:
        """Return the engine that computes what is made for a target."""
        if target.engine_kind == self.streams.kind:
            return self.streams
        return next((side for side in self if side.kind == target.engine_kind), Engine(target.engine_kind))

    def of(self, arg: int, computing: Engine) -> Engine:
        """Return the engine that an argument must lie on."""
        known: dict[int, Engine] = {Arg.SRC: self.src, Arg.DST: self.dst, Arg.SCRATCHPAD: computing}
        return known.get(arg, self.streams)


class CrossingDescIface(PrimitiveDescIface):
    """The primitive descriptor of a reorder between engines. ``engine`` is the one that it is executed on streams of."""

    __slots__ = ("sides",)

    def __init__(self, sides: Sides, found: Offers) -> None:
        super().__init__(sides.streams, found, found.best)
        self.sides = sides

    def create(self, cache: PrimitiveCache | None = None) -> CrossingPrimitive:
        """Return the primitive, as every primitive descriptor does."""
        from .crossing_primitive import CrossingPrimitive

        return CrossingPrimitive(self.pd, self.sides, cache)

    def query(self, what: str, index: int = 0) -> Any:
        """Return what every primitive descriptor does; ``scratchpad_engine`` is the engine that computes."""
        if what == "scratchpad_engine":
            return self.sides.computing(self.pd.target)
        if what in ("reorder_src_engine", "reorder_dst_engine"):
            return self.sides.src if what == "reorder_src_engine" else self.sides.dst
        return super().query(what, index)

    def __repr__(self) -> str:
        return f"<primitive descriptor reorder {self.impl_name()} from {self.sides.src} to {self.sides.dst}>"


def describe_between(
    src_engine: Engine,
    src: MemoryDesc,
    dst_engine: Engine,
    dst: MemoryDesc,
    attr: PrimitiveAttr | None = None,
    hint: PrimitiveDescIface | None = None,
) -> PrimitiveDescIface:
    """Return the primitive descriptor of a reorder from one engine to another: see `Reorder.PrimitiveDesc`.

    Engines of kind cpu all work on the host's memory, so between them nothing is crossed.
    """
    for name, engine in (("engine", src_engine), ("dst_engine", dst_engine)):
        if not isinstance(engine, Engine):
            raise TypeError(f"{name}: expect an Engine, got {type(engine).__name__}")
    if src_engine is dst_engine or src_engine.kind == dst_engine.kind == "cpu":
        return describe(Reorder, src_engine, (src, dst), {}, attr, hint)
    attr = PrimitiveAttr() if attr is None else attr
    if not isinstance(attr, PrimitiveAttr):
        raise TypeError(f"attr: expect a PrimitiveAttr, got {type(attr).__name__}")
    sides = Sides(src_engine, dst_engine)
    fields = src, dst, src_engine.kind, dst_engine.kind
    known = None if hint is None else hint.pd
    return CrossingDescIface(sides, offers(Reorder, sides.streams.target, attr, known, fields, {}))
