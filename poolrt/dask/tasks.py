"""The functions that Dask calls on workers. Modules import them by name, so a task is small."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from distributed import Reschedule, Status, get_worker

from poolrt.kernels.counts import stats as kernel_counts
from poolrt.numba.counters import counters
from poolrt.workers.primitives.provider import primitive_provider

from .errors import ClusterError
from .plugin import NAME, PoolrtPlugin, store_counts
from .runtime import SentGraph

if TYPE_CHECKING:
    from distributed import Worker
    from numpy.typing import NDArray

_CLOSING: Final = (Status.closing, Status.closing_gracefully, Status.closed)


def run_batch(sent: SentGraph, inputs: Mapping[str, Any], outputs: Sequence[str] | None) -> dict[str, NDArray[Any]]:
    """Run a graph on one batch, in the runtime of the worker that executes this task.

    A worker that is closing, whose runtime ends under the batch, lets Dask move the batch to another one.
    """
    worker = get_worker()
    try:
        return plugin_of(worker).runtime(worker.address).run(sent, inputs, outputs)
    except Exception as error:
        if worker.status in _CLOSING:
            raise Reschedule from error
        raise


def plugin_of(worker: Worker) -> PoolrtPlugin:
    """Return the plugin of a worker. Raises ClusterError if it has none."""
    found = worker.plugins.get(NAME)
    if not isinstance(found, PoolrtPlugin):
        raise ClusterError(
            f"worker {worker.address} has no poolrt plugin; call client.register_plugin(poolrt.dask.PoolrtPlugin())"
        )
    return found


def describe_worker(dask_worker: Worker, whole_store: bool = False) -> dict[str, Any]:
    """Return the counts of a worker's process, and with ``whole_store`` those of its namespace. Raises ClusterError."""
    plugin, provider = plugin_of(dask_worker), primitive_provider()
    functions, kernels, primitives, created = (
        counters().counts(),
        kernel_counts(),
        provider.stats(),
        provider.creations(),
    )
    return {
        "pid": os.getpid(),
        "created": functions["created"] + kernels["created"] + created,
        "waited": functions["waited"] + kernels["waited"],
        "found": functions["hits"] + kernels["hits"] + max(0, primitives["misses"] - created),
        "hits": primitives["hits"],
        "fallbacks": functions["fallbacks"] + kernels["fallbacks"],
        **plugin.facts,
        "store": store_counts() if whole_store else {},
    }
