"""Runs like the last one of an executor, in one function with all that it needs at hand.

For a small graph, calls of functions and looks at attributes take as long as what they do.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable, Mapping, Sequence
from threading import get_ident
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np

from poolrt.cachestore.deferred_namedtuple import NamedTuple
from poolrt.runs.run_inputs import Outputs
from poolrt.workers.memory.array_address import DATA, FLAGS, IN_ORDER, IS_THERE, WORDS

if TYPE_CHECKING:
    from poolrt.inprocess.device_context import DeviceContext
    from poolrt.workers.engines.engine import Engine
    from poolrt.workers.plans.executor import PlanExecutor
    from poolrt.workers.threadpools.interface import ThreadpoolInterface
    from poolrt.workers.threadpools.jobs import Jobs, JobsOnPools

#: Runs on inputs by name in a phase or variant; None, and nothing is done, if anything but the inputs' memory has changed.
Repeat: TypeAlias = "Callable[[Mapping[str, Any], str], Outputs | None]"
#: Name, shape, data type and bytes of an output.
Port: TypeAlias = "tuple[str, tuple[int, ...], np.dtype[Any], int]"
_ARRAY: Final = np.ndarray
_PAGE: Final = mmap.PAGESIZE


class Input(NamedTuple):
    """An input of the last run; ``behind`` is the number of bytes that kernels may read behind it."""

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    nbytes: int
    behind: int


class Run(NamedTuple):
    """What the last run was for, and its executor as long as that is kept."""

    variant: str
    inputs: Sequence[Input]
    ports: Sequence[Port]
    jobs: tuple[Jobs, ...]
    executor: Callable[[], PlanExecutor | None]
    #: The thread that has the executor to itself, by `threading.get_ident`; 0 if it is every thread's.
    owner: int


def repeat_nothing(inputs: Mapping[str, Any], variant: str) -> Outputs | None:
    """Return None: there was no run that could be repeated."""
    return None


def repeat_run(
    run: Run,
    engine: Engine,
    context: DeviceContext,
    asked: Sequence[ThreadpoolInterface],
    on_pools: JobsOnPools,
    is_held: Callable[[], bool],
) -> Repeat:
    """Return what runs as the last time. The pools that are ``asked`` may be running the task that asks for it.

    ``is_held`` says whether the calling thread is in the middle of another run, which the one that is asked for interrupts.
    """
    if not IS_THERE:
        return repeat_nothing
    variant, wanted, ports, jobs, find, owner = run
    count, verbose, take, again = len(wanted), engine.verbose, context.output_memory.take, context.count_again
    default, has_changed = on_pools.default, on_pools.has_changed
    fixed = on_pools.fixed(jobs)
    number = jobs[0].number if jobs else default.number

    def repeat(inputs: Mapping[str, Any], wanted_variant: str) -> Outputs | None:
        executor = find()
        if executor is None or context.latest is not executor or (alone := executor.alone) is None or is_held():
            return None
        if owner and get_ident() != owner:
            return None
        if wanted_variant != variant or len(inputs) != count or verbose.executes or default.number != number:
            return None
        for pool in asked:
            if pool.get_in_parallel():
                return None
        addresses = []
        for name, dtype, shape, nbytes, behind in wanted:
            try:
                array = inputs[name]
            except KeyError:
                return None
            if type(array) is not _ARRAY or array.dtype is not dtype or array.shape != shape:
                return None
            at = id(array) >> 3
            address = WORDS[at + DATA]
            if WORDS[at + FLAGS] & IN_ORDER != IN_ORDER or -(address + nbytes) % _PAGE < behind:
                return None
            addresses.append(address)
        if fixed is None:
            if has_changed(jobs):
                return None
        else:
            for pool, least_ns in fixed:
                if pool.least_job_ns != least_ns:
                    return None
        again()
        moving_in, moving_out, order, tasks, failure, regions, submit, written = alone
        outputs, places = Outputs(), []
        for name, dims, dtype, nbytes in ports:
            outputs[name], place = take(dims, dtype, nbytes)
            places.append(place)
        try:
            with order:
                if addresses != written:
                    # An interrupt leaves none.
                    written.clear()
                    for n, job, place, offset in moving_in:
                        job[place] = addresses[n] + offset
                    written.extend(addresses)
                for n, job, place, offset in moving_out:
                    job[place] = places[n] + offset
                if submit is not None:
                    submit(regions)
                for call, region in tasks:
                    if call():
                        raise failure(region)
        except BaseException:
            executor.settle()
            raise
        return outputs

    return repeat
