"""Errors of pools: one tree under `PoolError`, whose members cross processes as plain data.

Errors about graphs and models are `GraphError` (see `poolrt.graph`); errors of the cache are `StoreError`, one of which,
`CreationFailed`, is what loading a graph raises too.
"""

from __future__ import annotations

from poolrt.cachestore.errors import CreationFailed as CreationFailed
from poolrt.cachestore.portable_error import PortableError


class PoolError(PortableError):
    """Root of what pools raise on purpose, except `CreationFailed`. ``message`` says what happened and what to do."""


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

    def __init__(self, message: str, needed: int, free: int, arena: int) -> None:
        super().__init__(message)
        self.needed = needed
        self.free = free
        self.arena = arena


class WorkerLost(PoolError):
    """Worker processes died of a run as often as the setting ``retries`` allows, or of a function once, or cannot start.

    ``what`` names the model or function, ``steps`` is the number of steps of the model (0 for a function).
    """

    def __init__(self, message: str, what: str, steps: int, attempts: int) -> None:
        super().__init__(message)
        self.what = what
        self.steps = steps
        self.attempts = attempts


class RunFailed(PoolError):
    """A worker could not realize or run a model. ``type`` and ``log`` are those of the worker's exception."""

    def __init__(self, message: str, type: str, log: str) -> None:
        super().__init__(message)
        self.type = type
        self.log = log


class CreatorLost(PoolError):
    """The processes that tried to create a primitive died: the compiler crashed, or memory ran out. Raised by `Pool.load`."""

    def __init__(self, message: str, primitive: str, attempts: int) -> None:
        super().__init__(message)
        self.primitive = primitive
        self.attempts = attempts


class FunctionFailed(PoolError):
    """A function raised an exception that could not travel back as itself. ``log`` is its traceback."""

    def __init__(self, message: str, log: str) -> None:
        super().__init__(message)
        self.log = log


def error_from_wire(wire: object) -> PortableError:
    """Return the error that `to_wire` described; data that are no such description become a plain `PoolError`."""
    try:
        return PoolError.from_wire(wire)
    except ValueError as error:
        return PoolError(f"{error}: {wire!r}")
