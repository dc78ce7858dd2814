"""A pause of Python's garbage collection, for work that makes many objects and hardly any garbage."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager

_paused = False
_has_frozen = False


@contextmanager
def collection_paused(made_to_stay: bool = False) -> Iterator[None]:
    """Collect no garbage meanwhile: a collection would visit all of the work's objects, again and again.

    Any number of threads may do this at once: the first one that ends ends the pause. A program that has switched collection
    off keeps it so. With ``made_to_stay``, the process's young objects count as old at the end, without a visit: only full
    collections look at them from then on. Limitation: not in a program that has frozen objects.
    """
    global _paused
    if not gc.isenabled():
        yield
        return
    gc.disable()
    _paused = True
    try:
        yield
    finally:
        if made_to_stay and not _finds_frozen():
            gc.freeze()
            gc.unfreeze()  # what was frozen is thawed as old
        _resume()


def _finds_frozen() -> bool:
    """Return whether objects of the program are frozen, or were once.

    To count them visits each one: 17 ms for two million, so that it is done until some are found.
    """
    global _has_frozen
    _has_frozen = _has_frozen or gc.get_freeze_count() > 0
    return _has_frozen


def _resume() -> None:
    global _paused
    if _paused:
        _paused = False
        gc.enable()


os.register_at_fork(after_in_child=_resume)  # the thread that would end the pause does not exist in the child
