"""joblib's backend "poolrt": `joblib.parallel_backend("poolrt", n_jobs=4)`. Imports joblib; `poolrt.joblib_hook` registers it."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from joblib._parallel_backends import AutoBatchingMixin, FallbackToBackend, SequentialBackend
from joblib.parallel import ParallelBackendBase, cpu_count

from .pool import Pool


class PoolrtBackend(AutoBatchingMixin, ParallelBackendBase):
    """Calls joblib's batches in the workers of a pool.

    ``pool`` is the user's, which stays open; without one, the backend makes a pool of ``n_jobs`` workers on first use, with
    ``settings``, and keeps it for further calls, until the backend is dropped.
    """

    supports_retrieve_callback = True
    uses_threads = False
    supports_sharedmem = False

    def __init__(self, nesting_level: int | None = None, pool: Pool | None = None, **settings: Any) -> None:
        super().__init__(nesting_level=nesting_level)
        self._given = pool
        self._settings = settings
        self._pool = pool
        self._jobs = 0
        self._futures: set[Future[Any]] = set()
        self.parallel: Any = None

    def effective_n_jobs(self, n_jobs: int | None) -> int:
        """Return the number of workers for joblib's ``n_jobs``: -1 stands for one a core, None for 1."""
        if n_jobs == 0:
            raise ValueError("n_jobs == 0 in Parallel has no meaning")
        if n_jobs is None:
            return 1
        if n_jobs > 0:
            return int(n_jobs)
        if self._given is not None:
            return self._given.workers
        return max(int(cpu_count()) + 1 + int(n_jobs), 1)

    def configure(
        self, n_jobs: int | None = 1, parallel: Any = None, prefer: Any = None, require: Any = None, **_: Any
    ) -> int:
        """Prepare for a call of joblib; return the number of workers. One job runs in this process."""
        jobs = self.effective_n_jobs(n_jobs)
        if jobs == 1 and self._given is None:
            raise FallbackToBackend(SequentialBackend(nesting_level=self.nesting_level))
        self.parallel = parallel
        if self._pool is None or (self._given is None and jobs != self._jobs):
            if self._pool is not None:
                self._pool.close()
            self._pool, self._jobs = Pool(workers=jobs, **self._settings), jobs
        return jobs

    def submit(self, func: Callable[[], Any], callback: Callable[[Any], None] | None = None) -> Future[Any]:
        """Call a batch in a worker; ``callback`` gets its future."""
        if self._pool is None:
            raise RuntimeError("the backend poolrt is not configured: use it with joblib.Parallel")
        future = self._pool.submit(func)
        self._futures.add(future)
        future.add_done_callback(self._futures.discard)
        if callback is not None:
            future.add_done_callback(callback)
        return future

    def retrieve_result_callback(self, out: Future[Any]) -> Any:
        """Return the results of a batch, or raise the exception of one of its functions."""
        return out.result()

    def terminate(self) -> None:
        """End a call of joblib; the workers stay for the next one."""
        self.reset_batch_stats()

    def abort_everything(self, ensure_ready: bool = True) -> None:
        """End what is under way: an own pool is closed, in a user's pool what has not begun is cancelled."""
        if self._given is not None:
            for future in list(self._futures):
                future.cancel()
        elif self._pool is not None:
            self._pool.close()
            self._pool = None
        if ensure_ready:
            self.configure(n_jobs=self.parallel.n_jobs, parallel=self.parallel)
