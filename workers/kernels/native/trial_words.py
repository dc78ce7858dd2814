"""The words of a record of trials, by their places in bytes: see `trials`, which needs the kernels' language, as this does not.

All are 0 at first.
"""

from __future__ import annotations

from typing import Final

#: Ticks of a run alone and of one with others, of late, 0 if unknown; whether runs are alone; ticks at which a trial may begin,
#: and from one to the next; whether a trial is under way; runs and ticks that count, of the trial or since the last mean;
#: ticks from one trial with others to the next before the last one was a success; and ticks at which runs with others began.
ALONE, TOGETHER, IS_ALONE, NEXT, INTERVAL, TRIAL, RUNS, TICKS, REST, SINCE = (8 * i for i in range(10))
#: Bytes of a record.
TRIALS: Final = 80
