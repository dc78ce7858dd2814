"""How many processes and threads a pool gets, and how libraries in them learn of it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Final

from poolrt.settings import Settings

#: What thread pools of libraries read when they are loaded. OpenCL drivers are told by the engine.
_THREAD_VARIABLES: Final = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "BLIS_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "NUMBA_NUM_THREADS",
)


@dataclass(frozen=True, slots=True)
class Quota:
    """Worker processes, threads of each, creators at most; ``cores`` are those that this process may use."""

    cores: int
    workers: int
    threads: int
    creators: int

    @classmethod
    def of(cls, settings: Settings) -> Quota:
        """Return what the settings ask for; what they leave open fills the cores once."""
        cores = len(os.sched_getaffinity(0))
        workers = settings.workers or max(1, cores // max(1, settings.threads))
        return cls(cores, workers, settings.threads or max(1, cores // workers), cores)


def thread_variables(threads: int) -> dict[str, str]:
    """Return the environment that keeps libraries to a number of threads."""
    return dict.fromkeys(_THREAD_VARIABLES, str(threads))
