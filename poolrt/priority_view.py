"""A view of a pool, whose calls and models have a priority."""

from __future__ import annotations

from concurrent.futures import Executor
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, overload

from .functions.called_function import require_function

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from concurrent.futures import Future

    from numpy.typing import ArrayLike

    from .graph.builder import Graph
    from .model import Model
    from .pool import Pool

P = ParamSpec("P")
T = TypeVar("T")


class PriorityView(Executor):
    """A view of a pool, made by `Pool.at_priority`: an executor that shares the pool's workers, models, memory and connection.

    Of this pool's calls that no worker has begun, one of a higher priority goes before those of lower ones, also before those
    that workers have got already; calls of one priority keep their order. So do runs of models among runs; runs and calls take
    turns. The oldest call of each priority, and the oldest run, is overtaken 64 times at most: no priority stops another one.
    Priorities order the work of one client: clients of a server take turns as ever, whatever their priorities are. A client that
    has loaded a model with a priority other than 0 sends all its runs as messages: a short one takes some 200 us, not 10 to 20.

    Closing a view closes nothing, and the end of its ``with`` block waits for nothing: the pool's own does.
    """

    def __init__(self, pool: Pool, priority: int) -> None:
        self._pool = pool
        self._priority = priority

    @property
    def priority(self) -> int:
        """The priority of its calls, and of the models that it loads."""
        return self._priority

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
    ) -> list[Model]: ...

    def load(self, graph: Any, progress: Any = None, **options: Any) -> Model | list[Model]:
        """Load a graph whose runs have this priority; see `Pool.load`."""
        found: Model | list[Model] = self._pool.load(graph, progress, priority=self._priority, **options)
        return found

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Call a function with this priority; see `Pool.submit`."""
        require_function("submit", fn)
        pool, priority = self._pool, self._priority
        return pool._session.repeat(lambda link: pool._functions(link).submit(fn, args, kwargs, priority))

    def map(
        self, fn: Callable[..., T], *iterables: Iterable[Any], timeout: float | None = None, chunksize: int = 1
    ) -> Iterator[T]:
        """Call a function for items with this priority; see `Pool.map`."""
        require_function("map", fn)
        functions = self._pool._functions(self._pool._session.link)
        return functions.map(fn, iterables, timeout, chunksize, self._priority)

    def at_priority(self, priority: int) -> PriorityView:
        """Return a view of the same pool with another priority."""
        return self._pool.at_priority(priority)

    @property
    def workers(self) -> int:
        """Number of worker processes."""
        return self._pool.workers

    @property
    def _max_workers(self) -> int:
        """The name that Dask reads of an executor's number of workers."""
        return self._pool.workers

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Do nothing: calls go on, and the pool is closed by itself."""

    def __repr__(self) -> str:
        return f"<poolrt.PriorityView {self._priority} of {self._pool!r}>"
