"""Primitive descriptors of cross-engine reorders: both engines, the streams that fit, the engine of scratch memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...desc import MemoryDesc, PrimitiveAttr, Reorder
from ...engines.engine import Engine
from ...primitives.candidates import ImplementationCandidates, find_candidates
from ...streams.stream import Stream
from ..primitive_desc_iface import PrimitiveDescIface, describe
from .engine_pair import EnginePair

if TYPE_CHECKING:
    from ...primitives.provider import PrimitiveProvider
    from .primitive import CrossEnginePrimitive


class CrossEngineDescIface(PrimitiveDescIface):
    """The primitive descriptor of a cross-engine reorder, which can be executed on streams of ``engine``."""

    __slots__ = ("engines",)

    def __init__(self, engines: EnginePair, engine: Engine, found: ImplementationCandidates) -> None:
        super().__init__(engine, found, found.best)
        self.engines = engines

    def create(self, cache: PrimitiveProvider | None = None) -> CrossEnginePrimitive:
        """Return the primitive: see `PrimitiveDescIface.create`."""
        from .primitive import CrossEnginePrimitive

        return CrossEnginePrimitive(self.pd, self.engines, cache)

    def query(self, what: str, index: int = 0) -> Any:
        """See `PrimitiveDescIface.query`; ``scratchpad_engine`` is the engine that computes."""
        if what == "scratchpad_engine":
            return self.engines.compute_engine(self.pd.target)
        if what in ("reorder_src_engine", "reorder_dst_engine"):
            return self.engines.src if what == "reorder_src_engine" else self.engines.dst
        return super().query(what, index)

    def __repr__(self) -> str:
        return f"<primitive descriptor reorder {self.impl_name()} from {self.engines.src} to {self.engines.dst}>"


def describe_cross_engine(
    src_engine: Engine,
    src: MemoryDesc,
    dst_engine: Engine,
    dst: MemoryDesc,
    attr: PrimitiveAttr | None = None,
    hint: PrimitiveDescIface | None = None,
    stream: Stream | None = None,
) -> PrimitiveDescIface:
    """Return the primitive descriptor of a reorder from one engine to another: see `operations.reorder`.

    For a ``stream`` on a CPU the candidates are only those that the CPU computes. Engines of kind cpu all work on the
    host's memory, so a reorder between two of them is an ordinary one.
    """
    for name, engine in (("engine", src_engine), ("dst_engine", dst_engine)):
        if not isinstance(engine, Engine):
            raise TypeError(f"{name}: expect an Engine, got {type(engine).__name__}")
    if src_engine is dst_engine or src_engine.kind == dst_engine.kind == "cpu":
        return describe(Reorder, src_engine, (src, dst, "", ""), attr, hint, stream)
    attr = PrimitiveAttr() if attr is None else attr
    if not isinstance(attr, PrimitiveAttr):
        raise TypeError(f"attr: expect a PrimitiveAttr, got {type(attr).__name__}")
    engines = EnginePair(src_engine, dst_engine)
    engine, target = engines.stream_engine, engines.stream_engine.target
    if stream is not None:
        engines.check_stream(stream, "cpu")
        engine, target = stream.engine, stream.target
    fields = src, dst, src_engine.kind, dst_engine.kind
    known = None if hint is None else hint.pd
    return CrossEngineDescIface(engines, engine, find_candidates(Reorder, target, attr, known, fields))
