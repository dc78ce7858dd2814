"""Errors of pools: one tree under `PoolError`, whose members cross processes as plain data.

Errors about graphs and models are `GraphError` (see `poolrt.graph`); errors of the cache are `StoreError`. Loading a
graph raises one of these too, `CreationFailed`.
"""

from __future__ import annotations

from poolrt.cachestore.errors import CreationFailed as CreationFailed
from poolrt.cachestore.portable_error import PortableError


class PoolError(PortableError):
    """Root of the errors of pools, except `CreationFailed`. ``message`` says what failed and what to do."""


class PoolClosed(PoolError):
    """The pool was closed, by its user or by an interruption. Raised by every call after that and by calls under way."""


class CoordinatorLost(PoolClosed):
    """The coordinator process has exited, or could not start. Make a new pool."""


class PoolRefused(PoolError):
    """The coordinator refused a request: malformed, beyond a limit, or turned off by a setting."""


class GraphRefused(PoolError, ValueError):
    """A graph cannot be lowered for its engine. Raised by `Pool.load`; names the node and the reason."""


class ArenaFull(PoolError, MemoryError):
    """Shared memory is too small for a tensor. Raised by load, run and empty.

    ``needed`` is the slot's bytes, ``free`` what is free now, ``arena`` the whole (the setting ``arena_bytes``).
    """

    def __init__(self, message: str, needed: int, free: int, arena: int) -> None:
        super().__init__(message)
        self.needed, self.free, self.arena = needed, free, arena


class WorkerLost(PoolError):
    """A run lost as many workers as the setting ``retries`` allows, a function lost one, or workers cannot start.

    ``what`` names the model or function, ``steps`` is the number of steps of the model (0 for a function).
    """

    def __init__(self, message: str, what: str, steps: int, attempts: int) -> None:
        super().__init__(message)
        self.what, self.steps, self.attempts = what, steps, attempts


class RunFailed(PoolError):
    """A worker could not realize or run a model. ``type`` and ``log`` are those of the worker's exception."""

    def __init__(self, message: str, type: str, log: str) -> None:
        super().__init__(message)
        self.type, self.log = type, log


class CreatorLost(PoolError):
    """A primitive's creation lost its processes: the compiler crashed, or memory ran out. Raised by `Pool.load`."""

    def __init__(self, message: str, primitive: str, attempts: int) -> None:
        super().__init__(message)
        self.primitive, self.attempts = primitive, attempts


class FunctionFailed(PoolError):
    """A function raised an exception that cannot be pickled. ``log`` is its traceback."""

    def __init__(self, message: str, log: str) -> None:
        super().__init__(message)
        self.log = log


def error_from_wire(wire: object) -> PortableError:
    """Return the error that `to_wire` described; data that are no such description become a plain `PoolError`."""
    try:
        return PoolError.from_wire(wire)
    except ValueError as error:
        return PoolError(f"{error}: {wire!r}")
