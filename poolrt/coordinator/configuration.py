"""The configuration of a coordinator: how many processes and threads, how much memory, which store."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Final

from poolrt.blas_threads import short_spins
from poolrt.cachestore.deferred_namedtuple import NamedTuple

if TYPE_CHECKING:
    from poolrt.settings import Settings

#: Thread pools of libraries read these when they are loaded. The engine configures OpenCL drivers.
_THREAD_VARIABLES: Final = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "BLIS_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "NUMBA_NUM_THREADS",
)


class Configuration(NamedTuple):
    """The settings of a coordinator, resolved by the process that starts it: it reads no environment and no file.

    ``threads`` counts those of one worker, ``creators`` is the most processes, ``store`` has the arguments of
    `CacheStore.connect`, ``constant_files`` those of `ConstantFiles`.
    """

    workers: int
    threads: int
    creators: int
    arena_bytes: int
    engine: str
    retries: int
    spin_us: int
    start_timeout_s: float
    run_timeout_s: float
    creation_limit_s: float
    capacity: int
    functions: bool
    max_tasks_per_child: int
    max_cpu_isa: str
    verbose: str
    store: dict[str, Any]
    constant_files: dict[str, Any]

    @classmethod
    def of(cls, settings: Settings) -> Configuration:
        """Return the configuration of settings; numbers that they leave open use each core of this process once."""
        cores = len(os.sched_getaffinity(0))
        workers, threads = quota(settings, cores)
        store, resolved = settings.store_arguments(), ("workers", "threads", "creators", "store", "constant_files")
        return cls(
            workers=workers,
            threads=threads,
            creators=cores,
            store={**store, "home": os.path.abspath(store["home"])},
            constant_files=settings.constant_files_arguments(),
            **{name: getattr(settings, name) for name in cls._fields if name not in resolved},
        )


def quota(settings: Settings, cores: int) -> tuple[int, int]:
    """Return how many workers there are, and how many threads each has."""
    workers = settings.workers or max(1, cores // max(1, settings.threads))
    return workers, settings.threads or max(1, cores // workers)


def thread_variables(threads: int) -> dict[str, str]:
    """Return the environment that keeps libraries to a number of threads, which do not spin for long."""
    return dict.fromkeys(_THREAD_VARIABLES, str(threads)) | short_spins()
