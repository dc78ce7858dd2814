"""Whether regions run on the calling thread alone or with a pool's other threads: what takes less time of late.

With other threads a run takes longer if one of them has a task and no processor: another program runs there, or the host of a
virtual machine has taken it away. The caller cannot take back a task that has begun. So each submission has a record of how
long its runs take either way. If one with the other threads takes no less than one without, the next few are a *trial* of the
other way, and the faster way is kept until the next trial. The time between trials doubles with each that changes nothing.

A record is `TRIALS` bytes, all 0 at first.
"""

from __future__ import annotations

from typing import Final

from .atomics import atomic_load, atomic_store, call_kernel, read_ticks
from .region_queue import BLOBS, COUNT, FUNCTION, RATE, RECORD, STATUS
from .vec import iload
from .wake_ups import note_work

#: Bytes of a record. Its words: ticks of a run alone and of one with others, of late, 0 if unknown; whether runs are alone; ticks
#: at which a trial may begin, and from one to the next; runs of the trial under way, 0 if none is; ticks of those that count.
TRIALS: Final = 64
_ALONE, _TOGETHER, _IS_ALONE, _NEXT, _INTERVAL, _RUNS, _TICKS = (8 * i for i in range(7))
#: Microseconds from one trial to the next at least and at most; or so many runs, if they take longer.
_SOONEST_US: Final = 20_000
_LATEST_US: Final = 640_000
_SOONEST_RUNS: Final = 8
_LATEST_RUNS: Final = 64
#: What counts in a trial at least: runs after the first one, which wakes threads or leaves them; and microseconds.
_TRIAL_RUNS: Final = 2
_TRIAL_US: Final = 1000
#: A trial ends with its first run if that takes so many times the time of the other way, or so many microseconds.
_HOPELESS: Final = 2
_LONG_US: Final = 10_000
#: What runs take of late moves by the difference to each divided by this.
_DRIFT: Final = 8


def runs_alone(trials: int) -> bool:
    """Return whether the next run is one on the calling thread alone."""
    return (iload(trials + _IS_ALONE) != 0) != (iload(trials + _RUNS) != 0)


def run_alone(queue: int, regions: int, count: int) -> None:
    """Run all tasks of regions on the calling thread, also after one that fails."""
    for index in range(count):
        region = regions + index * RECORD
        begin = read_ticks()
        for task in range(iload(region + COUNT)):
            failure = call_kernel(iload(region + FUNCTION), iload(iload(region + BLOBS) + task * 8))
            if failure != 0:
                atomic_store(iload(region + STATUS), failure)
        note_work(queue, iload(region + RECORD - 8), read_ticks() - begin)


def note_run(queue: int, trials: int, regions: int, count: int, taken: int, now: int) -> None:
    """Note the ticks that a run has taken, and choose the next one's way; ``now`` is the time."""
    rate = iload(queue + RATE)
    alone = runs_alone(trials)
    way = trials + (_ALONE if alone else _TOGETHER)
    other = trials + (_TOGETHER if alone else _ALONE)
    runs = iload(trials + _RUNS)
    if runs == 0:
        before = iload(way)
        atomic_store(way, taken if before == 0 else before + (taken - before) // _DRIFT)
        begin = iload(trials + _NEXT)
        if begin == 0:
            # The first run finds memory that has no pages yet.
            atomic_store(way, 0)
            _end(trials, max(_SOONEST_US * rate, _SOONEST_RUNS * taken), now)
        elif now >= begin and (alone or _is_doubtful(queue, trials, regions, count)):
            atomic_store(trials + _TICKS, 0)
            atomic_store(trials + _RUNS, 1)
        return
    if runs == 1:
        atomic_store(trials + _RUNS, 2)
        if taken < min(_HOPELESS * iload(other), _LONG_US * rate):
            return
    else:
        ticks = iload(trials + _TICKS) + taken
        atomic_store(trials + _TICKS, ticks)
        if runs <= _TRIAL_RUNS or ticks < _TRIAL_US * rate:
            atomic_store(trials + _RUNS, runs + 1)
            return
        taken = ticks // (runs - 1)
    atomic_store(way, taken)
    interval = iload(trials + _INTERVAL)
    if taken < iload(other):
        atomic_store(trials + _IS_ALONE, 1 if alone else 0)
        _end(trials, max(interval // 4, _SOONEST_US * rate, _SOONEST_RUNS * taken), now)
    else:
        _end(trials, min(interval * 2, max(_LATEST_US * rate, _LATEST_RUNS * taken)), now)


def _end(trials: int, interval: int, now: int) -> None:
    """End a trial, and let the next one begin after an interval."""
    atomic_store(trials + _RUNS, 0)
    atomic_store(trials + _INTERVAL, interval)
    atomic_store(trials + _NEXT, now + interval)


def _is_doubtful(queue: int, trials: int, regions: int, count: int) -> bool:
    """Return whether runs with other threads may take longer than alone."""
    together = iload(trials + _TOGETHER)
    alone = iload(trials + _ALONE)
    work = 0
    for index in range(count):
        work += atomic_load(iload(regions + index * RECORD + RECORD - 8))
    work = work * iload(queue + RATE) // 1000
    # What the tasks take is inflated while threads disturb each other.
    return together * 5 > work * 3 if alone == 0 else together > min(alone, work)
