"""The pool: worker processes that run graphs and functions for this process.

This module imports almost nothing, not even `typing`, so that the coordinator starts before anything else is imported.
`concurrent.futures`, which imports `logging`, takes as long as the start of Python.
"""

from __future__ import annotations

from .import_hook import when_imported

TYPE_CHECKING = False
if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from concurrent.futures import Executor, Future
    from types import TracebackType
    from typing import Any, ParamSpec, TypeVar, overload

    from numpy.typing import ArrayLike, NDArray

    from .connection.link import Link
    from .connection.session import Session
    from .functions.sent_functions import Functions
    from .graph.builder import Graph
    from .model import Model
    from .priority_view import PriorityView

    P = ParamSpec("P")
    T = TypeVar("T")
else:

    class Executor:
        """Stands for the class of `concurrent.futures`, which is the base class of `Pool` as soon as a program imports it."""


class Pool(Executor):
    """Worker processes and their own coordinator, which all end with this pool, or with this process.

    It is an executor of `concurrent.futures`. Use it in a ``with`` block, whose end waits for the futures that are not done;
    an interrupt ends the wait. ``workers``, ``threads`` (of each worker) and ``engine`` come before the environment, this
    before the configuration file ``config``; ``settings`` are any others of `poolrt.settings.Settings`. The constructor
    does not wait: the processes start while the caller goes on. Several threads may call all methods. Raises
    SettingsError, and CoordinatorLost if no process can be started.

    The arguments of `concurrent.futures.ProcessPoolExecutor`: ``max_workers`` is ``workers``. ``initializer(*initargs)`` is
    called in each worker before its first function; if it raises, all functions of this pool do (InitializerFailed). A
    worker that has called ``max_tasks_per_child`` functions is replaced by a new one.

    In a forked process the first call starts processes of its own, with the same settings, and models are loaded again as
    they are used; the parent's go on. Futures that are not done at the fork are the parent's.
    """

    def __init__(
        self,
        workers: int | None = None,
        threads: int | None = None,
        engine: str | None = None,
        *,
        config: str | os.PathLike[str] | None = None,
        max_workers: int | None = None,
        initializer: Callable[..., object] | None = None,
        initargs: tuple[Any, ...] = (),
        max_tasks_per_child: int | None = None,
        **settings: Any,
    ) -> None:
        _check_arguments(workers, max_workers, initializer, max_tasks_per_child)
        from .blas_threads import shorten_spins
        from .connection.launch import start_coordinator

        shorten_spins()
        try:
            sock, coordinator = start_coordinator()
        except OSError as error:
            from .errors import CoordinatorLost

            raise CoordinatorLost(f"the coordinator cannot be started: {error}") from error
        from poolrt.cachestore.deferred_dataclass import replace
        from poolrt.workers.verbose.output import verbose

        from .connection.session import Session, settings_for
        from .settings import Settings

        count = workers if max_workers is None else max_workers
        settings = {"max_tasks_per_child": max_tasks_per_child, **settings}

        def load() -> Settings:
            chosen = Settings.load(config, workers=count, threads=threads, engine=engine, **settings)
            if settings.get("verbose") is None and verbose().chosen:
                chosen = replace(chosen, verbose=verbose().level)
            return chosen

        self._open(Session(sock, settings_for(sock, coordinator, load), coordinator), initializer, tuple(initargs))

    def _open(
        self,
        session: Session,
        initializer: Callable[..., object] | None = None,
        initargs: tuple[Any, ...] = (),
    ) -> None:
        self._session = session
        self._initializer = initializer, initargs
        self._applied: Functions | None = None

    if TYPE_CHECKING:

        @overload
        def load(
            self,
            graph: Graph | str | os.PathLike[str] | bytes | Any,
            progress: bool | Callable[[int, int, list[str]], None] | None = None,
            *,
            batch: int | None = None,
            shapes: Mapping[str, Sequence[int]] | None = None,
            values: Mapping[str, ArrayLike] | None = None,
            split_batch: bool = False,
            priority: int = 0,
        ) -> Model: ...

        @overload
        def load(
            self,
            graph: str | os.PathLike[str] | bytes | Any,
            progress: bool | Callable[[int, int, list[str]], None] | None = None,
            *,
            batch: int | None = None,
            shapes: Sequence[Mapping[str, Sequence[int]]],
            values: Mapping[str, ArrayLike] | None = None,
            split_batch: bool = False,
            priority: int = 0,
        ) -> list[Model]: ...

    def load(
        self,
        graph: Graph | str | os.PathLike[str] | bytes | Any,
        progress: bool | Callable[[int, int, list[str]], None] | None = None,
        *,
        batch: int | None = None,
        shapes: Mapping[str, Sequence[int]] | Sequence[Mapping[str, Sequence[int]]] | None = None,
        values: Mapping[str, ArrayLike] | None = None,
        split_batch: bool = False,
        priority: int = 0,
    ) -> Model | list[Model]:
        """Load a graph, or an ONNX model, and return it as a model.

        An ONNX model is a path, the bytes of a file or an ``onnx.ModelProto``; ``batch`` and ``shapes`` are for sizes that it
        leaves open, ``values`` for inputs that it must know, as in `poolrt.load_onnx`, whose errors this raises too. A list of
        ``shapes`` loads the model once for each, and returns a list of models.

        Primitives that the cache does not have are created, spread over the cores. ``progress(total, ready, names)`` is
        called as creations finish; True shows a bar, False none, None a bar if standard error is a terminal. In a
        notebook, the bar is a line below the cell. A graph for the
        engine ``cpu`` runs on the pool's own engine if that is another one. Raises the errors of `poolrt.errors`:
        GraphRefused, ArenaFull, CreationFailed, CreatorLost, WorkerLost, PoolClosed.

        With ``split_batch``, each run is split over the workers, so that a large batch is done sooner: each worker computes
        some of the samples, which are the first dimension of the first input and of all inputs of the same first size.
        Raises GraphError for a graph that has a node which may mix samples.

        Runs of a higher ``priority``, from -8 to 7, go before others of this pool that no worker has got, as `at_priority`
        says. Raises ValueError for one out of range, TypeError for what is no integer.
        """
        from collections.abc import Mapping

        from .loads.model_source import to_graph, to_graphs
        from .priorities import check_priority

        priority = check_priority(priority)

        if split_batch:
            from .runs.split_model import load_split as load
        else:
            from .loads.loading import load

        session = self._session
        if shapes is not None and not isinstance(shapes, Mapping):
            graphs = to_graphs(graph, batch, shapes, session.settings, values)
            return [load(session, each, progress, priority) for each in graphs]
        return load(session, to_graph(graph, batch, shapes, session.settings, values), progress, priority)

    def empty(self, shape: int | Sequence[int], dtype: Any = "float32") -> NDArray[Any]:
        """Return an array, uninitialised and row-major, in shared memory: as an input it is not copied. Raises ArenaFull."""
        import numpy

        from .array_shape import shape_of

        dims = shape_of(shape)
        kind = numpy.dtype(dtype)
        if kind.hasobject:
            raise TypeError("shared memory holds no Python objects")
        nbytes = kind.itemsize
        for extent in dims:
            nbytes *= extent

        def take(link: Link) -> NDArray[Any]:
            return link.memory.array(link.memory.take([nbytes])[0], dims, kind.str, keep=True)

        return self._session.repeat(take)

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Call a function in a worker process and return a future of its result, as `concurrent.futures.Executor` does.

        Functions of a script, of standard input or a notebook, lambdas and closures travel by value, with the globals that
        they use now, and to each worker once; functions of modules travel by name. The future raises the function's
        exceptions, caused by the traceback of the worker, and WorkerLost if the worker is lost: a function is not called
        twice, because it may have had effects. What it prints is printed here, in order and before its result.
        `cancel` works until a worker begins. This never waits: 256 calls, or 256 MiB
        of them, are sent to the coordinator, and further ones wait in this process, pickled. Long arguments and results are
        in shared memory; the first waits until the pool has started.
        Raises PoolRefused if the function has more than 128 MiB, or its arguments and shared memory has no room, and
        RuntimeError after `shutdown` (PoolClosed).
        """
        called: object = fn
        if not callable(called):  # an import takes a microsecond
            from .functions.called_function import require_function

            require_function("submit", fn)
        session, applied, lost = self._session, self._applied, 0
        if applied is not None and (present := session.find_open(applied.client)) is not None:
            try:
                return applied.submit(fn, args, kwargs)  # the first step of `repeat`, without functions of functions
            except RuntimeError as error:
                if not session.may_repeat_after(error, present):
                    raise
                lost = 1
        # If the server has exited before it has all of the message, no worker has begun the function.
        return session.repeat(lambda link: self._functions(link).submit(fn, args, kwargs), None, lost)

    def map(
        self, fn: Callable[..., T], *iterables: Iterable[Any], timeout: float | None = None, chunksize: int = 1
    ) -> Iterator[T]:
        """Call ``fn(*items)`` in worker processes for the items of the iterables side by side, and yield results in order.

        All calls are submitted at once; the function is pickled once. ``chunksize`` items share one call. Raises TimeoutError
        if a result is missing ``timeout`` seconds after this call. Calls that have not begun are cancelled when the iterator
        ends early.
        """
        from .functions.called_function import require_function

        require_function("map", fn)
        return self._functions(self._session.link).map(fn, iterables, timeout, chunksize)

    def at_priority(self, priority: int) -> PriorityView:
        """Return a view of this pool whose calls, and models that it loads, have a priority from -8 to 7. That of the pool is 0.

        See `PriorityView`. Raises ValueError for a priority out of range, TypeError for what is no integer.
        """
        from .priorities import check_priority
        from .priority_view import PriorityView

        return PriorityView(self, check_priority(priority))

    def stats(self, timeout: float | None = None) -> dict[str, Any]:
        """Return what the pool is doing now.

        ``workers``: for each its pid (0 while it starts), state (starting, idle, busy), runs, rss_bytes, numba_imported ·
        ``queue``: waiting, in_flight, creating · ``arena``: bytes, used · ``cache``: the store's counters · ``clients`` ·
        ``workers_lost``: how many were replaced · ``pid`` of the coordinator. Raises TimeoutError without an answer
        within ``timeout`` seconds.
        """
        import time

        from poolrt.workers.ipc.protocol import Kind

        deadline = None if timeout is None else time.monotonic() + timeout

        def ask(link: Link) -> dict[str, Any]:
            link.release_spare()
            link.client.flush()  # memory of dropped arrays counts as free
            facts: dict[str, Any] = link.client.ask(Kind.STATISTICS, deadline=deadline)[2]
            return facts

        return self._session.repeat(ask, deadline)

    def _repr_html_(self) -> str:
        """Return tables of workers, queue, arena and cache for notebooks. Waits for 2 s at most."""
        from .errors import PoolError
        from .notebooks.pool_tables import closed, tables

        try:
            return tables(self.stats(2.0))
        except (PoolError, TimeoutError) as error:
            return closed(error)

    @property
    def workers(self) -> int:
        """Number of worker processes."""
        return int(self._session.facts["workers"])

    @property
    def _max_workers(self) -> int:
        """The name that Dask reads of an executor's number of workers."""
        return self.workers

    @property
    def threads(self) -> int:
        """Number of threads of each worker."""
        return int(self._session.facts["threads"])

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Close the pool, as `concurrent.futures.Executor` does: futures of functions and runs are completed.

        With ``wait``, this returns once they are; without, the processes end once they are. ``cancel_futures`` cancels those
        that have not begun. Further calls raise PoolClosed, a RuntimeError. May be repeated. An interrupt closes the pool.
        """
        futures = self._session.open_futures
        futures.refuse()
        try:
            if cancel_futures:
                for future in futures.all():
                    future.cancel()
            if wait:
                futures.wait()
        except BaseException:
            self.close()
            raise
        if wait:
            self.close()
        else:
            futures.end_after(self._session.close)

    def close(self) -> None:
        """End the connection, and the pool's own processes if it has any, without waiting. May be repeated.

        Runs and functions in flight are lost: their futures raise PoolClosed.
        """
        self._session.close()

    def __enter__(self) -> Pool:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if isinstance(error, KeyboardInterrupt):
            self.close()  # an interrupt does not reach the workers, so functions would go on for as long as they take
        else:
            self.shutdown()

    def _functions(self, link: Link) -> Functions:
        """Return what sends functions on a connection; those in flight on an earlier one are lost."""
        found = link.functions
        if found is None:
            from poolrt.cachestore.deferred_interrupts import deferred_interrupts

            # Two of them would number functions alike. An interrupt while a library is imported may be dropped.
            with deferred_interrupts(), link.preparing:
                found = link.functions
                if found is None:
                    from .functions.sent_functions import Functions

                    found = link.functions = Functions(link, *self._initializer)
        self._applied = found
        return found


# Nobody can ask for the base class before. All of its methods are defined here.
when_imported("concurrent.futures._base", lambda module: setattr(Pool, "__bases__", (module.Executor,)))


def _check_arguments(workers: object, max_workers: object, initializer: object, max_tasks_per_child: object) -> None:
    """Check the arguments that are those of `ProcessPoolExecutor`, and raise what it raises."""
    if max_workers is not None:
        if workers is not None:
            raise TypeError("workers and max_workers are the same: pass one of them")
        if not isinstance(max_workers, int):
            raise TypeError(f"max_workers must be an integer, got {max_workers!r}")
        if max_workers <= 0:
            raise ValueError(f"max_workers must be greater than 0, got {max_workers}")
    if initializer is not None and not callable(initializer):
        raise TypeError(f"initializer must be a callable, got {initializer!r}")
    if max_tasks_per_child is not None:
        if not isinstance(max_tasks_per_child, int):
            raise TypeError(f"max_tasks_per_child must be an integer, got {max_tasks_per_child!r}")
        if max_tasks_per_child <= 0:
            raise ValueError(f"max_tasks_per_child must be >= 1, got {max_tasks_per_child}")


def connect(
    path: str | os.PathLike[str] | None = None,
    *,
    config: str | os.PathLike[str] | None = None,
    initializer: Callable[..., object] | None = None,
    initargs: tuple[Any, ...] = (),
    **settings: Any,
) -> Pool:
    """Return a pool on a coordinator that listens at ``path`` (see ``poolrt serve``). Closing it leaves that one running.

    Without a path, it is the setting ``socket`` (``POOLRT_SOCKET``), as for the commands. Only the settings of a client
    apply: ``engine``, ``progress``, ``keep_graphs``, ``retries``, ``start_timeout_s``, ``coordinator_timeout_s`` and
    ``reconnect_timeout_s``. Raises CoordinatorLost if no coordinator listens there, or one of another user.

    If the server is restarted, the next call connects again, waits ``reconnect_timeout_s`` seconds at most, and writes
    one line to the log ``poolrt``. Models are loaded again as they are used, and runs and loads that were lost are done
    again, ``retries`` times at most. A function that was lost is not: its future raises CoordinatorLost. Arrays in the
    memory of a server that has exited keep their values, and are copied when they are inputs.

    ``initializer(*initargs)`` is called in each worker before its first function of this client, and again in those of another
    connection. Other clients do not see what it assigns to globals of the main module.
    """
    _check_arguments(None, None, initializer, None)
    from .blas_threads import shorten_spins
    from .connection.server import connect_socket, lasting_path
    from .connection.session import Session
    from .settings import Settings

    shorten_spins()
    chosen = Settings.load(config, **settings)
    place = str(chosen.socket_path) if path is None else lasting_path(path)
    pool = Pool.__new__(Pool)
    pool._open(Session(connect_socket(place), chosen, None, place), initializer, tuple(initargs))
    return pool
