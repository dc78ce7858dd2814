"""Errors of pools: one tree under `PoolError`, whose members cross processes as plain data.

Errors about graphs and models are `GraphError` (see `poolrt.graph`); errors of the cache are `StoreError`. Loading a
graph raises one of these too, `CreationFailed`.

`WorkerLost`, `CoordinatorLost`, `InitializerFailed` and `CallNotLoaded` are defined in `poolrt.broken`: they are also
`concurrent.futures.process.BrokenProcessPool`, whose module takes longer to import than all of a client. They are imported
when a program first names or raises one. Processes without a user's code raise their bases here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from poolrt.cachestore.errors import CreationFailed as CreationFailed
from poolrt.cachestore.portable_error import PortableError

if TYPE_CHECKING:
    from .broken import CallNotLoaded as CallNotLoaded
    from .broken import CoordinatorLost as CoordinatorLost
    from .broken import InitializerFailed as InitializerFailed
    from .broken import WorkerLost as WorkerLost


class PoolError(PortableError):
    """Root of the errors of pools, except `CreationFailed`. ``message`` says what failed and what to do."""

    def to_wire(self) -> dict[str, Any]:
        """Return the error as plain data, under the name that users know."""
        wire = super().to_wire()
        return wire | {"error": _USERS_NAMES.get(wire["error"], wire["error"])}


class PoolClosed(PoolError, RuntimeError):
    """The pool was closed, by its user or by an interruption. Raised by every call after that and by calls under way."""


class CoordinatorLoss(PoolClosed):
    """What `CoordinatorLost` is besides a BrokenProcessPool."""


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


class WorkerLoss(PoolError):
    """What `WorkerLost` is besides a BrokenProcessPool."""

    def __init__(self, message: str, what: str, steps: int, attempts: int) -> None:
        super().__init__(message)
        self.what, self.steps, self.attempts = what, steps, attempts


class RunFailed(PoolError):
    """A worker could not realize or run a model. ``type`` and ``log`` are those of the worker's exception.

    If a kernel of a user raised, ``raised`` describes its exception, and the cause is that exception: of its own class, or a
    RuntimeError if no module of the process has that class.
    """

    def __init__(self, message: str, type: str, log: str, raised: str = "") -> None:
        super().__init__(message)
        self.type, self.log, self.raised = type, log, raised


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


class RemoteTraceback(Exception):
    """The cause of an exception that a function raised in a worker: ``tb`` is the text of the traceback there."""

    def __init__(self, tb: str) -> None:
        super().__init__(tb)
        self.tb = tb

    def __str__(self) -> str:
        return self.tb


class InitializerFailure(PoolError):
    """What `InitializerFailed` is besides a BrokenProcessPool."""

    def __init__(self, message: str, log: str) -> None:
        super().__init__(message)
        self.log = log


class CallNotLoadable(PoolError):
    """What `CallNotLoaded` is besides a BrokenProcessPool."""

    def __init__(self, message: str, log: str) -> None:
        super().__init__(message)
        self.log = log


#: Base of an error here -> its name in `poolrt.broken`.
_USERS_NAMES: Final = {
    "CallNotLoadable": "CallNotLoaded",
    "CoordinatorLoss": "CoordinatorLost",
    "InitializerFailure": "InitializerFailed",
    "WorkerLoss": "WorkerLost",
}


def unfit_error(name: str, message: str, log: str) -> PoolError:
    """Return the error of a call whose function was not called: its initializer failed, or it could not be loaded."""
    return (InitializerFailure if name == "InitializerFailed" else CallNotLoadable)(message, log)


def coordinator_lost(message: str) -> PoolClosed:
    """Return a `CoordinatorLost`."""
    error: PoolClosed = __getattr__("CoordinatorLost")(message)
    return error


def call_not_loaded(message: str, log: str) -> PoolError:
    """Return a `CallNotLoaded`."""
    error: PoolError = __getattr__("CallNotLoaded")(message, log)
    error.__cause__ = RemoteTraceback(f'\n"""\n{log}"""')
    return error


def error_from_wire(wire: object) -> PortableError:
    """Return the error that `to_wire` described; data that are no such description become a plain `PoolError`."""
    if isinstance(wire, dict) and wire.get("error") in _USERS_NAMES.values():
        __getattr__(wire["error"])
    try:
        found = PoolError.from_wire(wire)
        if isinstance(log := getattr(found, "log", None), str) and log:
            found.__cause__ = RemoteTraceback(f'\n"""\n{log}"""')
        if isinstance(found, RunFailed) and found.raised:
            _add_exception_of_kernel(found)
        return found
    except ValueError as error:
        return PoolError(f"{error}: {wire!r}")


def _add_exception_of_kernel(error: RunFailed) -> None:
    from poolrt.workers.engines.raised import parse_raised

    described = parse_raised(error.raised)
    if described is not None:
        exception = described.exception()
        exception.__cause__, error.__cause__ = error.__cause__, exception


def __getattr__(name: str) -> Any:
    base = next((base for base, known in _USERS_NAMES.items() if known == name), None)
    if base is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        from . import broken
    except (OSError, ImportError, MemoryError):
        return globals()[base]  # no file can be opened, or memory is short: then that is what has to be reported
    return getattr(broken, name)
