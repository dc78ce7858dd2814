"""Errors after which `concurrent.futures` calls a pool of processes broken. Import them from `poolrt.errors`.

A pool of poolrt replaces a lost worker and goes on: they concern the run or function that they are raised for, except
`CoordinatorLost` and `InitializerFailed`.
"""

from __future__ import annotations

from concurrent.futures.process import BrokenProcessPool

from .errors import CallNotLoadable, CoordinatorLoss, InitializerFailure, WorkerLoss


class CoordinatorLost(CoordinatorLoss, BrokenProcessPool):
    """The coordinator process has exited, or could not start. Make a new pool."""


class WorkerLost(WorkerLoss, BrokenProcessPool):
    """A run lost as many workers as the setting ``retries`` allows, a function lost one, or workers cannot start.

    ``what`` names the model or function, ``steps`` is the number of steps of the model (0 for a function).
    """


class InitializerFailed(InitializerFailure, BrokenProcessPool):
    """The pool's initializer raised an exception in a worker; no function of this pool is called. ``log`` is its traceback."""


class CallNotLoaded(CallNotLoadable, BrokenProcessPool):
    """A function, its arguments or its result cannot be loaded in the other process. ``log`` is the traceback there.

    Most often a module is missing in that process. Other calls are not concerned.
    """


for _error in (CoordinatorLost, WorkerLost, InitializerFailed, CallNotLoaded):
    _error.__module__ = "poolrt.errors"  # where users import them from
