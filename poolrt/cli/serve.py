"""`poolrt serve`: one pool for all programs of this user; it outlives its clients."""

from __future__ import annotations

import argparse
import errno
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

from poolrt.cli.command_line import add_common
from poolrt.cli.numbers import positive
from poolrt.cli.report import JobFailed, Report, bytes_text
from poolrt.settings import Settings

from .socket_option import add_socket

if TYPE_CHECKING:
    from pathlib import Path

    from poolrt.coordinator.configuration import Configuration

    from .served_metrics import MetricsServer

_DESCRIPTION: Final = """\
Keep a pool running that many programs share: workers, shared memory, kernels that are already mapped.

A program connects with poolrt.connect(PATH), or `poolrt run MODEL --socket PATH`. Only programs of the same user can.
The server runs in the foreground until it gets SIGTERM or SIGINT (Ctrl-C), or until `poolrt stop`. It then ends all of
its processes and leaves nothing behind. When a client exits or is killed, the server frees all that the client held.

With --metrics, Prometheus can read what status prints at http://HOST:PORT/metrics. Anyone who reaches that address can read it:
choose one of this machine (127.0.0.1), or of a network that you trust. Needs pip install 'poolrt[metrics]'.
"""
_EPILOG: Final = """\
examples:
  poolrt serve
  poolrt serve --socket /run/user/1000/models.sock --workers 4 --threads 2
  poolrt serve --config production.toml
  poolrt serve --metrics 127.0.0.1:9464
  poolrt serve --json | { read -r facts; echo "$facts" | jq .socket; cat; }

--json prints its object once clients can connect: socket, pid, workers, threads, arena_bytes; with --metrics, their address too
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Describe the command's options."""
    parser.description = _DESCRIPTION
    parser.epilog = _EPILOG
    add_socket(parser)
    parser.add_argument("--workers", type=positive, metavar="N", help="worker processes (default: one for each core)")
    parser.add_argument(
        "--threads", type=positive, metavar="N", help="threads of one worker (default: cores / workers)"
    )
    parser.add_argument(
        "--metrics", type=_address, metavar="HOST:PORT", help="answer Prometheus at this address; port 0: any free one"
    )
    add_common(parser, _execute, overrides=("socket", "workers", "threads"))


def _address(text: str) -> tuple[str, int]:
    """Return host and port; an address of IPv6 is in brackets."""
    host, colon, port = text.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        host = ""
    if not (host and colon and port.isascii() and port.isdecimal() and int(port) < 1 << 16):
        raise argparse.ArgumentTypeError(f"expected HOST:PORT, such as 127.0.0.1:9464 or [::1]:9464, got {text}")
    return host, int(port)


def _execute(options: argparse.Namespace, settings: Settings, report: Report) -> int:
    from poolrt.coordinator.entry import serve_path

    path = settings.socket_path
    if not settings.socket:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if options.metrics and find_spec("prometheus_client") is None:
        raise JobFailed("--metrics needs the prometheus-client package: pip install 'poolrt[metrics]'")

    def listening(configuration: Configuration) -> None:
        # Only now: the fork server exists, so workers inherit neither the socket nor the library.
        metrics = _answer_prometheus(options.metrics, path) if options.metrics else None
        _print_address(path, configuration, metrics, report)

    try:
        return serve_path(path, settings, listening)
    except OSError as error:
        raise JobFailed(_explain(path, error)) from error


def _answer_prometheus(address: tuple[str, int], path: Path) -> MetricsServer:
    """Start a server of metrics and return it. Raises JobFailed if it cannot have its address."""
    from .served_metrics import MetricsServer

    host, port = address
    try:
        metrics = MetricsServer(host, port, path)
    except OSError as error:
        reason = error.strerror or error
        raise JobFailed(f"cannot listen at {host}:{port} for metrics: {reason}; choose another --metrics") from error
    metrics.start()
    return metrics


def _print_address(path: Path, configuration: Configuration, metrics: MetricsServer | None, report: Report) -> None:
    import os

    workers, threads = configuration.workers, configuration.threads
    report.say(
        f"listening at {path}: {workers} worker{'s' * (workers > 1)} of {threads} thread{'s' * (threads > 1)}, "
        f"{bytes_text(configuration.arena_bytes)} of shared memory at most; to stop: poolrt stop, or Ctrl-C"
    )
    if metrics is not None:
        report.say(f"metrics at {metrics.url}")
    facts = {
        "socket": str(path),
        "pid": os.getpid(),
        "workers": workers,
        "threads": threads,
        "arena_bytes": configuration.arena_bytes,
    }
    report.result(facts if metrics is None else {**facts, "metrics": metrics.url})
    report.flush()


def _explain(path: Path, error: OSError) -> str:
    """Return why no server can listen at a path, and what to do."""
    if error.errno == errno.EADDRINUSE:
        from poolrt.connection.server import connect_socket
        from poolrt.errors import CoordinatorLoss

        try:
            connect_socket(path).close()
        except CoordinatorLoss:
            return f"{path} exists and is not the socket of a server: choose another --socket"
        return f"a server already listens at {path}: see it with poolrt status, end it with poolrt stop"
    return f"cannot listen at {path}: {error.strerror or error}; choose another --socket"
