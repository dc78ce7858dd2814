"""Start a coordinator in this process: for one connected client, or listening at a path for many."""

from __future__ import annotations

import _socket
import faulthandler
import os
import signal
import sys
import warnings
from typing import TYPE_CHECKING

# What the coordinator and its workers both need, so that it is imported once, before the fork in `serve_client`.
import poolrt.cachestore.constant_files
import poolrt.cachestore.digests
import poolrt.cachestore.lru
import poolrt.workers.desc.op_desc
import poolrt.workers.ipc.call_ring
import poolrt.workers.ipc.gate
import poolrt.workers.ipc.outlined_payload
import poolrt.workers.memory.arena_view
import poolrt.workers.plans.execution_plan
import poolrt.workers.processes.allocator
import poolrt.workers.verbose.output  # noqa: F401
from poolrt.workers.ipc.channel import Channel, ChannelError
from poolrt.workers.ipc.protocol import Kind, check_message
from poolrt.workers.processes.fork_server import start_fork_server

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TextIO

    from poolrt.settings import Settings

    from .configuration import Configuration

#: Seconds that the client that started this process may take to send its settings.
_CONFIGURE_S = 30.0
#: Signals that stop a server cleanly.
_ENDS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def print_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """Print a warning as one line, as all lines of a coordinator are. The arguments are those of `warnings.showwarning`."""
    print(f"poolrt: warning: {message}", file=sys.stderr, flush=True)


def serve_client(sock: _socket.socket) -> int:
    """Serve the client at the other end of a socket until it disconnects; return the exit status."""
    faulthandler.enable(2)
    warnings.showwarning = print_warning
    channel = Channel(sock)
    try:
        # After faulthandler: a handler of SIGILL that comes with this module, as tests have one, must be the last.
        from poolrt.workers.engines.isa import LIMIT

        # Fork before there is a second thread. Both processes share the modules so far, and import the rest in parallel.
        fork_server = start_fork_server(sock)
        from .configuration import Configuration
        from .loop import Loop

        message = channel.receive() if channel.wait(_CONFIGURE_S) else None
        if message is None or check_message(message) is not Kind.CONFIGURE:
            return 1
        configuration = Configuration(**message[1])
        os.environ[LIMIT] = configuration.max_cpu_isa
        loop = Loop(configuration, fork_server)
    except ChannelError:
        return 1
    except Exception as error:  # noqa: BLE001 - the client gets the reason of any failure
        from .start import report_failure

        report_failure(channel, error)
        return 1
    loop.add_client(sock)
    loop.run()
    return 0


def serve_path(
    path: str | os.PathLike[str], settings: Settings, listening: Callable[[Configuration], None] | None = None
) -> int:
    """Listen for clients of this user at ``path`` until SIGTERM, SIGINT, SIGHUP or a client's stop; return the exit status.

    ``listening`` is called with the configuration once clients can connect. Call this from the main thread of a process
    that has no other. Raises OSError if the path is in use or cannot be used.
    """
    warnings.showwarning = print_warning
    fork_server = start_fork_server()
    from poolrt.workers.engines.isa import LIMIT

    from .configuration import Configuration
    from .listener import Listener
    from .loop import Loop

    # nohup makes the process ignore a hang-up of the terminal.
    ends = [number for number in _ENDS if signal.getsignal(number) is not signal.SIG_IGN]
    # Block these signals until there is a loop to stop: otherwise the socket file would stay behind.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ends)
    try:
        listener = Listener(os.fspath(path))
        try:
            configuration = Configuration.of(settings)
            os.environ[LIMIT] = configuration.max_cpu_isa
            loop = Loop(configuration, fork_server, listener)
            for number in ends:
                signal.signal(number, lambda *_: loop.stop())
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            if listening is not None:
                listening(configuration)
            loop.run()
        finally:
            listener.close()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return 0
