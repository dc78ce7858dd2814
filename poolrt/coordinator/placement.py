"""Placement: which worker gets a job, and which creation goes first. Pure functions of the current state."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Final, Protocol

#: Runs in flight to one worker: the second is there when the first ends, so that no worker idles for a wake-up.
RUNS_IN_FLIGHT: Final = 2

#: Seconds, roughly, that compiling the kernels of a kind takes on a processor of 2023; only the order matters.
_COSTS: Final[Mapping[str, float]] = {
    "matmul": 1.3,
    "reorder": 0.8,
    "convolution": 0.6,
    "inner_product": 0.5,
    "lrn": 0.4,
    "pooling": 0.4,
}


class Placed(Protocol):
    """The properties of a worker that placement uses."""

    number: int
    ready: bool
    doomed: bool
    #: Models that were sent to the worker.
    models: set[int]
    #: Whether it executes a user's function, whose duration is unknown.
    applying: bool
    #: Whether the last job given to it was a function.
    applied: bool
    #: Functions that were sent to it, and how many it has called.
    functions: set[int]
    calls: int

    @property
    def calling(self) -> bool:
        """Whether it calls a function that a client has given it on a ring, or is going to."""
        ...

    @property
    def load(self) -> int:
        """The number of jobs in flight."""
        ...


def avoid_held_up(workers: Iterable[Placed], held_up: set[int], reserved: int | None) -> set[int]:
    """Return the workers that get no run because they are held up: none if no other worker takes runs at all."""
    for worker in workers:
        if (
            worker.ready
            and not worker.doomed
            and worker.number not in held_up
            and worker.number != reserved
            and not worker.applying
            and not worker.calling
        ):
            return held_up
    return set()


def choose_for_run(
    workers: Iterable[Placed],
    model: int,
    reserved: int | None,
    avoided: Collection[int] = (),
    in_flight: int = RUNS_IN_FLIGHT,
) -> Placed | None:
    """Return the worker for a run of ``model``, none of those ``avoided``, or None if all have ``in_flight`` jobs.

    The least loaded one; among equals one that has the model; among those the first, whose caches are warm.
    """
    best: Placed | None = None
    rank: tuple[int, bool, int] | None = None
    for worker in workers:
        if (
            not worker.ready
            or worker.doomed
            or worker.applying
            or worker.calling
            or worker.load >= in_flight
            or worker.number == reserved
            or worker.number in avoided
        ):
            continue
        own = (worker.load, model not in worker.models, worker.number)
        if rank is None or own < rank:
            best, rank = worker, own
    return best


def choose_for_function(workers: Iterable[Placed], function: int, runs_wait: bool) -> Placed | None:
    """Return an idle worker for a function, or None. While runs wait, one whose last job was a function takes a run.

    One that has the function comes first, then one that has called any, whose modules are imported; then the first.
    """
    fit = [
        w
        for w in workers
        if w.ready and not w.doomed and w.load == 0 and not w.calling and not (runs_wait and w.applied)
    ]
    return min(fit, key=lambda w: (function not in w.functions, not w.calls), default=None)


def reserve_for_function(workers: Iterable[Placed]) -> int | None:
    """Return the worker that takes no more runs while a function waits, so that runs cannot starve functions."""
    fit = [w for w in workers if w.ready and not w.doomed and not w.applying and not w.calling and not w.applied]
    return min(fit, key=lambda w: (w.load, w.number)).number if fit else None


def creation_cost(kind: str, kernels: int = 1) -> float:
    """Return what creating a primitive costs, as a weight: the longest creations are started first."""
    return _COSTS.get(kind, 0.3) * max(1, kernels)
