"""Locks that are free in a forked process: a thread that held one at the fork does not exist there."""

from __future__ import annotations

import os
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, TypeVar
from weakref import WeakSet

if TYPE_CHECKING:
    Registry = WeakSet[Any]

Lock = TypeVar("Lock")
#: The method by which CPython's own modules, such as `threading` and `logging`, make their locks free in a forked process.
_RENEW: Final = "_at_fork_reinit"


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
