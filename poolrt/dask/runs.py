"""`run` and `stream`: a graph on many batches, on the workers of a Dask cluster, with results in order."""

from __future__ import annotations

import hashlib
import itertools
import time
import uuid
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError
from typing import TYPE_CHECKING, Any, Final

import msgpack
import numpy as np
from dask.base import is_dask_collection
from distributed import Client
from distributed.client import ClosedClientError
from distributed.scheduler import KilledWorker

from poolrt.graph.builder import Graph
from poolrt.loads.model_source import to_graph
from poolrt.runs.run_inputs import Outputs, describe_names
from poolrt.settings import Settings
from poolrt.spelling import describe_type, hint

from .clients import check_client
from .errors import ClusterError
from .plugin import PoolrtPlugin
from .runtime import SentGraph
from .tasks import run_batch

if TYPE_CHECKING:
    from distributed import Future

#: Batches in flight for each thread of the cluster, unless the caller says how many: one computes, one travels, and Dask
#: spreads a group of more than two a thread over all workers, instead of keeping it where the graph is.
_PER_THREAD: Final = 3
#: The fewest batches in flight: a cluster that grows with its work needs some to begin with.
_FEWEST: Final = 8
#: Seconds after which the number of the cluster's threads is asked for again.
_COUNTED_S: Final = 1.0
#: Longest wait, in seconds, for a batch, workers that must start included.
TIMEOUT_S: Final = 600.0


def run(client: Client, graph: Any, batches: Iterable[Mapping[str, Any]], **options: Any) -> list[Outputs]:
    """Run a graph on batches on a Dask cluster and return their outputs in order, each a dict of arrays by name.

    Takes what `stream` takes and raises what it raises; `stream` keeps fewer results in memory.
    """
    return list(stream(client, graph, batches, **options))


def stream(
    client: Client,
    graph: Any,
    batches: Iterable[Mapping[str, Any]],
    *,
    outputs: Sequence[str] | None = None,
    retries: int = 2,
    in_flight: int | None = None,
    timeout: float = TIMEOUT_S,
    progress: Callable[[int, int | None], object] | None = None,
) -> Iterator[Outputs]:
    """Run a graph on batches on a Dask cluster; yield their outputs in order, each a dict of arrays by name.

    ``graph`` is a Graph, or an ONNX model as `Pool.load` takes it; each worker gets it once. A batch is a dict of inputs by
    name: arrays, or futures, delayed values and collections of Dask, whose data stay on the cluster. ``outputs`` names
    those that are wanted (default: all). At most ``in_flight`` batches are sent and not yet yielded (default: three a
    thread of the cluster). Workers without the plugin get `PoolrtPlugin()`. ``progress(done, total)`` is called after each
    batch; ``total`` is None if the number is unknown.

    Dask moves a batch whose worker died to another one, ``distributed.scheduler.allowed-failures`` times; then it is sent
    again ``retries`` times. Raises the graph's own error (GraphError, CreationFailed, KernelFailed, ...), TypeError or
    ValueError for a batch, and ClusterError if workers die of it, if none has done it after ``timeout`` seconds, and if the
    scheduler is lost.
    """
    check_client(client)
    _check_number("retries", retries, 0)
    if in_flight is not None:
        _check_number("in_flight", in_flight, 1)
    _check_seconds("timeout", timeout)
    found = to_graph(graph, None, None, Settings.load())
    return _results(_Run(client, found, _check_outputs(found, outputs), retries, timeout), batches, in_flight, progress)


def _results(
    sender: _Run,
    batches: Iterable[Mapping[str, Any]],
    in_flight: int | None,
    progress: Callable[[int, int | None], object] | None,
) -> Iterator[Outputs]:
    total = len(batches) if isinstance(batches, Sequence) else None
    pending: deque[_Batch] = deque()
    done = 0

    def take() -> Outputs:
        nonlocal done
        found = sender.result(pending[0])
        pending.popleft()
        done += 1
        if progress is not None:
            progress(done, total)
        return found

    try:
        for number, inputs in enumerate(batches):
            while len(pending) >= (in_flight or sender.room()):
                yield take()
            pending.append(sender.send(number, inputs))
            # What is done does not wait for a caller that makes the next batch slowly.
            while pending and pending[0].is_done():
                yield take()
        while pending:
            yield take()
    finally:
        sender.close(pending)


class _Batch:
    """One batch in flight; its inputs are kept, to be sent again."""

    __slots__ = ("future", "inputs", "number")

    def __init__(self, number: int, inputs: dict[str, Any], future: Future[Any]) -> None:
        self.number = number
        self.inputs = inputs
        self.future = future

    def is_done(self) -> bool:
        """Return whether its outputs, or an error, are there."""
        return self.future.status != "pending"


