"""The pool: worker processes that run graphs, and functions, for this process."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import fields
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, ParamSpec, Self, TypeVar

from poolrt.errors import CoordinatorLost, FunctionFailed, PoolError, error_from_wire
from poolrt.settings import Settings
from poolrt.workers.channel import Channel, Message
from poolrt.workers.protocol import Kind

from .client import Client, Request
from .launch import Coordinator, start_coordinator

if TYPE_CHECKING:
    import socket
    from concurrent.futures import Future

    from numpy.typing import NDArray

    from .graph.builder import Graph
    from .model import Model
    from .shared_memory import SharedMemory

P = ParamSpec("P")
T = TypeVar("T")
#: What is told of a load: primitives in all, ready, and the names of those being created.
Progress = Callable[[int, int, list[str]], None]
#: Functions under way; `Pool.submit` waits for one to end before it sends another.
FUNCTIONS_IN_FLIGHT: Final = 256
#: Bytes of constants that are written before the workers are told, so that they reorder beside the writing.
_WRITE_BATCH: Final = 8 * 1024 * 1024


class Pool:
    """Worker processes with a coordinator of their own, which all end with this pool, or with this process.

    Use it in a ``with`` block. ``workers``, ``threads`` (of each worker) and ``engine`` come before the environment, this
    before the configuration file ``config``; ``settings`` are any others of `poolrt.settings.Settings`. Nothing is waited
    for here: the processes start while the caller goes on. All methods may be called from several threads.
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
        chosen = Settings.load(config, workers=workers, threads=threads, engine=engine, **settings)
        sock, coordinator = start_coordinator()
        # The coordinator may have another home directory and working directory than this process.
        home = {"home": str(chosen.home_path.absolute())}
        configure = [Kind.CONFIGURE, {knob.name: getattr(chosen, knob.name) for knob in fields(chosen)} | home]
        self._start(sock, coordinator, [configure], chosen)

    @classmethod
    def _connected(cls, sock: socket.socket, settings: Settings) -> Self:
        pool = cls.__new__(cls)
        pool._start(sock, None, [], settings)
        return pool

    def _start(
        self, sock: socket.socket, coordinator: Coordinator | None, greeting: list[Message], settings: Settings
    ) -> None:
        self._coordinator = coordinator
        self._settings = settings
        self._functions = 0
        self._counting = threading.Lock()
        self._shared: SharedMemory | None = None
        self._facts: dict[str, Any] = {}
        try:
            self._client = Client(Channel(sock, accepts_fds=True), greeting, settings.start_timeout_s)
        except PoolError:
            sock.close()
            if coordinator is not None:
                coordinator.end()
            raise

    def load(self, graph: Graph, progress: bool | Progress | None = None) -> Model:
        """Make a graph ready to run and return it as a model.

        Primitives that the cache does not have are created, spread over the cores. ``progress`` is called as that goes
        on; True shows a bar, False none, None one where standard error is a terminal. A graph for the engine ``cpu`` goes
        to the pool's own engine where that is another. Raises the errors of `poolrt.errors`: GraphRefused, ArenaFull,
        CreationFailed, CreatorLost, WorkerLost.
        """
        from .model import Model

        started = time.perf_counter()
        wire, constants = graph.to_wire()
        if wire["engine"] == "cpu" and self._settings.engine != "cpu":
            wire["engine"] = self._settings.engine
        by_value = {value: constant for (value, _), constant in zip(wire["constants"], constants, strict=True)}
        memory = self._memory()
        request = self._client.begin(Kind.LOAD, wire, request=Request())
        with self._watched(wire["name"], progress) as show:
            while True:
                answer = self._client.next_answer(request)
                if answer[0] == Kind.LOADED:
                    break
                if answer[0] == Kind.PROGRESS:
                    show(*answer[2:])
                    continue
                written, nbytes = [], 0
                for number, value, offset in answer[2]:
                    constant = by_value[value]
                    constant.write_into(memory.bytes_at(offset, constant.nbytes))
                    written.append(number)
                    nbytes += constant.nbytes
                    if nbytes >= _WRITE_BATCH:
                        self._client.tell(Kind.WRITTEN, request.number, written)
                        written, nbytes = [], 0
                if written:
                    self._client.tell(Kind.WRITTEN, request.number, written)
        report = {**answer[5], "load_s": time.perf_counter() - started}
        return Model(self._client, memory, wire["name"], answer, report)

    def empty(self, shape: int | Sequence[int], dtype: Any = "float32") -> NDArray[Any]:
        """Return an array, uninitialised and row-major, in shared memory: as an input it is not copied. Raises ArenaFull."""
        import numpy

        dims = (shape,) if isinstance(shape, int) else tuple(shape)
        kind = numpy.dtype(dtype)
        if kind.hasobject:
            raise TypeError("shared memory holds no Python objects")
        nbytes = kind.itemsize
        for extent in dims:
            if extent < 0:
                raise ValueError(f"negative dimensions are not allowed: {dims}")
            nbytes *= extent
        memory = self._memory()
        return memory.array(memory.take([nbytes])[0], dims, kind.str, keep=True)

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Call a function in a worker process and return a future of its result, as `concurrent.futures.Executor` does.

        Function, arguments and result travel by dill. Its exceptions are raised here; if the worker dies, WorkerLost:
        a function is not called twice, because it may have had effects. Waits while 256 functions are under way.
        """
        from concurrent.futures import Future

        import dill
        import msgpack

        self._memory()
        payload = msgpack.packb([[place for place in sys.path if place], dill.dumps((fn, args, kwargs))])
        future: Future[T] = Future()
        if not self._client.in_own_thread:
            self._client.wait_while(lambda: self._functions >= FUNCTIONS_IN_FLIGHT)
        future.set_running_or_notify_cancel()
        self._count(1)
        request = Request(self._function_ended, lambda answer: _resolve(future, answer))
        try:
            self._client.begin(Kind.CALL, payload, request=request)
        except BaseException:
            if not request.done:
                self._count(-1)
            raise
        return future

    def map(
        self, fn: Callable[..., T], *iterables: Iterable[Any], timeout: float | None = None, chunksize: int = 1
    ) -> Iterator[T]:
        """Call ``fn(*items)`` in worker processes for the items of the iterables side by side, and yield results in order.

        At most 256 calls are under way; ``chunksize`` items travel together. Raises TimeoutError where a result is not there
        ``timeout`` seconds after this call.
        """
        if chunksize < 1:
            raise ValueError(f"chunksize must be at least 1, got {chunksize}")
        deadline = None if timeout is None else time.monotonic() + timeout
        return self._mapped(fn, zip(*iterables, strict=False), deadline, chunksize)

    def stats(self) -> dict[str, Any]:
        """Return what the pool is doing: ``workers`` (pid, state, runs, rss_bytes, numba_imported), ``queue`` (waiting,
        in_flight, creating), ``arena`` (bytes, used), ``cache`` (the store's counters) and ``workers_lost``."""
        self._memory()
        facts: dict[str, Any] = self._client.ask(Kind.STATISTICS)[2]
        return facts

    @property
    def workers(self) -> int:
        """Number of worker processes."""
        self._memory()
        return int(self._facts["workers"])

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Close the pool, as `concurrent.futures.Executor` spells it. With ``wait``, functions under way are waited for."""
        if wait and not cancel_futures and not self._client.closed:
            try:
                self._client.wait_while(lambda: self._functions > 0)
            except PoolError:
                pass  # it has ended already
        self.close()

    def close(self) -> None:
        """End the connection, and the processes of a pool that has its own. Runs under way are given up. May be repeated."""
        self._client.close()
        if self._coordinator is not None:
            self._coordinator.end()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _memory(self) -> SharedMemory:
        """Return the shared memory; the first call waits until the coordinator is up."""
        if self._shared is None:
            from .shared_memory import SharedMemory

            fd, _, self._facts = self._client.welcome()
            self._shared = SharedMemory(self._client, fd)
        return self._shared

    def _watched(self, name: str, progress: bool | Progress | None) -> Any:
        from .progress import watch

        return watch(name, self._settings.progress if progress is None else progress, forced=progress is True)

    def _function_ended(self, answer: Message) -> None:
        self._count(-1)

    def _count(self, difference: int) -> None:
        with self._counting:
            self._functions += difference

    def _mapped(
        self, fn: Callable[..., T], items: Iterator[tuple[Any, ...]], deadline: float | None, chunksize: int
    ) -> Iterator[T]:
        from itertools import islice

        under_way: deque[Future[list[T]]] = deque()
        chunks = iter(lambda: list(islice(items, chunksize)), [])
        for chunk in chunks:
            if len(under_way) >= FUNCTIONS_IN_FLIGHT:
                yield from under_way.popleft().result(_left(deadline))
            under_way.append(self.submit(_call_each, fn, chunk))
        while under_way:
            yield from under_way.popleft().result(_left(deadline))


def connect(path: str | os.PathLike[str], **settings: Any) -> Pool:
    """Return a pool on a coordinator that listens at ``path`` (see ``poolrt serve``). Closing it leaves that one running.

    Raises CoordinatorLost where nobody listens there, or somebody of another user.
    """
    import socket

    from .coordinator.peers import credentials

    chosen = Settings.load(None, **settings)
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        sock.connect(os.fspath(path))
        if credentials(sock)[1] != os.geteuid():
            raise CoordinatorLost(f"the coordinator at {os.fspath(path)} belongs to another user")
    except OSError as error:
        sock.close()
        raise CoordinatorLost(f"no coordinator listens at {os.fspath(path)}: {error.strerror}") from error
    except CoordinatorLost:
        sock.close()
        raise
    return Pool._connected(sock, chosen)


def _call_each(fn: Callable[..., T], chunk: list[tuple[Any, ...]]) -> list[T]:
    return [fn(*items) for items in chunk]


def _left(deadline: float | None) -> float | None:
    return None if deadline is None else max(0.0, deadline - time.monotonic())


def _resolve(future: Future[Any], answer: Message) -> None:
    """Give a future the outcome of a function."""
    import dill

    if answer[0] == Kind.FAILED:
        future.set_exception(error_from_wire(answer[2]))
        return
    try:
        value = dill.loads(answer[2]) if answer[2] else FunctionFailed("a function failed:\n" + answer[3], answer[3])
    except Exception as error:  # noqa: BLE001 - loading runs code of the user; the future is told
        future.set_exception(error)
        return
    if answer[0] == Kind.RAISED:
        if not isinstance(value, FunctionFailed):
            value.add_note(f"in a worker process:\n{answer[3]}")
        future.set_exception(value)
    else:
        future.set_result(value)
