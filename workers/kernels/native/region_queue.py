"""The memory that the threads of a native pool share: words of a queue, records of regions.

A queue is memory of int64 words, each on a cache line of its own:

0 regions that have ended · 1 regions submitted · 2 an event counter that every change of the other two increments (the
futex word) · 3 threads that sleep on it · 4 not 0: threads are to return · 5 address of the ring · 6 number of regions
that the ring holds, a power of two · 7 regions that had ended when their owner last released their resources · 8 address
of the slots of nested regions · 9 number of slots to look at, 0 if no nested region is under way · 10 sleeping threads
that wait for a region · 11, 12 what the queue knows of time and place, see `CALLER`

A record of the ring is a cache line: the kernel's entry point, the address of an array of addresses of packed
arguments, the number of tasks, the address of a word for what `call_kernel` returns if a task fails; the next task, the
tasks that have ended. The next task carries the low half of the region's number in its upper half: a thread that was
delayed can never take a task of a later region in the same record. Its lower half has two halves again, if the region has
few enough tasks: how many were taken from the front, by threads that wait for it, and from the back, by those of a
synchronous pool. So a thread mostly finds in its cache what its tasks of the region before have left there. The last word
is the address of two: the time of all tasks in nanoseconds, estimated at first and measured from then on, and the ticks
that the tasks under way have taken; 0 if the time is unknown.

Regions run one after the other; the thread that ends the last task of one opens the next.

A slot is such a record, for a region that a task has submitted and waits for; its upper half is a generation. When the region
has ended, one more than its tasks have: the thread that ran the last one has then noted their time, and left the region. The slot
also has the address of the slot in whose task it was opened, or `OF_RING`, or `IN_PLACE`. Threads of the pool without
a task of the ring run tasks of any slot. A thread that waits for a region runs only tasks of regions nested in it:
others might wait for that thread.
"""

from __future__ import annotations

from typing import Final

#: Bytes of a cache line: distance of the queue's words, and size of a record.
LINE: Final = 64
#: The words of a queue, from its start.
WORDS: Final = 13
ENDED, SUBMITTED, EVENT, SLEEPERS, STOP, RING, CAPACITY, RELEASED, SLOTS, OPEN, WAITING, PLACE, TIMES = (
    LINE * i for i in range(WORDS)
)
#: The processor of the thread that submitted last, -1 on an asynchronous pool; pool threads that share it; the time of the
#: last wake-up in ticks, 0 when a thread has arrived; nanoseconds from such a time to the arrival, of late; nanoseconds
#: of work that no thread was woken for; ticks at the end of the last submission; how often threads were woken; the least
#: nanoseconds of an arrival, of late.
CALLER, SHARING, WOKEN, ARRIVAL, SPARED, FINISHED, WAKES, SOONEST = (PLACE + 8 * i for i in range(8))
#: Ticks of a microsecond; ticks that a thread spins within a submission, and after one; the processor that the thread keeps
#: away from that fell asleep last.
RATE, SPIN_WITHIN, SPIN_AFTER, APART = (TIMES + 8 * i for i in range(4))
FUNCTION, BLOBS, COUNT, STATUS, NEXT, DONE, PARENT, WORK = (8 * i for i in range(8))
#: Bytes of a region's record before it is submitted: the first words of that in the ring, and the last.
RECORD: Final = 40
#: What a slot has instead of a parent: opened by a task of the ring, or of a region that its caller runs alone.
OF_RING: Final = 1
IN_PLACE: Final = 2
#: Nested regions that are under way at once; further ones run in place.
SLOT_COUNT: Final = 64
#: No task to take, and no region's number: before a record changes, so that a delayed thread finds no mixture.
NONE: Final = -1
TASK: Final = 0xFFFFFFFF
#: The most tasks of a region that threads take from both ends; the tasks taken from its front; one taken from its back.
BOTH_ENDS: Final = 0x7FFF
FRONT: Final = 0xFFFF
BACK: Final = 0x10000
