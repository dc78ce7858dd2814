"""Streams of random numbers, one for each node that draws, and the seed of a process: ONNX Runtime's `set_seed`."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from poolrt.cachestore.forked_locks import freed_in_children
from poolrt.spelling import describe_type

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Draw: TypeAlias = Callable[[np.random.Generator], NDArray[Any]]


class RandomStream:
    """A stream that goes on from run to run. Threads may draw at once.

    Guarantees: the same seed gives the same numbers, for one version of NumPy, in a forked process too. Without a seed no two
    streams are alike, and a forked process begins one of its own.
    """

    def __init__(self, seed: Sequence[int] | None) -> None:
        """``seed`` is a list of numbers from 0 on; None takes one from the operating system."""
        self._seed = seed
        self._lock = freed_in_children(threading.Lock())
        self._begin()

    def draw(self, draw: Draw) -> NDArray[Any]:
        """Return what a function draws."""
        with self._lock:
            if self._seed is None and self._process != os.getpid():
                self._begin()
            return draw(self._generator)

    def _begin(self) -> None:
        self._process = os.getpid()
        self._generator = np.random.default_rng(self._seed)
        # NumPy's own lock, which another thread may hold at a fork.
        freed_in_children(self._generator.bit_generator.lock)


class _ProcessSeed:
    """The seed that the process has set, None before."""

    def __init__(self) -> None:
        self.value: int | None = None


def set_seed(seed: int) -> None:
    """Let sessions that are made from now on draw the same numbers again, in nodes that have no seed of their own.

    Raises TypeError if it is no integer.
    """
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer):
        raise TypeError(f"seed: expect an integer, got {describe_type(seed)}")
    _process_seed().value = int(seed)


def seed_of_process() -> int | None:
    """Return the number that `set_seed` was given last, None if it was not called."""
    return _process_seed().value


@lru_cache(maxsize=1)
def _process_seed() -> _ProcessSeed:
    return _ProcessSeed()
