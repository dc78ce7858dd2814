"""Locks that are free in a forked process: a thread that held one at the fork does not exist there."""

from __future__ import annotations

import os
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, TypeVar
from weakref import WeakSet

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable

    Registry = WeakSet[Any]

Lock = TypeVar("Lock")
#: The method by which CPython's own modules, such as `threading` and `logging`, make their locks free in a forked process.
_RENEW: Final = "_at_fork_reinit"
#: The method by which `threading.Condition` asks whether the calling thread holds a lock.
_IS_OWNED: Final = "_is_owned"


def held_by_this_thread(lock: threading.RLock) -> Callable[[], bool]:
    """Return a function that returns whether the calling thread holds the lock: then it would not wait for it.

    A finalizer or a signal's handler may run in the middle of what its thread does with the lock.
    """
    is_owned: Callable[[], bool] = getattr(lock, _IS_OWNED)
    return is_owned


def freed_in_children(lock: Lock) -> Lock:
    """Return the lock, of `threading`, which is free in each process that is forked from now on.

    What it guards must be whole at every moment, or made anew by the next holder. Do not fork while holding it.
    """
    _registry().add(lock)
    return lock


@lru_cache(maxsize=1)
def _registry() -> Registry:
    found: Registry = WeakSet()
    os.register_at_fork(after_in_child=lambda: _renew(found))
    return found


def _renew(locks: Registry) -> None:
    for lock in list(locks):
        getattr(lock, _RENEW)()