class _Run:
    """Sends one graph and its batches, and sends again what was lost with its workers."""

    def __init__(
        self, client: Client, graph: Graph, outputs: tuple[str, ...] | None, retries: int, timeout: float
    ) -> None:
        self._client: Any = client
        self._graph = graph
        self._outputs = outputs
        self._retries = retries
        self._timeout = timeout
        self._digest = digest_of(graph)
        self._name = uuid.uuid4().hex
        self._numbers = itertools.count()
        self._sent: Future[Any] | None = None
        self._room = _FEWEST
        self._counted = float("-inf")

    def room(self) -> int:
        """Return how many batches may be in flight, by the threads that the cluster has now."""
        if time.monotonic() - self._counted > _COUNTED_S:
            threads = self._threads()
            self._room = self._room if threads is None else max(_FEWEST, _PER_THREAD * sum(threads.values()))
            self._counted = time.monotonic()
        return self._room

    def send(self, number: int, inputs: object) -> _Batch:
        """Send a batch. Raises TypeError or ValueError, naming it, for what is no batch of the graph."""
        if not isinstance(inputs, Mapping):
            raise TypeError(f"batch {number}: expect a dict of inputs by name, got {describe_type(inputs)}")
        wanted = self._graph.inputs
        if inputs.keys() != wanted.keys():
            types = self._graph.input_types
            ports = {name: f"{name} {types[name]}{list(shape)}" for name, shape in wanted.items()}
            raise ValueError(f"batch {number}: {describe_names(f'graph {self._graph.name}', ports, inputs)}")
        held = {name: self._client.compute(v) if is_dask_collection(v) else v for name, v in inputs.items()}
        try:
            if self._sent is None:
                plugin = PoolrtPlugin()
                plugin.idempotent = True  # one that the user has registered stays
                self._client.register_plugin(plugin)
            return _Batch(number, held, self._submit(held))
        except (OSError, ClosedClientError) as error:
            raise ClusterError(f"batch {number} cannot be sent to the scheduler: {_one_line(error)}") from error

    def result(self, batch: _Batch) -> Outputs:
        """Return the outputs of a batch, sent again if its workers died. Raises what the graph raised, and ClusterError."""
        for left in range(self._retries, -1, -1):
            try:
                return Outputs(batch.future.result(self._timeout))
            except (KilledWorker, CancelledError) as error:
                if self._client.status != "running":
                    raise ClusterError(
                        f"{self._which(batch)} is lost: the client has no connection to the scheduler"
                    ) from error
                if not left:
                    raise ClusterError(
                        f"{self._which(batch)} was given up after {self._retries + 1} attempts: {_one_line(error)}"
                    ) from error
                batch.future = self._submit(batch.inputs)
            except TimeoutError as error:
                if batch.future.status == "error":
                    raise  # the graph's own
                workers = len(self._threads() or ())
                raise ClusterError(
                    f"{self._which(batch)} was not done within {self._timeout:g} s on {workers} workers; see the cluster's "
                    "dashboard, or give more time with timeout="
                ) from error
        raise AssertionError("the last attempt returns or raises")

    def close(self, pending: Iterable[_Batch]) -> None:
        """Cancel what was not taken, and release the graph."""
        rest = [batch.future for batch in pending]
        if rest and self._client.status == "running":
            self._client.cancel(rest)
        self._sent = None

    def _threads(self) -> dict[str, int] | None:
        """Return the threads of each worker; None if the scheduler cannot be asked now."""
        try:
            found: dict[str, int] = self._client.nthreads()
        except OSError:
            return None
        return found

    def _submit(self, inputs: Mapping[str, Any]) -> Future[Any]:
        # Dask warns of large arguments. The number of batches in flight bounds them, and each worker gets the graph once.
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Sending large graph", UserWarning)
            if self._sent is None or self._sent.status not in ("pending", "finished"):
                self._sent = self._client.submit(SentGraph, self._digest, self._graph, key=self._key("graph"))
            key = self._key("batch")
            sent: Future[Any] = self._client.submit(run_batch, self._sent, inputs, self._outputs, key=key)
            return sent

    def _key(self, what: str) -> str:
        # Dask groups tasks by the words of their keys, and spreads a group that has few dependencies over all workers.
        return f"poolrt-{what}-{self._name}-{next(self._numbers)}"

    def _which(self, batch: _Batch) -> str:
        return f"graph {self._graph.name}: batch {batch.number}"


def digest_of(graph: Graph) -> str:
    """Return the SHA-256 of a graph's wire form and its constants, in hexadecimal."""
    wire, constants = graph.to_wire(optimize=False)
    found = hashlib.sha256(msgpack.packb(wire))
    for constant in constants:
        found.update(np.ascontiguousarray(constant.to_array()).view(np.uint8).data)
    return found.hexdigest()


def _check_number(name: str, value: Any, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ValueError(f"{name}: expect an integer of at least {least}, got {value!r}")


def _check_seconds(name: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
        raise ValueError(f"{name}: expect a number of seconds above 0, got {value!r}")


def _check_outputs(graph: Graph, outputs: Sequence[str] | None) -> tuple[str, ...] | None:
    if outputs is None:
        return None
    names = (outputs,) if isinstance(outputs, str) else tuple(outputs)
    for name in names:
        if name not in graph.outputs:
            known = list(graph.outputs)
            raise ValueError(
                f"outputs: graph {graph.name} has {', '.join(known)}, got {name!r}{hint(str(name), known)}"
            )
    return names


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())
