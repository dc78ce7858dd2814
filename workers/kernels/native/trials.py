"""Whether regions run on the calling thread alone or with a pool's other threads: what takes less time of late.

With other threads a run takes longer if one of them has a task and no processor: another program runs there, or the host of a
virtual machine has taken it away. The caller cannot take back a task that has begun. So each submission has a record of how
long its runs take either way. If one with the other threads takes no less than one without, the next few are a *trial* of the
other way, and the faster way is kept until the next trial. The time between trials doubles with each that changes nothing, but
one comes soon if runs take much longer than the other way did. Runs alone are tried once at first, and again after many runs.

`trial_words` describes a record.
"""

from __future__ import annotations

from typing import Final

from .atomics import atomic_load, atomic_store, call_kernel, read_ticks
from .region_queue import BLOBS, COUNT, FUNCTION, RATE, RECORD, STATUS
from .trial_words import ALONE, INTERVAL, IS_ALONE, NEXT, REST, RUNS, SINCE, TICKS, TOGETHER, TRIAL
from .vec import iload
from .wake_ups import note_work

#: The first run of a trial comes, which wakes threads or leaves them and does not count; or another one.
_FIRST: Final = 1
_FURTHER: Final = 2
#: Microseconds from one trial to the next at least; at most, of runs alone and with others; or so many runs, if they take longer.
_SOONEST_US: Final = 20_000
_LATEST_US: Final = 640_000
_LATEST_TOGETHER_US: Final = 160_000
_SOONEST_RUNS: Final = 8
_LATEST_RUNS: Final = 64
#: A mean is one of so many runs and microseconds at least. Runs with others get a longer one: programs take their processors
#: for some milliseconds at a time.
_LEAST_RUNS: Final = 2
_LEAST_US: Final = 2000
_LONG_MEAN_US: Final = 20_000
#: The same between trials of runs alone that nothing speaks for: what they took may have been a busy machine's time.
_REST_US: Final = 10_000_000
_REST_RUNS: Final = 1000
#: Halves of the other way's time that are much longer than it. A trial ends with its second run if that takes so long.
_MUCH: Final = 3
#: Microseconds of a run that ends a trial, even the first one.
_LONG_US: Final = 10_000


def runs_alone(trials: int) -> bool:
    """Return whether the next run is one on the calling thread alone."""
    return (iload(trials + IS_ALONE) != 0) != (iload(trials + TRIAL) != 0)


def is_trial(trials: int) -> bool:
    """Return whether the next run is one of a trial."""
    return iload(trials + TRIAL) != 0


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
    """Note the ticks that a run has taken, at the time ``now``, and choose the way of the next one."""
    rate = iload(queue + RATE)
    if iload(trials + NEXT) == 0:
        # The first run finds memory that has no pages yet.
        _end(trials, max(_SOONEST_US * rate, _SOONEST_RUNS * taken), now)
        return
    alone = runs_alone(trials)
    way = trials + (ALONE if alone else TOGETHER)
    other = iload(trials + (TOGETHER if alone else ALONE))
    trial = iload(trials + TRIAL)
    if trial == _FIRST:
        atomic_store(trials + TRIAL, _FURTHER)
        if taken < _LONG_US * rate:
            return
        mean = taken
    else:
        runs = iload(trials + RUNS) + 1
        ticks = iload(trials + TICKS) + taken
        atomic_store(trials + RUNS, runs)
        atomic_store(trials + TICKS, ticks)
        is_hopeless = trial != 0 and runs == 1 and taken * 2 > other * _MUCH
        least = (_LEAST_US if trial != 0 or alone else _LONG_MEAN_US) * rate
        if not is_hopeless and (runs < _LEAST_RUNS or ticks < least):
            return
        mean = ticks // runs
        atomic_store(trials + RUNS, 0)
        atomic_store(trials + TICKS, 0)
    if trial == 0:
        before = iload(way)
        # What takes longer for a moment was held up by something else.
        atomic_store(way, mean if before == 0 or mean < before else before + (mean - before) // 3)
        if _is_due(queue, trials, regions, count, now):
            atomic_store(trials + TRIAL, _FIRST)
        return
    atomic_store(way, mean)
    soonest = max(_SOONEST_US * rate, _SOONEST_RUNS * mean)
    latest = _LATEST_RUNS * mean
    interval = iload(trials + INTERVAL)
    if mean >= other:
        # This way goes on to be the other one.
        latest = max((_LATEST_US if alone else _LATEST_TOGETHER_US) * rate, latest)
        _end(trials, min(interval * 2, latest), now)
        return
    atomic_store(trials + IS_ALONE, 1 if alone else 0)
    if alone:
        latest = max(_LATEST_TOGETHER_US * rate, latest)
        rest = iload(trials + REST)
        # Others that were of use for a short time only are tried less often.
        is_again = now - iload(trials + SINCE) < 2 * latest
        _end(trials, max(min(rest * 2, latest), soonest) if is_again else soonest, now)
    else:
        atomic_store(trials + REST, interval)
        atomic_store(trials + SINCE, now)
        _end(trials, soonest, now)


def _end(trials: int, interval: int, now: int) -> None:
    """End a trial, and let the next one begin after an interval."""
    atomic_store(trials + TRIAL, 0)
    atomic_store(trials + INTERVAL, interval)
    atomic_store(trials + NEXT, now + interval)


def _is_due(queue: int, trials: int, regions: int, count: int, now: int) -> bool:
    """Return whether a trial of the other way is to begin."""
    rate = iload(queue + RATE)
    alone = runs_alone(trials)
    mean = iload(trials + (ALONE if alone else TOGETHER))
    other = iload(trials + (TOGETHER if alone else ALONE))
    passed = now - iload(trials + NEXT) + iload(trials + INTERVAL)
    if passed < max(_SOONEST_US * rate, _SOONEST_RUNS * mean):
        return False
    if mean * 2 > other * _MUCH:  # also if the other way is unknown
        return True
    if now < iload(trials + NEXT):
        return False
    if alone or passed > max(_REST_US * rate, _REST_RUNS * mean):
        return True
    # With others, what the tasks take is longer while threads disturb each other.
    work = 0
    for index in range(count):
        work += atomic_load(iload(regions + index * RECORD + RECORD - 8))
    return mean > min(other, work * rate // 1000)
