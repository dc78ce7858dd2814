"""Primitive descriptors: an operation, its attributes and the implementation chosen for a target."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final, cast

from poolrt.cachestore.deferred_dataclass import dataclass, field

from ..desc import MemoryDesc, OpDesc, PrimitiveAttr, op_from_wire
from ..desc.codec import decode, encode
from ..engines.target import Target
from .contract import REFERENCE
from .inference import refuse_beyond_inference
from .reference.by_operation import reference

if TYPE_CHECKING:
    from poolrt.cachestore import Key

    from .contract import Implementation
    from .program import Program

#: Engine kind -> the package of its implementations, whose modules are named for primitive kinds.
_HOMES: Final = {"cpu": ".native.", "opencl": ".opencl."}
_HALF: Final = ("f16", "bf16")


class UnsupportedPrimitive(ValueError):
    """No implementation accepts a descriptor. Raised by `primitive_desc`, with the reason of each implementation."""


@dataclass(frozen=True, slots=True)
class PrimitiveDesc:
    """A completed operation descriptor with its attributes, target and implementation. Equal ones make equal keys.

    ``hint`` are the memory descriptors of the forward primitive that a backward operation belongs to, if one was given.
    """

    op: OpDesc
    attr: PrimitiveAttr
    target: Target
    implementation: Implementation[Any]
    hint: tuple[tuple[int, MemoryDesc], ...] = ()
    #: Kept by `primitive_key`: computing a key takes longer than a hit in the cache.
    cached_key: Key | None = field(default=None, init=False, repr=False, compare=False)
    #: Kept by `nested`, which must describe the whole program.
    cached_nested: tuple[PrimitiveDesc, ...] | None = field(default=None, init=False, repr=False, compare=False)

    def impl_name(self) -> str:
        """Return the name of the implementation chosen."""
        return self.implementation.name

    def memories(self) -> dict[int, MemoryDesc]:
        """Return the completed memory descriptor of every execution argument, those of attributes included."""
        described = self.op.memories()
        return {**described, **self.attr.memories(described)}

    def program(self) -> Program:
        """Describe the primitive's kernels and launches."""
        return self.implementation.program(self.op, self.attr, self.target)

    def nested(self) -> tuple[PrimitiveDesc, ...]:
        """Return the nested primitives in the order of the entry, which has their keys."""
        if self.cached_nested is None:
            nested = self.program().nested if getattr(self.implementation, "nests", False) else ()
            object.__setattr__(self, "cached_nested", nested)
        return cast("tuple[PrimitiveDesc, ...]", self.cached_nested)

    def stays_inside(self) -> bool:
        """Return whether kernels read no byte behind an argument."""
        return getattr(self.implementation, "stays_inside", False) and all(one.stays_inside() for one in self.nested())

    def to_wire(self) -> list[object]:
        """Return plain data for a message to a creator."""
        hint = [[arg, encode(desc)] for arg, desc in self.hint]
        return [self.op.to_wire(), encode(self.attr), encode(self.target), self.implementation.name, hint]

    @classmethod
    def from_wire(cls, wire: list[Any]) -> PrimitiveDesc:
        """Rebuild from `to_wire`'s data. Raises ValueError if it is malformed or names an unknown implementation."""
        op, attr = op_from_wire(wire[0]), decode(PrimitiveAttr, wire[1])
        hint = tuple((int(arg), decode(MemoryDesc, desc)) for arg, desc in wire[4])
        for implementation in _implementations_for(op, str(wire[2][0])):
            if implementation.name == wire[3]:
                return cls(op, attr, decode(Target, wire[2]), implementation, hint)
        raise ValueError(f"no implementation {wire[3]!r} of {op.kind} for engine kind {wire[2][0]!r}")


@lru_cache(maxsize=256)
def implementations(kind: str, engine_kind: str) -> tuple[Implementation[Any], ...]:
    """Return the implementations of a primitive kind for an engine kind, best first; none if it has no such operation."""
    home = _HOMES.get(engine_kind)
    if home is None:
        return ()
    in_float32 = _find_module(f"{home}in_float32")
    others = () if in_float32 is None or kind not in in_float32.BY_KIND else (in_float32.BY_KIND[kind],)
    return (*_first(kind, engine_kind), *_further(kind, engine_kind), *others, *_last(kind, engine_kind))


