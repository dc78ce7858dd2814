"""What a primitive computes on if a task of a threadpool executes it: the pool if it takes regions of tasks, else the thread."""

from __future__ import annotations

from typing import Final

from poolrt.cachestore.deferred_namedtuple import NamedTuple

from .interface import ThreadpoolInterface
from .sequential import SequentialPool

#: Error of waiting where it can never end.
WAIT_WITHIN: Final = (
    "a task of an asynchronous threadpool cannot wait for it: regions that the task submits run after the task has ended. "
    "Wait outside of the pool's tasks, or submit the next step as a region"
)


class Computing(NamedTuple):
    """The pool that regions of the calling thread go to, and whether the thread runs a task of the stream's pool."""

    pool: ThreadpoolInterface
    within: bool
    asynchronous: bool

    @classmethod
    def on(cls, pool: ThreadpoolInterface) -> Computing:
        """Return what primitives compute on that the calling thread executes on a stream with this pool."""
        flags = pool.get_flags()
        if not pool.get_in_parallel():
            return cls(pool, False, bool(flags & pool.ASYNCHRONOUS))
        if flags & pool.NESTED:
            return cls(pool, True, bool(flags & pool.ASYNCHRONOUS))
        return cls(SequentialPool(), True, False)


def can_wait(pool: ThreadpoolInterface) -> bool:
    """Return whether the calling thread may wait for a pool: not if it runs a task behind which the pool's regions run."""
    computing = Computing.on(pool)
    return not (computing.within and computing.asynchronous)
