"""The state of a running pool as Prometheus reads it, over HTTP (`poolrt serve --metrics`)."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from socketserver import TCPServer, ThreadingMixIn
from typing import Any, Final
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import CollectorRegistry, make_wsgi_app
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from poolrt.cli.report import JobFailed

from .served_state import ask, connected
from .worker_rates import processor_seconds

#: Seconds without a byte from a client after which its connection is closed.
_SILENT_S: Final = 5.0
#: Most connections at a time; others are closed at once.
_MOST_CONNECTIONS: Final = 8
#: The store's counters, and their meanings.
_COUNTERS: Final = {
    "misses": "Look-ups that no tier could answer.",
    "creations": "Entries created.",
    "waits": "Callers that got the result of another creator.",
    "takeovers": "Leases taken from a creator that died, hung or stopped renewing.",
    "creation_errors": "Creators that failed.",
    "evictions": "Entries dropped for capacity.",
    "corrupt": "Entries refused as damaged.",
    "forged": "Entries refused for their signature.",
    "degraded": "Steps of calls that went on without Redis or without this node's files.",
}
_STATES: Final = {
    "waiting": "Runs and calls that no worker has yet.",
    "in_flight": "Runs and calls that workers have.",
    "creating": "Creations under way.",
}


class MetricsServer:
    """Listens at an address, and answers in threads of its own once it has been started."""

    def __init__(self, host: str, port: int, pool: Path) -> None:
        """Listen at ``host`` and ``port``, any free one if it is 0, for metrics of the pool that listens at ``pool``.

        Raises OSError if the address cannot be used.
        """
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        registry = CollectorRegistry(auto_describe=False)
        registry.register(_PoolMetrics(pool))
        kind = _ServerOfIPv6 if family == socket.AF_INET6 else _Server
        self._server: WSGIServer = make_server(str(address[0]), port, make_wsgi_app(registry), kind, _Handler)

    @property
    def url(self) -> str:
        """The address of the metrics."""
        host, port = self._server.server_name, self._server.server_port
        return f"http://{f'[{host}]' if ':' in host else host}:{port}/metrics"

    def start(self) -> None:
        """Answer from now on, until the process ends or `close` is called."""
        threading.Thread(target=self._server.serve_forever, name="metrics", daemon=True).start()

    def close(self) -> None:
        """Stop listening, once started."""
        self._server.shutdown()
        self._server.server_close()


class _Server(ThreadingMixIn, WSGIServer):
    """Answers a few connections at a time, each in a thread."""

    daemon_threads = True

    def __init__(self, *arguments: Any) -> None:
        self._free = threading.BoundedSemaphore(_MOST_CONNECTIONS)
        super().__init__(*arguments)

    def server_bind(self) -> None:
        """Bind. The base class would also ask for the host's name, which can take seconds."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = self.socket.getsockname()[:2]
        self.setup_environ()

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer in a thread; close the connection if there are too many."""
        if self._free.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Answer, and make room for another."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print nothing about a client that goes away or says nothing."""


class _ServerOfIPv6(_Server):
    address_family = socket.AF_INET6


class _Handler(WSGIRequestHandler):
    timeout = _SILENT_S

    def log_message(self, format: str, *arguments: Any) -> None:
        """Print no line for a request."""


class _PoolMetrics(Collector):
    """Asks the pool at each scrape, as one of its clients."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def collect(self) -> Iterator[Metric]:
        """Yield all metrics; only that the pool is down if it does not answer within some seconds."""
        try:
            with connected(self._path) as pool:
                found: Mapping[str, Any] | None = ask(pool, self._path)
        except JobFailed:
            found = None
        yield GaugeMetricFamily("poolrt_up", "Whether the pool answers.", value=float(found is not None))
        if found is not None:
            yield from _metrics(found)


def _metrics(found: Mapping[str, Any]) -> Iterator[Metric]:
    """Yield the metrics of a state (see `Pool.stats`)."""
    yield GaugeMetricFamily("poolrt_clients", "Connected clients.", value=found["clients"])
    yield from _metrics_of_workers(found["workers"])
    yield CounterMetricFamily("poolrt_workers_lost", "Workers that were replaced.", value=found["workers_lost"])
    for state, meaning in _STATES.items():
        yield GaugeMetricFamily(f"poolrt_queue_{state}", meaning, value=found["queue"][state])
    arena = found["arena"]
    yield GaugeMetricFamily("poolrt_arena_bytes", "Shared memory for tensors.", value=arena["bytes"])
    yield GaugeMetricFamily("poolrt_arena_used_bytes", "Shared memory that holds tensors.", value=arena["used"])
    cache = found["cache"]
    yield GaugeMetricFamily("poolrt_cache_up", "Whether the store answers.", value=float("error" not in cache))
    if "error" not in cache:
        yield from _metrics_of_cache(cache)


def _metrics_of_workers(workers: list[Mapping[str, Any]]) -> Iterator[Metric]:
    """Yield the metrics of workers, which have their process ids as labels."""
    state = GaugeMetricFamily("poolrt_workers", "Workers by state.", labels=["state"])
    for name in ("starting", "idle", "busy"):
        state.add_metric([name], sum(worker["state"] == name for worker in workers))
    yield state
    runs = CounterMetricFamily("poolrt_worker_runs", "Runs and calls that a worker has done.", labels=["pid"])
    used = CounterMetricFamily("poolrt_worker_cpu_seconds", "Processor time of a worker.", labels=["pid"])
    resident = GaugeMetricFamily("poolrt_worker_resident_bytes", "Resident memory of a worker.", labels=["pid"])
    for worker in workers:
        pid = worker["pid"]
        if not pid:
            continue  # it has no process yet
        runs.add_metric([str(pid)], worker["runs"])
        resident.add_metric([str(pid)], worker["rss_bytes"])
        if (seconds := processor_seconds(pid)) is not None:
            used.add_metric([str(pid)], seconds)
    yield from (runs, used, resident)


def _metrics_of_cache(cache: Mapping[str, Any]) -> Iterator[Metric]:
    """Yield the store's counters: those of all processes of its namespace."""
    yield GaugeMetricFamily("poolrt_cache_entries", "Entries in the store.", value=cache["entries"])
    yield GaugeMetricFamily("poolrt_cache_bytes", "Size of all entries.", value=cache["bytes"])
    yield GaugeMetricFamily("poolrt_cache_capacity", "Most entries.", value=cache["capacity"])
    yield GaugeMetricFamily(
        "poolrt_cache_capacity_bytes", "Most bytes of all entries, 0 for no limit.", value=cache["capacity_bytes"]
    )
    hits = CounterMetricFamily("poolrt_cache_hits", "Look-ups answered, by tier.", labels=["tier"])
    for tier, count in cache["hits"].items():
        hits.add_metric([tier], count)
    yield hits
    for name, meaning in _COUNTERS.items():
        yield CounterMetricFamily(f"poolrt_cache_{name}", meaning, value=cache[name])
    yield CounterMetricFamily(
        "poolrt_cache_saved_seconds",
        "Creation time of the entries that hits brought back.",
        value=cache["seconds_saved"],
    )
