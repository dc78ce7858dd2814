"""The words of a ring of runs, by their places in bytes, and those of the memory of a worker's compiled loop.

`poolrt.workers.ipc.ring` says what the words of a ring mean. The other memory is private to the worker, so the loop trusts it:

- a *bench*, with all rings and descriptors that the loop serves and watches, and what it leaves for Python;
- a *place* for each ring: where it is, the counts of `ServingRing`, the bell, and the models that may be named there;
- a *routine* for each model: what an entry must be like, where its addresses are written, and the parallel regions.
"""

from __future__ import annotations

from typing import Final

#: Entries of a ring; words of an entry, and those before its slots.
CAPACITY: Final = 64
ENTRY_WORDS: Final = 32
HEAD: Final = 6
_WORD: Final = 8

# The words of a ring.
SUBMITTED: Final = _WORD * 8
CLIENT_RAN: Final = _WORD * 9
CLIENT_SLEEPS: Final = _WORD * 10
CLIENT_DEFERS: Final = _WORD * 11
TAKEN: Final = _WORD * 16
DONE: Final = _WORD * 24
WORKER_RAN: Final = _WORD * 25
WORKER_SLEEPS: Final = _WORD * 26
RETURNS: Final = _WORD * 27
STATE: Final = _WORD * 32
ENTRIES: Final = _WORD * 64
STATUSES: Final = ENTRIES + _WORD * CAPACITY * ENTRY_WORDS
WITHDRAWN: Final = STATUSES + _WORD * CAPACITY

#: The words of an entry.
SEQUENCE, NUMBER, MODEL, INPUTS, OUTPUTS = (_WORD * i for i in range(5))
EXECUTED: Final = 1
RETURNED: Final = 2

# A bench: where the arena is and its bytes; places and their number; descriptors as poll(2) takes them, and their number; the
# longest spin in nanoseconds; whether the loop may sleep. Then what it leaves: the number of the place that an outcome is about,
# of the region that failed there, what that region left, and the routine; whether it has served anything since it last slept; how
# often it looks again by itself, because a client defers bells; one more than the processor of that client, 0 if it is unknown.
(
    BENCH_ARENA,
    BENCH_NBYTES,
    BENCH_PLACES,
    BENCH_COUNT,
    BENCH_WATCHED,
    BENCH_WATCHED_COUNT,
    BENCH_SPIN,
    BENCH_SLEEPS,
    BENCH_PLACE,
    BENCH_REGION,
    BENCH_FAILURE,
    BENCH_ROUTINE,
    BENCH_SERVED,
    BENCH_LOOKS,
    BENCH_BESIDE,
) = (_WORD * i for i in range(15))
BENCH_WORDS: Final = 15

# A place. The counts are those of `ServingRing`, at an address: entries that are done, twice the sleeps, the sleep rung for last,
# and the count of deferred bells that was seen last.
PLACE_RING, PLACE_NUMBER, PLACE_COUNTS, PLACE_BELL, PLACE_MODELS, PLACE_MODEL_COUNT = (_WORD * i for i in range(6))
PLACE_WORDS: Final = 6
COUNT, SLEEPS, RUNG, DEFERRED = (_WORD * i for i in range(4))
# A model of a place: its number and the address of its routine.
MODEL_BYTES: Final = 2 * _WORD

# A routine: numbers of inputs and outputs, the address of the bytes of each; moves and their number; regions and theirs.
(
    ROUTINE_INPUTS,
    ROUTINE_OUTPUTS,
    ROUTINE_SIZES,
    ROUTINE_MOVES,
    ROUTINE_MOVE_COUNT,
    ROUTINE_REGIONS,
    ROUTINE_REGION_COUNT,
) = (_WORD * i for i in range(7))
ROUTINE_WORDS: Final = 7
# A move: the number of the tensor, outputs behind inputs; the address of an argument; what is added to the tensor's address.
MOVE_BYTES: Final = 3 * _WORD
#: Slots start on multiples of this.
GRAIN: Final = 128

#: Why the loop returns: look for messages, signals and bells; an entry that Python is to take; one that has failed; no entry.
LOOK: Final = 0
UNUSUAL: Final = 1
FAILED: Final = 2
IDLE: Final = 3
#: Why a client's wait returns: look at the ring; the worker has closed its end; time has passed; a signal has come; the entry
#: was executed.
ENDED: Final = 0
CLOSED: Final = 1
PASSED: Final = 2
SIGNALLED: Final = 3
FINISHED: Final = 4
