"""What runs graphs on a Dask worker: executors in its process, or a pool of its own. Imports no Dask."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from poolrt.cachestore.deferred_dataclass import dataclass
from poolrt.graph.builder import Graph

from .errors import ClusterError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from poolrt.inprocess.executor import Executor
    from poolrt.model import Model
    from poolrt.pool import Pool
    from poolrt.workers.threadpools.native import NativePool

#: Graphs that a worker keeps ready, the least recently used beyond them are dropped with their constants.
_GRAPHS: Final = 8


@dataclass(frozen=True, slots=True, eq=False)
class SentGraph:
    """A graph as it travels, once to each worker; equal graphs have equal digests."""

    digest: str
    graph: Graph


class Runtime:
    """Runs the graphs of one Dask worker. Any number of threads may use it; batches of one graph take turns.

    ``workers`` 0: in this process, on ``threads`` threads. Else on a pool of so many processes with ``threads`` threads each.
    """

    def __init__(self, threads: int, workers: int = 0) -> None:
        self.threads = threads
        self.workers = workers
        self._lock = threading.Lock()
        self._ready: OrderedDict[str, Executor | Model] = OrderedDict()
        self._threadpool: NativePool | None = None
        self._pool: Pool | None = None
        self._closed = False

    def run(self, sent: SentGraph, inputs: Mapping[str, Any], outputs: Sequence[str] | None) -> dict[str, NDArray[Any]]:
        """Return the outputs by name, all or the named ones, as arrays of this process's own.

        Raises what `Executor.run` or `Model.run` raises.
        """
        found = self._find(sent).run(**inputs)
        names = found if outputs is None else outputs
        # A pool's are views into its shared memory.
        return {name: np.array(found[name]) if self.workers else found[name] for name in names}

    def close(self) -> None:
        """Drop all graphs, and end the pool and the threads."""
        with self._lock:
            self._closed = True
            self._ready.clear()
            pool, self._pool = self._pool, None
            threadpool, self._threadpool = self._threadpool, None
        if pool is not None:
            pool.close()
        if threadpool is not None:
            threadpool.close()

    def _find(self, sent: SentGraph) -> Executor | Model:
        with self._lock:
            if self._closed:
                raise ClusterError(
                    "this worker's runtime is closed: its plugin was replaced or removed; run the graph again"
                )
            found = self._ready.get(sent.digest)
            if found is None:
                found = self._ready[sent.digest] = (
                    self._load(sent.graph) if self.workers else self._executor(sent.graph)
                )
                while len(self._ready) > _GRAPHS:
                    self._ready.popitem(last=False)
            self._ready.move_to_end(sent.digest)
            return found

    def _load(self, graph: Graph) -> Model:
        from poolrt.pool import Pool

        if self._pool is None:
            self._pool = Pool(workers=self.workers, threads=self.threads, progress=False)
        return self._pool.load(graph)

    def _executor(self, graph: Graph) -> Executor:
        from poolrt.inprocess.executor import Executor

        if self.threads == 1 or graph.engine != "cpu":
            return Executor(graph)
        from poolrt.workers.engines.engine import Engine
        from poolrt.workers.streams.attributes import StreamAttr
        from poolrt.workers.streams.stream import Stream
        from poolrt.workers.threadpools.native import NativePool

        if self._threadpool is None:
            self._threadpool = NativePool(self.threads)
        attr = StreamAttr("cpu")
        attr.set_threadpool(self._threadpool)
        return Executor(graph, stream=Stream(Engine("cpu"), attr))
