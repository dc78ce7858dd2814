"""The pool: worker processes that run graphs, and functions, for this process.

Importing this module costs next to nothing, so that the coordinator can be started before anything else is imported.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from concurrent.futures import Future
    from types import TracebackType

    from numpy.typing import NDArray

    from .functions import Functions
    from .graph.builder import Graph
    from .model import Model
    from .session import Session

P = ParamSpec("P")
T = TypeVar("T")


class Pool:
    """Worker processes with a coordinator of their own, which all end with this pool, or with this process.

    Use it in a ``with`` block. ``workers``, ``threads`` (of each worker) and ``engine`` come before the environment, this
    before the configuration file ``config``; ``settings`` are any others of `poolrt.settings.Settings`. Nothing is waited
    for here: the processes start while the caller goes on. All methods may be called from several threads. Raises
    SettingsError, and CoordinatorLost where no process can be started.
    """

    def __init__(
        self,
        workers: int | None = None,
        threads: int | None = None,
        engine: str | None = None,
        *,
        config: str | os.PathLike[str] | None = None,
        **settings: Any,
    ) -> None:
        from .launch import start_coordinator

        try:
            sock, coordinator = start_coordinator()
        except OSError as error:
            from .errors import CoordinatorLost

            raise CoordinatorLost(f"the coordinator cannot be started: {error}") from error
        from dataclasses import replace

        from poolrt.workers.verbose.output import verbose

        from .session import Session, settings_for
        from .settings import Settings

        def load() -> Settings:
            chosen = Settings.load(config, workers=workers, threads=threads, engine=engine, **settings)
            if settings.get("verbose") is None and verbose().chosen:
                chosen = replace(chosen, verbose=verbose().level)
            return chosen

        self._open(Session(sock, settings_for(sock, coordinator, load), coordinator))

    def _open(self, session: Session) -> None:
        self._session = session
        self._applied: Functions | None = None

    def load(self, graph: Graph, progress: bool | Callable[[int, int, list[str]], None] | None = None) -> Model:
        """Make a graph ready to run and return it as a model.

        Primitives that the cache does not have are created, spread over the cores. ``progress(total, ready, names)`` is
        called as that goes on; True shows a bar, False none, None one where standard error is a terminal. A graph for the
        engine ``cpu`` goes to the pool's own engine where that is another. Raises the errors of `poolrt.errors`:
        GraphRefused, ArenaFull, CreationFailed, CreatorLost, WorkerLost, PoolClosed.
        """
        from .loading import load

        return load(self._session, graph, progress)

    def empty(self, shape: int | Sequence[int], dtype: Any = "float32") -> NDArray[Any]:
        """Return an array, uninitialised and row-major, in shared memory: as an input it is not copied. Raises ArenaFull."""
        import numpy

        dims = (shape,) if isinstance(shape, int) else tuple(shape)
        kind = numpy.dtype(dtype)
        if kind.hasobject:
            raise TypeError("shared memory holds no Python objects")
        if any(extent < 0 for extent in dims):
            raise ValueError(f"negative dimensions are not allowed: {dims}")
        nbytes = kind.itemsize
        for extent in dims:
            nbytes *= extent
        memory = self._session.memory
        return memory.array(memory.take([nbytes])[0], dims, kind.str, keep=True)

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Call a function in a worker process and return a future of its result, as `concurrent.futures.Executor` does.

        Function, arguments and result travel by dill. Its exceptions are raised here; if the worker dies, WorkerLost:
        a function is not called twice, because it may have had effects. Waits while 256 functions are under way.
        """
        return self._functions().submit(fn, args, kwargs)

    def map(
        self, fn: Callable[..., T], *iterables: Iterable[Any], timeout: float | None = None, chunksize: int = 1
    ) -> Iterator[T]:
        """Call ``fn(*items)`` in worker processes for the items of the iterables side by side, and yield results in order.

        At most 256 calls are under way; ``chunksize`` items travel together. Raises TimeoutError where a result is not there
        ``timeout`` seconds after this call.
        """
        return self._functions().map(fn, iterables, timeout, chunksize)

    def stats(self, timeout: float | None = None) -> dict[str, Any]:
        """Return what the pool is doing now.

        ``workers``: for each its pid (0 while it starts), state (starting, idle, busy), runs, rss_bytes, numba_imported ·
        ``queue``: waiting, in_flight, creating · ``arena``: bytes, used · ``cache``: the store's counters · ``clients`` ·
        ``workers_lost``: how many were replaced · ``pid`` of the coordinator. Raises TimeoutError where there is no answer
        within ``timeout`` seconds.
        """
        import time

        from poolrt.workers.ipc.protocol import Kind

        client = self._session.client
        client.flush()  # memory that has been dropped here counts as free
        deadline = None if timeout is None else time.monotonic() + timeout
        facts: dict[str, Any] = client.ask(Kind.STATISTICS, deadline=deadline)[2]
        return facts

    @property
    def workers(self) -> int:
        """Number of worker processes."""
        return int(self._session.facts["workers"])

    @property
    def threads(self) -> int:
        """Number of threads of each worker."""
        return int(self._session.facts["threads"])

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Close the pool, as `concurrent.futures.Executor` spells it. With ``wait``, functions under way are waited for."""
        if self._applied is not None and wait and not cancel_futures:
            self._applied.wait_for_all()
        self.close()

    def close(self) -> None:
        """End the connection, and the processes of a pool that has its own. Runs under way are given up. May be repeated."""
        self._session.close()

    def __enter__(self) -> Pool:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _functions(self) -> Functions:
        if self._applied is None:
            from .functions import Functions

            self._applied = Functions(self._session)
        return self._applied


def connect(path: str | os.PathLike[str], *, config: str | os.PathLike[str] | None = None, **settings: Any) -> Pool:
    """Return a pool on a coordinator that listens at ``path`` (see ``poolrt serve``). Closing it leaves that one running.

    Of the settings only those of a client count: ``engine``, ``progress`` and ``start_timeout_s``. Raises CoordinatorLost
    where nobody listens there, or somebody of another user.
    """
    from .server import connect_socket
    from .session import Session
    from .settings import Settings

    chosen = Settings.load(config, **settings)
    pool = Pool.__new__(Pool)
    pool._open(Session(connect_socket(path), chosen, None))
    return pool
