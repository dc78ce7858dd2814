"""Primitive descriptors as users hold them: an engine, and the implementation candidates, which `next_impl` iterates."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from ..desc import Arg, MemoryDesc, OpDesc, PrimitiveAttr, multiple_src
from ..engines.engine import Engine
from ..implementations.primitive_desc import PrimitiveDesc
from ..primitives.candidates import ImplementationCandidates, find_candidates
from ..streams.stream import Stream
from .arguments import NO_MEMORY, describe_arguments, describe_scratchpad, scratchpad_nbytes

if TYPE_CHECKING:
    from ..primitives.provider import PrimitiveProvider
    from .primitive import Primitive

_PLAIN: Final = PrimitiveAttr()
#: Name of a query -> for each index the execution argument, then the one that some operations have instead.
_ARGUMENTS: Final[dict[str, tuple[tuple[Arg, ...], ...]]] = {
    "src_md": ((Arg.SRC,), (Arg.SRC_1, Arg.MEAN), (Arg.SRC_2, Arg.VARIANCE)),
    "dst_md": ((Arg.DST,), (Arg.DST_1, Arg.MEAN), (Arg.DST_2, Arg.VARIANCE)),
    "diff_src_md": ((Arg.DIFF_SRC,),),
    "diff_dst_md": ((Arg.DIFF_DST,),),
    "workspace_md": ((Arg.WORKSPACE,),),
}
#: The same for arguments that an operation has or not: an index counts those that it has.
_PRESENT: Final[dict[str, tuple[Arg, ...]]] = {
    "weights_md": (Arg.WEIGHTS, Arg.WEIGHTS_1, Arg.WEIGHTS_2, Arg.SCALE, Arg.SHIFT, Arg.BIAS),
    "diff_weights_md": (Arg.DIFF_WEIGHTS, Arg.DIFF_SCALE, Arg.DIFF_SHIFT, Arg.DIFF_BIAS),
}


class PrimitiveDescIface:
    """A primitive descriptor for an engine, of one implementation at a time; `next_impl` moves to the next.

    ``pd`` is the immutable descriptor that keys are made of; it does not know the engine. Limitation: only one thread at
    a time may call `next_impl`.
    """

    __slots__ = ("_candidates", "_position", "engine", "pd")

    def __init__(self, engine: Engine, candidates: ImplementationCandidates, pd: PrimitiveDesc) -> None:
        self.engine = engine
        self.pd = pd
        self._candidates = candidates
        self._position = 0

    def impl_name(self) -> str:
        """Return the name of the implementation, such as ``native:tiles`` or ``ref:matmul``."""
        return self.pd.implementation.name

    def next_impl(self) -> bool:
        """Move to the next implementation that accepts; if there is none, stay and return False."""
        pd = self._candidates.at(self._position + 1)
        if pd is None:
            return False
        self.pd = pd
        self._position += 1
        return True

    def create(self, cache: PrimitiveProvider | None = None) -> Primitive:
        """Return the primitive: from ``cache`` (by default that of the process), from the store below, or created now.

        Raises CreationFailed with the compiler's type, message and log.
        """
        return _primitive()(self.pd, self.engine, cache)

    def src_desc(self, index: int = 0) -> MemoryDesc:
        """Return the descriptor of a source; this and the methods below return one of no elements for a missing argument.

        Mean and variance that are read are sources 1 and 2; so are the initial states of a recurrent operation.
        """
        return self._desc("src_md", index)

    def weights_desc(self, index: int = 0) -> MemoryDesc:
        """Return the descriptor of the weights, scale, shift or bias: ``index`` counts those that exist, in this order."""
        return self._desc("weights_md", index)

    def dst_desc(self, index: int = 0) -> MemoryDesc:
        """Return the descriptor of a destination. Computed mean and variance are 1 and 2; so are final states."""
        return self._desc("dst_md", index)

    def diff_src_desc(self, index: int = 0) -> MemoryDesc:
        """Return the descriptor of the gradient of a source."""
        return self._desc("diff_src_md", index)

    def diff_weights_desc(self, index: int = 0) -> MemoryDesc:
        """Return the descriptor of the gradient of weights, scale, shift or bias, counted as by `weights_desc`."""
        return self._desc("diff_weights_md", index)

    def diff_dst_desc(self, index: int = 0) -> MemoryDesc:
        """Return the descriptor of the gradient of a destination."""
        return self._desc("diff_dst_md", index)

    def workspace_desc(self) -> MemoryDesc:
        """Return the descriptor of the workspace that a forward operation writes for its backward operation."""
        return self._desc("workspace_md", 0)

    def scratchpad_desc(self) -> MemoryDesc:
        """Return the descriptor of the argument `Arg.SCRATCHPAD`: u8, of no elements if the library provides scratch memory."""
        return describe_scratchpad(self.pd)

    def query(self, what: str, index: int = 0) -> Any:
        """Return what oneDNN's query of that name returns.

        ``impl_info_str`` · ``src_md`` and the like with an index · ``exec_arg_md`` with an argument · ``scratchpad_md`` ·
        ``num_of_inputs_s32`` · ``num_of_outputs_s32`` · ``memory_consumption_s64``, the bytes of scratch memory that the
        library provides · ``engine`` · ``scratchpad_engine`` · ``reorder_src_engine`` · ``reorder_dst_engine`` ·
        ``primitive_kind`` · ``prop_kind`` · or a field of the operation. Raises ValueError naming ``what`` if there is
        no such query.
        """
        if what in _ARGUMENTS or what in _PRESENT:
            return self._desc(what, index)
        asked = _QUERIES.get(what)
        if asked is not None:
            return asked(self, index)
        if what in type(self.pd.op).__match_args__:
            return getattr(self.pd.op, what)
        known = sorted({*_ARGUMENTS, *_PRESENT, *_QUERIES, *type(self.pd.op).__match_args__})
        raise ValueError(f"what: unknown query {what!r}; known: {', '.join(known)}")

    def _desc(self, what: str, index: int) -> MemoryDesc:
        if index < 0:
            raise ValueError(f"index: expect 0 or more, got {index}")
        memories, outputs = self.pd.op.memories(), self.pd.op.outputs()
        if what in _PRESENT:
            present = [arg for arg in _PRESENT[what] if arg in memories]
            return memories[present[index]] if index < len(present) else NO_MEMORY
        if what == "src_md" and multiple_src(0) in memories:
            return memories.get(multiple_src(index), NO_MEMORY)
        for arg in _ARGUMENTS[what][index] if index < len(_ARGUMENTS[what]) else ():
            # An operation reads or writes mean and variance.
            if arg in memories and (arg not in (Arg.MEAN, Arg.VARIANCE) or (arg in outputs) == (what == "dst_md")):
                return memories[arg]
        return NO_MEMORY

    def __repr__(self) -> str:
        return f"<primitive descriptor {self.pd.op.kind} {self.impl_name()} for {self.engine}>"


_QUERIES: Final[dict[str, Callable[[PrimitiveDescIface, int], Any]]] = {
    "impl_info_str": lambda iface, _: iface.impl_name(),
    "exec_arg_md": lambda iface, arg: describe_arguments(iface.pd).get(arg, NO_MEMORY),
    "scratchpad_md": lambda iface, _: describe_scratchpad(iface.pd),
    "num_of_inputs_s32": lambda iface, _: len(iface.pd.memories()) - len(iface.pd.op.outputs()),
    "num_of_outputs_s32": lambda iface, _: len(iface.pd.op.outputs()),
    "memory_consumption_s64": lambda iface, _: (
        scratchpad_nbytes(iface.pd) if iface.pd.attr.scratchpad_mode == "library" else 0
    ),
    "engine": lambda iface, _: iface.engine,
    "scratchpad_engine": lambda iface, _: iface.engine,
    "reorder_src_engine": lambda iface, _: _reorder_engine(iface),
    "reorder_dst_engine": lambda iface, _: _reorder_engine(iface),
    "primitive_kind": lambda iface, _: iface.pd.op.kind,
    "prop_kind": lambda iface, _: getattr(iface.pd.op, "prop", "forward_inference"),
}


def _reorder_engine(iface: PrimitiveDescIface) -> Engine:
    if iface.pd.op.kind != "reorder":
        raise ValueError(f"what: only a reorder has engines of src and dst, got a {iface.pd.op.kind}")
    return iface.engine


@lru_cache(maxsize=1)
def _primitive() -> type[Primitive]:
    """Return the class of primitives. Kept, because an import statement alone takes longer than a hit."""
    from .primitive import Primitive

    return Primitive


def describe(
    kind: type[OpDesc],
    engine: Engine,
    fields: tuple[Any, ...],
    attr: PrimitiveAttr | None,
    hint: PrimitiveDescIface | None,
    stream: Stream | None = None,
) -> PrimitiveDescIface:
    """Return the primitive descriptor of an operation's best implementation for an engine; no compiler is needed for that.

    ``hint`` is the forward primitive descriptor that a backward operation belongs to: it gives the layouts that are left
    ``any``. Implementations that divide their work or scratch memory by the number of threads take that of the pool of
    ``stream``, of one thread unless given; the primitive is right on every stream. Raises ValueError or TypeError naming
    the argument, and UnsupportedPrimitive with the reasons of all implementations.
    """
    if not isinstance(engine, Engine):
        raise TypeError(f"engine: expect an Engine, got {type(engine).__name__}")
    if attr is None:
        attr = _PLAIN
    elif not isinstance(attr, PrimitiveAttr):
        raise TypeError(f"attr: expect a PrimitiveAttr, got {type(attr).__name__}")
    if hint is not None and not isinstance(hint, PrimitiveDescIface):
        raise TypeError(f"hint: expect a primitive descriptor, got {type(hint).__name__}")
    target = engine.target if stream is None else _check_stream(stream, engine).target
    found = find_candidates(kind, target, attr, None if hint is None else hint.pd, fields)
    if found.is_cross_engine:
        raise ValueError(
            "dst_engine: expect an Engine: describe a reorder between two engines by (engine, src, dst_engine, dst)"
        )
    return PrimitiveDescIface(engine, found, found.best)


def _check_stream(stream: Stream, engine: Engine) -> Stream:
    """Return a stream. Raises TypeError for another object, ValueError for one on another engine."""
    if not isinstance(stream, Stream):
        raise TypeError(f"stream: expect a Stream, got {type(stream).__name__}")
    if stream.engine is not engine:
        raise ValueError(f"stream: expect one on {engine}, got one on {stream.engine}")
    return stream