def _implementations_for(op: OpDesc, engine_kind: str) -> Iterator[Implementation[Any]]:
    """Yield the implementations that may accept an operation: those of half precision only for it, as they import more.

    Modules are imported when their implementations are asked for: most operations need the first ones alone.
    """
    if any(md.dtype in _HALF for md in op.memories().values()):
        yield from implementations(op.kind, engine_kind)
    elif engine_kind in _HOMES:
        for part in (_first, _further, _last):
            yield from part(op.kind, engine_kind)


@lru_cache(maxsize=256)
def _first(kind: str, engine_kind: str) -> tuple[Implementation[Any], ...]:
    module = _find_module(f"{_HOMES[engine_kind]}{kind}")
    return () if module is None else cast("tuple[Implementation[Any], ...]", module.IMPLEMENTATIONS)


@lru_cache(maxsize=256)
def _further(kind: str, engine_kind: str) -> tuple[Implementation[Any], ...]:
    module = _find_module(f"{_HOMES[engine_kind]}{kind}")
    find: Callable[[], tuple[Implementation[Any], ...]] = getattr(module, "find_further_implementations", tuple)
    return find()


@lru_cache(maxsize=256)
def _last(kind: str, engine_kind: str) -> tuple[Implementation[Any], ...]:
    last = reference(kind, engine_kind)
    return () if last is None else (last,)


def _find_module(name: str) -> ModuleType | None:
    """Return a module of this package, None if there is no such module."""
    try:
        return import_module(name, __package__)
    except ModuleNotFoundError as error:
        if error.name is None or not error.name.endswith(name):
            raise
        return None


def primitive_descs(op: OpDesc, attr: PrimitiveAttr, target: Target) -> list[PrimitiveDesc]:
    """Return the primitive descriptors of every implementation that accepts, best first."""
    return list(find_accepting(op, attr, target, (), []))


def primitive_desc(op: OpDesc, attr: PrimitiveAttr, target: Target, references: bool = True) -> PrimitiveDesc:
    """Return the primitive descriptor of the best implementation, or without ``references`` of the best fast one.

    Raises UnsupportedPrimitive with every reason.
    """
    reasons: list[str] = []
    for pd in find_accepting(op, attr, target, (), reasons, references):
        return pd
    raise unsupported_error(op, target, reasons)


def find_accepting(
    op: OpDesc,
    attr: PrimitiveAttr,
    target: Target,
    hint: tuple[tuple[int, MemoryDesc], ...],
    reasons: list[str],
    references: bool = True,
) -> Iterator[PrimitiveDesc]:
    """Yield the primitive descriptors of the implementations that accept; add to ``reasons`` why the others do not."""
    for implementation in _implementations_for(op, target.engine_kind):
        if implementation.name.startswith(REFERENCE) and not references:
            continue
        reason = _find_refusal(implementation, op, attr, target)
        if reason is None:
            used: tuple[str, ...] = getattr(implementation, "extensions", ())
            completed = implementation.complete(op, attr, target)
            threads: Callable[[OpDesc, Target], int] = getattr(implementation, "threads", _any_number)
            made_for = target.only(used).on_threads(threads(completed, target))
            yield PrimitiveDesc(completed, attr, made_for, implementation, hint)
        else:
            reasons.append(f"{implementation.name}: {reason}")


def _any_number(op: OpDesc, target: Target) -> int:
    """Return that a program does not depend on the number of threads."""
    return 0


def unsupported_error(op: OpDesc, target: Target, reasons: list[str]) -> UnsupportedPrimitive:
    """Return the error that no implementation accepts."""
    why = "; ".join(reasons) or "there is no implementation for this engine kind"
    return UnsupportedPrimitive(f"{op.kind} on engine kind {target.engine_kind} is not supported ({why})")


def _find_refusal(implementation: Implementation[Any], op: OpDesc, attr: PrimitiveAttr, target: Target) -> str | None:
    memories = op.memories()
    for arg in op.outputs():
        if memories[arg].repeats:
            return f"argument {arg} is written, but its strides {memories[arg].strides} repeat elements"
    if not attr.is_plain:
        try:
            attr.memories(memories)
        except ValueError as error:
            return str(error)
    beyond = None if implementation.general else refuse_beyond_inference(op, attr)
    return beyond or implementation.reject(op, attr, target)
