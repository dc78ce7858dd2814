"""Errors of pools: one tree under `PoolError`, whose members cross a process as plain data.

Errors about graphs and models are `GraphError` (see `poolrt.graph`); errors of the cache are `StoreError`.
"""

from __future__ import annotations

from typing import Any, ClassVar, Self

#: Longest text, in characters, that one field carries to another process.
MAX_TEXT = 64 * 1024


class PoolError(Exception):
    """Root of everything that a pool raises on purpose. ``message`` says what happened and what to do."""

    #: Constructor arguments in order; each is kept as an attribute of the same name.
    fields: ClassVar[tuple[str, ...]] = ("message",)

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message

    def __reduce__(self) -> tuple[type[Self], tuple[Any, ...]]:
        return type(self), tuple(getattr(self, name) for name in self.fields)

    def to_wire(self) -> list[Any]:
        """Return the error as plain data."""
        values = [getattr(self, name) for name in self.fields]
        return [type(self).__name__, *(v[:MAX_TEXT] if isinstance(v, str) else v for v in values)]


class PoolClosed(PoolError):
    """The pool was closed, by its user or by an interruption. Raised by every call after that and by calls under way."""


class CoordinatorLost(PoolClosed):
    """The coordinator process has gone, or could not start. Make a new pool."""


class PoolRefused(PoolError):
    """The coordinator refused a request: malformed, beyond a limit, or turned off by a setting."""


class GraphRefused(PoolError, ValueError):
    """A graph cannot be made ready for its engine. Raised by `Pool.load`; names the node and the reason."""


class ArenaFull(PoolError, MemoryError):
    """Shared memory is too small for a tensor. Raised by load, run and empty.

    ``needed`` is the slot's bytes, ``free`` what is free now, ``arena`` the whole (the setting ``arena_bytes``).
    """

    fields = ("message", "needed", "free", "arena")

    def __init__(self, message: str, needed: int, free: int, arena: int) -> None:
        super().__init__(message)
        self.needed = needed
        self.free = free
        self.arena = arena


class WorkerLost(PoolError):
    """Worker processes died of a run as often as the setting ``retries`` allows, or of a function once, or cannot start.

    ``what`` names the model or function, ``steps`` is the number of steps of the model (0 for a function).
    """

    fields = ("message", "what", "steps", "attempts")

    def __init__(self, message: str, what: str, steps: int, attempts: int) -> None:
        super().__init__(message)
        self.what = what
        self.steps = steps
        self.attempts = attempts


class RunFailed(PoolError):
    """A worker could not realize or run a model. ``type`` and ``log`` are those of the worker's exception."""

    fields = ("message", "type", "log")

    def __init__(self, message: str, type: str, log: str) -> None:
        super().__init__(message)
        self.type = type
        self.log = log


class CreationFailed(PoolError):
    """A primitive could not be created. Raised by `Pool.load`.

    ``primitive`` describes it, ``type`` and ``log`` are those of the creator's exception.
    """

    fields = ("message", "primitive", "type", "log")

    def __init__(self, message: str, primitive: str, type: str, log: str) -> None:
        super().__init__(message)
        self.primitive = primitive
        self.type = type
        self.log = log


class CreatorLost(PoolError):
    """The processes that tried to create a primitive died: the compiler crashed, or memory ran out. Raised by `Pool.load`."""

    fields = ("message", "primitive", "attempts")

    def __init__(self, message: str, primitive: str, attempts: int) -> None:
        super().__init__(message)
        self.primitive = primitive
        self.attempts = attempts


class FunctionFailed(PoolError):
    """A function raised an exception that could not travel back as itself. ``log`` is its traceback."""

    fields = ("message", "log")

    def __init__(self, message: str, log: str) -> None:
        super().__init__(message)
        self.log = log


_ALL: dict[str, type[PoolError]] = {
    kind.__name__: kind
    for kind in (
        PoolError, PoolClosed, CoordinatorLost, PoolRefused, GraphRefused, ArenaFull, WorkerLost, RunFailed,
        CreationFailed, CreatorLost, FunctionFailed,
    )
}  # fmt: skip


def error_from_wire(wire: list[Any]) -> PoolError:
    """Rebuild an error from `PoolError.to_wire`'s data; one that is not known becomes a plain `PoolError`."""
    kind = _ALL.get(str(wire[0])) if wire else None
    if kind is None or len(wire) != len(kind.fields) + 1:
        return PoolError(": ".join(str(part) for part in wire))
    return kind(*wire[1:])
